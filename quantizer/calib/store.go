package calib

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// store holds the codes of finished layers: in a working directory, from which an interrupted job
// resumes, or in memory.
type store struct {
	work    *workdir.Dir // nil: in memory
	key     string
	layers  map[int]*layerFile
	results map[string]conversion.RowReader
}

// layerPrefix is the prefix of the entries of layers.
const layerPrefix = "layer-"

func layerName(layer int) string { return fmt.Sprint(layerPrefix, layer) }

// openStore opens the store for the job with a key. It removes the layers of other jobs from the
// directory.
func openStore(work *workdir.Dir, key string) (*store, error) {
	s := &store{work: work, key: key, layers: map[int]*layerFile{}, results: map[string]conversion.RowReader{}}
	if work == nil {
		return s, nil
	}
	return s, work.Prune(layerPrefix, key)
}

// close closes the open entries.
func (s *store) close() {
	for _, l := range s.layers {
		l.entry.Close()
	}
	s.layers = nil
}

// layerFile is the entry of a finished layer: the length of an index, the index as JSON, then the
// matrices.
type layerFile struct {
	entry *workdir.Entry
	base  int64 // of the matrices
	index layerIndex
}

type layerIndex struct {
	Matrices []matrixIndex `json:"matrices"`
	Notes    layerNotes    `json:"notes"`
}

// layerNotes are a job's remarks on a layer.
type layerNotes struct {
	Unreached []string `json:"unreached,omitempty"` // matrices that no calibration token reached
	Kept      []string `json:"kept,omitempty"`      // matrices for which the search was no worse
	Dead      int      `json:"dead,omitempty"`      // columns that were always zero
}

// matrixIndex is a matrix of a layer, whose codes lie at Offset.
type matrixIndex struct {
	Name string `json:"name"`
	rounding.Shape
	Offset int64 `json:"offset"`
}

// codes are the codes of a matrix of the layer.
func (l *layerFile) codes(m *matrixIndex) *rounding.StoredCodes {
	return &rounding.StoredCodes{Shape: m.Shape, At: l.base + m.Offset, File: l.entry}
}

// put stores a finished layer.
func (s *store) put(layer int, names []string, list []*rounding.Codes, notes layerNotes) error {
	if s.work == nil {
		for i, c := range list {
			s.results[names[i]] = c
		}
		return nil
	}
	index := layerIndex{Notes: notes}
	size := int64(0)
	for i, c := range list {
		index.Matrices = append(index.Matrices, matrixIndex{names[i], c.Shape, size})
		size += c.Bytes()
	}
	head, err := json.Marshal(index)
	if err != nil {
		return err
	}
	err = s.work.Put(layerName(layer), s.key, 8+int64(len(head))+size, func(w io.Writer) error {
		b := bufio.NewWriter(w) // which keeps the first error for Flush
		_, _ = b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(head))))
		_, _ = b.Write(head)
		for _, c := range list {
			c.Write(b)
		}
		return b.Flush()
	})
	if err != nil {
		return err
	}
	l, err := s.get(layer)
	if err == nil && l == nil {
		err = fmt.Errorf("%s: the layer that was just written cannot be read back: is the disk damaged, or does another program write here?", s.work.Path())
	}
	return err
}

// get opens a finished layer. It returns nil if there is none, or a damaged one.
func (s *store) get(layer int) (*layerFile, error) {
	if s.work == nil || s.layers[layer] != nil {
		return s.layers[layer], nil
	}
	e := s.work.Get(layerName(layer), s.key)
	if e == nil {
		return nil, nil
	}
	l := &layerFile{entry: e}
	if err := l.read(); err != nil { // although the entry is of this job and whole
		e.Close()
		return nil, fmt.Errorf("%s: %s: %w", s.work.Path(), layerName(layer), err)
	}
	s.layers[layer] = l
	for i := range l.index.Matrices {
		m := &l.index.Matrices[i]
		s.results[m.Name] = l.codes(m)
	}
	return l, nil
}

// read reads the index.
func (l *layerFile) read() error {
	var start [8]byte
	if _, err := io.ReadFull(l.entry, start[:]); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint64(start[:]))
	if n < 0 || n > l.entry.Size()-8 {
		return fmt.Errorf("an index of %d bytes in %d bytes", n, l.entry.Size())
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(l.entry, head); err != nil {
		return err
	}
	l.base = 8 + n
	return json.Unmarshal(head, &l.index)
}
