package calib

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/lowbit-go/gq/quantizer/workdir"
)

// store keeps the codes of finished layers: in a working directory, from which an interrupted job resumes, or in memory.
type store struct {
	work    *workdir.Dir // nil: in memory
	key     string
	layers  map[int]*layerFile
	results map[string]rowReader
}

type rowReader interface {
	ReadRow(row int, codes []int8, scales []float32, zeros []int8) error
}

// layerPrefix begins the names of the entries of layers.
const layerPrefix = "layer-"

func layerName(layer int) string { return fmt.Sprint(layerPrefix, layer) }

// openStore opens the store of the job with a key. The layers of other jobs are removed from the directory.
func openStore(work *workdir.Dir, key string) (*store, error) {
	s := &store{work: work, key: key, layers: map[int]*layerFile{}, results: map[string]rowReader{}}
	if work == nil {
		return s, nil
	}
	return s, work.Prune(layerPrefix, key)
}

// close ends the reading.
func (s *store) close() {
	for _, l := range s.layers {
		l.entry.Close()
	}
	s.layers = nil
}

// layerFile is the entry of a finished layer: the length of an index, the index as JSON, then the matrices.
type layerFile struct {
	entry *workdir.Entry
	base  int64 // of the matrices
	index layerIndex
}

type layerIndex struct {
	Matrices []matrixIndex `json:"matrices"`
	Notes    layerNotes    `json:"notes"`
}

// layerNotes is what a job says of a layer.
type layerNotes struct {
	Unreached []string `json:"unreached,omitempty"` // matrices that no calibration token reached
	Kept      []string `json:"kept,omitempty"`      // matrices for which the search was no worse
	Dead      int      `json:"dead,omitempty"`      // columns that were always zero
}

// matrixIndex is a matrix of a layer. Its codes lie at Offset, row by row, a byte each; its scales follow, and its zero
// points.
type matrixIndex struct {
	Name   string  `json:"name"`
	Rows   int     `json:"rows"`
	Cols   int     `json:"cols"`
	Groups int     `json:"groups"`
	Group  int     `json:"group"`
	Half   float32 `json:"half,omitempty"`
	Zeros  bool    `json:"zeros,omitempty"`
	Offset int64   `json:"offset"`
}

// size is how many bytes the matrix takes.
func (m *matrixIndex) size() int64 {
	n := int64(m.Rows) * (int64(m.Cols) + 4*int64(m.Groups))
	if m.Zeros {
		n += int64(m.Rows) * int64(m.Groups)
	}
	return n
}

// put keeps a finished layer.
func (s *store) put(layer int, names []string, list []*codes, notes layerNotes) error {
	if s.work == nil {
		for i, c := range list {
			s.results[names[i]] = c
		}
		return nil
	}
	index := layerIndex{Notes: notes}
	size := int64(0)
	for i, c := range list {
		m := matrixIndex{names[i], c.rows, c.cols, c.groups, c.group, c.half, c.zeros != nil, size}
		index.Matrices = append(index.Matrices, m)
		size += m.size()
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
			c.write(b)
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

// write writes codes, scales and zero points.
func (c *codes) write(b *bufio.Writer) {
	for _, q := range c.q {
		_ = b.WriteByte(byte(q))
	}
	for _, v := range c.scales {
		_, _ = b.Write(binary.LittleEndian.AppendUint32(b.AvailableBuffer(), math.Float32bits(v)))
	}
	for _, z := range c.zeros {
		_ = b.WriteByte(byte(z))
	}
}

// get opens a finished layer; nil if there is none that is whole.
func (s *store) get(layer int) (*layerFile, error) {
	if s.work == nil || s.layers[layer] != nil {
		return s.layers[layer], nil
	}
	e := s.work.Get(layerName(layer), s.key)
	if e == nil {
		return nil, nil
	}
	l := &layerFile{entry: e}
	if err := l.read(); err != nil { // it is of this job and whole
		e.Close()
		return nil, fmt.Errorf("%s: %s: %w", s.work.Path(), layerName(layer), err)
	}
	s.layers[layer] = l
	for i := range l.index.Matrices {
		s.results[l.index.Matrices[i].Name] = &storedMatrix{l, &l.index.Matrices[i]}
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

// storedMatrix reads a matrix of a layer's file.
type storedMatrix struct {
	l *layerFile
	m *matrixIndex
}

func (s *storedMatrix) ReadRow(row int, q []int8, scales []float32, zeros []int8) error {
	m := s.m
	b := make([]byte, max(m.Cols, 4*m.Groups))
	at := s.l.base + m.Offset
	if _, err := s.l.entry.ReadAt(b[:m.Cols], at+int64(row)*int64(m.Cols)); err != nil {
		return err
	}
	for i := range q {
		q[i] = int8(b[i])
	}
	at += int64(m.Rows) * int64(m.Cols)
	if _, err := s.l.entry.ReadAt(b[:4*m.Groups], at+int64(row)*4*int64(m.Groups)); err != nil {
		return err
	}
	for i := range scales {
		scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	if zeros == nil {
		return nil
	}
	at += 4 * int64(m.Rows) * int64(m.Groups)
	if _, err := s.l.entry.ReadAt(b[:m.Groups], at+int64(row)*int64(m.Groups)); err != nil {
		return err
	}
	for i := range zeros {
		zeros[i] = int8(b[i])
	}
	return nil
}

// load reads a whole matrix.
func (s *storedMatrix) load() (*codes, error) {
	m := s.m
	c := &codes{rows: m.Rows, cols: m.Cols, groups: m.Groups, group: m.Group, half: m.Half, q: make([]int8, m.Rows*m.Cols), scales: make([]float32, m.Rows*m.Groups)}
	if m.Zeros {
		c.zeros = make([]int8, m.Rows*m.Groups)
	}
	for r := range m.Rows {
		var zeros []int8
		if m.Zeros {
			zeros = c.zeros[r*m.Groups:][:m.Groups]
		}
		if err := s.ReadRow(r, c.q[r*m.Cols:][:m.Cols], c.scales[r*m.Groups:][:m.Groups], zeros); err != nil {
			return nil, err
		}
	}
	return c, nil
}
