package calib

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/model/text"
)

// store keeps the codes of finished layers: in a directory, from which a job that was ended goes on, or in memory.
//
// The directory holds job.json, which says what job it is; text.json, the tokens; and a file for each finished layer. Each
// is written as a whole or not at all.
type store struct {
	dir     string // "": in memory
	key     string
	layers  map[int]*layerFile
	results map[string]rowReader
}

type rowReader interface {
	ReadRow(row int, codes []int8, scales []float32, zeros []int8) error
}

const (
	jobName  = "job.json"
	textName = "text.json"
	// ProbesName is what a work directory calls the alloc.Job.WorkFile of the same job.
	ProbesName = "probes.json"
)

var errNotOurs = errors.New("it is not a work directory of gq")

// openStore opens a work directory for the job with a key, the hash of all that its result depends on. What another job
// left there is removed.
func openStore(dir, key string) (*store, error) {
	s := &store{dir: dir, key: key, layers: map[int]*layerFile{}, results: map[string]rowReader{}}
	if dir == "" {
		return s, nil
	}
	raw, err := files.Read(filepath.Join(dir, jobName), files.MaxWork)
	var job struct {
		Key string `json:"key"`
	}
	if err == nil && json.Unmarshal(raw, &job) == nil && job.Key == key {
		return s, nil
	}
	if err := s.clear(false); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	job.Key = key
	raw, err = json.Marshal(job)
	if err != nil {
		return nil, err
	}
	return s, atomicfile.WriteFile(filepath.Join(dir, jobName), raw)
}

// RemoveWork removes a work directory, if it is there and what is in it is ours. Whatever reads it has to be closed.
func RemoveWork(dir string) error { return (&store{dir: dir}).clear(true) }

// clear removes what is in the directory, if all of it is ours: the layers, or all and the directory itself.
func (s *store) clear(all bool) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ours := []string{jobName, textName, ProbesName, "layer-*.codes", "." + jobName + "*", "." + textName + "*", "." + ProbesName + "*", ".layer-*"}
	for _, e := range entries {
		match := false
		for _, pattern := range ours {
			ok, _ := filepath.Match(pattern, e.Name())
			match = match || ok
		}
		if !match || e.IsDir() {
			return fmt.Errorf("%s: %w: %s is in it; move it away", s.dir, errNotOurs, e.Name())
		}
	}
	for _, e := range entries {
		if !all && (e.Name() == textName || e.Name() == ProbesName) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	if !all {
		return nil
	}
	return os.Remove(s.dir)
}

// close ends the reading.
func (s *store) close() {
	for _, l := range s.layers {
		l.file.Close()
	}
}

// KeptText gives the text that a work directory holds for a key, the hash of all that the text depends on, or has it made and
// keeps it: a model writes slowly. Without a directory it is made.
func KeptText(dir, key string, make func() (*text.Text, error)) (*text.Text, error) {
	if dir == "" {
		return make()
	}
	kept := struct {
		Key string
		*text.Text
	}{}
	path := filepath.Join(dir, textName)
	raw, err := files.Read(path, files.MaxWork)
	if err == nil && json.Unmarshal(raw, &kept) == nil && kept.Key == key && kept.Text != nil && len(kept.Sequences) > 0 {
		return kept.Text, nil
	}
	if kept.Text, err = make(); err != nil {
		return nil, err
	}
	kept.Key = key
	if raw, err = json.Marshal(kept); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return kept.Text, atomicfile.WriteFile(path, raw)
}

// layerFile is a finished layer: a JSON index, then the matrices.
type layerFile struct {
	file  *os.File
	base  int64
	index layerIndex
}

type layerIndex struct {
	Matrices []matrixIndex `json:"matrices"`
	Notes    layerNotes    `json:"notes"`
	Sum      uint32        `json:"sum"` // CRC32C of what follows
}

// layerNotes is what a job says of a layer.
type layerNotes struct {
	Unreached []string `json:"unreached,omitempty"` // matrices that no calibration token reached
	Kept      []string `json:"kept,omitempty"`      // matrices for which the search was no worse
	Dead      int      `json:"dead,omitempty"`      // columns that were always zero
}

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

var layerMagic = []byte("gqcodes1")

// put keeps a finished layer.
func (s *store) put(layer int, names []string, list []*codes, notes layerNotes) error {
	if s.dir == "" {
		for i, c := range list {
			s.results[names[i]] = c
		}
		return nil
	}
	index := layerIndex{Notes: notes}
	var data bytes.Buffer
	for i, c := range list {
		index.Matrices = append(index.Matrices, matrixIndex{names[i], c.rows, c.cols, c.groups, c.group, c.half, c.zeros != nil, int64(data.Len())})
		for _, q := range c.q {
			data.WriteByte(byte(q))
		}
		for _, v := range c.scales {
			data.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		for _, z := range c.zeros {
			data.WriteByte(byte(z))
		}
	}
	index.Sum = crc32.Checksum(data.Bytes(), castagnoli)
	head, err := json.Marshal(index)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(s.layerPath(layer))
	if err != nil {
		return err
	}
	defer f.Abort()
	start := append(append([]byte{}, layerMagic...), binary.LittleEndian.AppendUint64(nil, uint64(len(head)))...)
	start = append(start, head...)
	if _, err := f.WriteAt(start, 0); err != nil {
		return err
	}
	if _, err := f.WriteAt(data.Bytes(), int64(len(start))); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	_, err = s.get(layer)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *store) layerPath(layer int) string {
	return filepath.Join(s.dir, fmt.Sprintf("layer-%d.codes", layer))
}

// get opens a finished layer; nil if there is none that can be read.
func (s *store) get(layer int) (*layerFile, error) {
	if s.dir == "" || s.layers[layer] != nil {
		return s.layers[layer], nil
	}
	f, _, err := files.Open(s.layerPath(layer))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &layerFile{file: f}
	if !l.read() {
		f.Close()
		return nil, nil // it will be made again
	}
	s.layers[layer] = l
	for i := range l.index.Matrices {
		s.results[l.index.Matrices[i].Name] = &storedMatrix{l, &l.index.Matrices[i]}
	}
	return l, nil
}

func (l *layerFile) read() bool {
	start := make([]byte, len(layerMagic)+8)
	if _, err := io.ReadFull(l.file, start); err != nil || !bytes.Equal(start[:len(layerMagic)], layerMagic) {
		return false
	}
	n := binary.LittleEndian.Uint64(start[len(layerMagic):])
	if n > 64<<20 {
		return false
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(l.file, head); err != nil || json.Unmarshal(head, &l.index) != nil {
		return false
	}
	l.base = int64(len(start)) + int64(n)
	sum := crc32.New(castagnoli)
	_, err := io.Copy(sum, l.file)
	return err == nil && sum.Sum32() == l.index.Sum
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
	if _, err := s.l.file.ReadAt(b[:m.Cols], at+int64(row)*int64(m.Cols)); err != nil {
		return err
	}
	for i := range q {
		q[i] = int8(b[i])
	}
	at += int64(m.Rows) * int64(m.Cols)
	if _, err := s.l.file.ReadAt(b[:4*m.Groups], at+int64(row)*4*int64(m.Groups)); err != nil {
		return err
	}
	for i := range scales {
		scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	if zeros == nil {
		return nil
	}
	at += 4 * int64(m.Rows) * int64(m.Groups)
	if _, err := s.l.file.ReadAt(b[:m.Groups], at+int64(row)*int64(m.Groups)); err != nil {
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
