package calib

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
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

// finished is a finished layer: the index of an entry with the codes of the matrices.
type finished struct {
	Matrices []finishedMatrix `json:"matrices"`
	Notes    layerNotes       `json:"notes"`
	entry    *workdir.Entry
}

// finishedMatrix is a matrix of a layer, with the codes at Offset.
type finishedMatrix struct {
	Name string `json:"name"`
	rounding.Shape
	Offset int64 `json:"offset"`
	rows   *rounding.StoredCodes
}

// layerNotes are a job's remarks on a layer.
type layerNotes struct {
	Unreached []string `json:"unreached,omitempty"` // matrices that no calibration token reached
	Searched  []string `json:"searched,omitempty"`  // matrices for which the search was no worse
	Dead      int      `json:"dead,omitempty"`      // columns that were always zero
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
		l.entry.Close()
	}
	s.layers = nil
}

func (s *store) put(layer int, names []string, list []*rounding.Codes, notes layerNotes) error {
	if s.work == nil {
		for i, c := range list {
			s.results[names[i]] = c
		}
		return nil
	}
	index := finished{Notes: notes}
	size := int64(0)
	for i, c := range list {
		index.Matrices = append(index.Matrices, finishedMatrix{Name: names[i], Shape: c.Shape, Offset: size})
		size += c.Bytes()
	}
	err := s.work.PutIndexed(layerName(layer), s.key, index, size, func(w io.Writer) error {
		b := bufio.NewWriter(w) // which keeps the first error for Flush
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
	e := s.work.Get(layerName(layer), s.key)
	if e == nil {
		return nil, nil
	}
	l := &finished{entry: e}
	base, err := e.Index(l)
	if err != nil { // although the entry is of this job and whole
		e.Close()
		return nil, fmt.Errorf("%s: %s: %w", s.work.Path(), layerName(layer), err)
	}
	for i := range l.Matrices {
		m := &l.Matrices[i]
		m.rows = &rounding.StoredCodes{Shape: m.Shape, At: base + m.Offset, File: e}
		s.results[m.Name] = m.rows
	}
	s.layers[layer] = l
	return l, nil
}

// resumed opens the finished layers and reports how many an interrupted job has left.
func (j *job) resumed(layers int) (found int, err error) {
	for layer := range layers {
		l, err := j.store.get(layer)
		if err != nil {
			return 0, err
		}
		if l != nil {
			found++
		}
	}
	if found > 0 && j.Resumed != nil {
		j.Resumed(found, layers)
	}
	return found, nil
}

// resume moves the streams past a finished layer.
func (j *job) resume(layer int, l *finished) error {
	for _, m := range l.Matrices {
		c, err := rounding.LoadCodes(m.Shape, m.rows.ReadRow)
		if err != nil {
			return err
		}
		undo, err := j.replace(m.Name, c)
		if err != nil {
			return err
		}
		defer undo()
	}
	for block := range j.quants.Blocks(layer) {
		if err := j.advance(layer, block); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) info() provenance.Calibration {
	c := provenance.Calibration{Source: j.text.Source, SHA256: j.text.SHA256, Tokens: j.text.Tokens(), Sequences: len(j.text.Sequences), Seed: j.text.Seed, Written: j.text.Written, Parameters: map[string]any{},
		SequencesSHA256: j.text.Hash(), Version: version}
	var names []string
	for _, m := range j.matrices {
		if name := m.Scheme.Algorithm.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	c.Algorithm = strings.Join(names, ", ")
	c.Parameters["damping"] = "max(.01, .5 K/n)"
	c.Parameters["refine"] = j.Refine
	if slices.Contains(names, gqf.AlgorithmGPTQFT.String()) {
		for _, name := range []string{"follow-inputs", "follow-residual"} {
			c.Parameters[name] = "1/2 + log2(min(n/8192, n/12K))/4, 1/2 to 1"
		}
	}
	return c
}

// version is recorded in files and changes whenever the codes change.
const version = 11

const unreached = "no calibration token reached it: quantized by search"

// warn warns of matrices, if there are any.
func warn(warnings *[]string, names []string, why string) {
	switch n := len(names); {
	case n == 1:
		*warnings = append(*warnings, fmt.Sprintf("%q: %s", names[0], why))
	case n > 1:
		*warnings = append(*warnings, fmt.Sprintf("%q and %d more: %s", names[0], n-1, why))
	}
}
