package calib

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
)

// store holds the codes of finished layers: in a working directory, to resume, or in memory.
type store struct {
	work    *workdir.Dir // nil: in memory
	key     string
	layers  map[int]*finished
	results map[string]plan.RowReader
}

type finished struct {
	matrices []finishedMatrix
	notes    layerNotes
	entry    io.Closer // nil: none
}

type finishedMatrix struct {
	name string
	rounding.Shape
	rows plan.RowReader
}

const layerPrefix = "layer-"

func layerName(layer int) string { return fmt.Sprint(layerPrefix, layer) }

// openStore opens the store for the job with a key, and removes the layers of other jobs.
func openStore(work *workdir.Dir, key string) (*store, error) {
	s := &store{work: work, key: key, layers: map[int]*finished{}, results: map[string]plan.RowReader{}}
	return s, work.Prune(layerPrefix, key)
}

func (s *store) close() {
	for _, l := range s.layers {
		if l.entry != nil {
			l.entry.Close()
		}
	}
	s.layers = nil
}

// layerFile is the entry of a finished layer: length of index, index as JSON, matrices.
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
	Searched  []string `json:"searched,omitempty"`  // matrices for which the search was no worse
	Dead      int      `json:"dead,omitempty"`      // columns that were always zero
}

// matrixIndex is a matrix of a layer, with the codes at Offset.
type matrixIndex struct {
	Name string `json:"name"`
	rounding.Shape
	Offset int64 `json:"offset"`
}

// codes are the codes of a matrix of the layer.
func (l *layerFile) codes(m *matrixIndex) *rounding.StoredCodes {
	return &rounding.StoredCodes{Shape: m.Shape, At: l.base + m.Offset, File: l.entry}
}

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

// get opens a finished layer, or returns nil for a missing or damaged layer.
func (s *store) get(layer int) (*finished, error) {
	if l := s.layers[layer]; l != nil {
		return l, nil
	}
	l, err := s.entry(layer)
	if l == nil || err != nil {
		return nil, err
	}
	s.layers[layer] = l
	for i := range l.matrices {
		s.results[l.matrices[i].name] = l.matrices[i].rows
	}
	return l, nil
}

func (s *store) entry(layer int) (*finished, error) {
	e := s.work.Get(layerName(layer), s.key)
	if e == nil {
		return nil, nil
	}
	file := &layerFile{entry: e}
	if err := file.read(); err != nil { // although the entry is of this job and whole
		e.Close()
		return nil, fmt.Errorf("%s: %s: %w", s.work.Path(), layerName(layer), err)
	}
	l := &finished{notes: file.index.Notes, entry: e}
	for i := range file.index.Matrices {
		m := &file.index.Matrices[i]
		l.matrices = append(l.matrices, finishedMatrix{m.Name, m.Shape, file.codes(m)})
	}
	return l, nil
}

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
