package gq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/pattern"
)

// DiffOptions are the options of Diff. The zero value is ready to use.
type DiffOptions struct {
	// Tensors is a pattern for the names of tensors to compare: a name, a module, a glob or "re:"
	// and a regular expression. Default (""): all.
	Tensors string
	// All lists equal tensors too. Default: those that differ.
	All bool
	// Lora names adapters that are merged into the checkpoint A, as in quantizer.Recipe. They have
	// to be the file's. Default: none.
	Lora []string
	// Threads is the number of goroutines. Default (0): GOMAXPROCS. No figure depends on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// DiffReport says how the tensors of B differ from the tensors of A.
type DiffReport struct {
	A string `json:"a"`
	B string `json:"b"`
	// Equal reports whether all tensors are equal. Metadata is not compared.
	Equal     bool `json:"equal"`
	Compared  int  `json:"compared"`  // tensors, including those that only one side has
	Differing int  `json:"differing"` // among these
	// Fold says how the checkpoint A was folded before the comparison, if B was made from the
	// folded checkpoint; else "".
	Fold    string       `json:"fold,omitempty"`
	Tensors []DiffTensor `json:"tensors"` // in the order of A, then those that only B has
}

// DiffTensor is a tensor of A and the tensor of B that shares one of its names.
type DiffTensor struct {
	Name string `json:"name"`
	// Equal reports whether scheme and payloads are equal.
	Equal bool `json:"equal"`
	// Differs names the differences: "scheme", "shape", "bytes", or "name" if only one side has the
	// tensor. If one side is a .gqf file and the other is not, "weights" stands for scheme and bytes.
	Differs []string  `json:"differs"`
	A       *DiffSide `json:"a,omitempty"` // nil: only B has the tensor
	B       *DiffSide `json:"b,omitempty"` // nil: only A has the tensor
	// SQNR compares B's weights with A's: null if they are equal. Nil if they cannot be compared;
	// Note says why.
	SQNR *accuracy.Decibels `json:"sqnr_db,omitempty"`
	Note string             `json:"note,omitempty"`
}

// DiffSide is a tensor as one side stores it.
type DiffSide struct {
	// Scheme is "4-bit g32 full-range bf16 search, lowbit 8x16x2", a type of ggml, or a dtype.
	Scheme string  `json:"scheme"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
}

// Diff compares the tensors of the file b with the tensors of a, which is another file or the
// checkpoint that b was made from. Files are .gqf or GGUF files, or checkpoints whose weights are
// quantized.
func Diff(ctx context.Context, a, b string, o DiffOptions) (*DiffReport, error) {
	s := stages{to: o.Progress}
	fromA, err := resolveSource(ctx, a, true, s)
	if err != nil {
		return nil, err
	}
	defer fromA.Release()
	fromB, err := resolveSource(ctx, b, true, s)
	if err != nil {
		return nil, err
	}
	defer fromB.Release()
	if err := checkOrder(fromA.Path, fromB.Path); err != nil {
		return nil, err
	}
	d := &differ{ctx: ctx, o: o, pathA: fromA.Path, words: map[string]string{}, r: &DiffReport{A: fromA.Name, B: fromB.Name, Tensors: []DiffTensor{}}, match: func(...string) bool { return true }}
	if o.Tensors != "" {
		p, err := pattern.Parse(o.Tensors)
		if err != nil {
			return nil, optionf("tensors", "%q: %w", o.Tensors, err)
		}
		d.match = p.MatchAny
	}
	err = withAdapters(ctx, fromA.Path, o.Lora, o.Threads, s, func(path string, merged *provenance.Provenance) error {
		d.pathA = path
		return withModel(ctx, fromB.Path, o.Threads, s, func(m readable) error {
			d.b = m
			return withModel(ctx, path, o.Threads, s, func(m readable) error { return d.compare(m, merged) })
		})
	})
	if e, ok := errors.AsType[*measure.NoTensorError](err); ok {
		d.names, err = e.Names, nil
	}
	if err == nil && d.r.Compared == 0 && o.Tensors != "" {
		err = optionf("tensors", "%q matches no tensor of %s or %s%s", o.Tensors, fromA.Name, fromB.Name, pattern.NoMatch(o.Tensors, d.names))
	}
	if err != nil {
		return nil, err
	}
	d.r.Equal = d.r.Differing == 0
	return d.r, nil
}

// compare compares A with B. A may have adapters merged.
func (d *differ) compare(a readable, merged *provenance.Provenance) error {
	kind, err := kindOf(a.path)
	if err == nil && merged != nil {
		err = checkAdapters(d.r.B, d.b, d.pathA, merged)
	}
	switch {
	case err != nil:
		return err
	case kind != files.GQF && a.view == nil:
		return d.checkpoint()
	}
	d.a = a
	return d.files()
}

type differ struct {
	ctx   context.Context
	o     DiffOptions
	match func(names ...string) bool
	names []string // of all tensors, if none is compared
	r     *DiffReport
	words map[string]string // schemes of sides: of many tensors few are different
	a, b  readable          // a is not set if A is an unquantized checkpoint
	pathA string            // the place of A on this machine
}

// add lists the differences of a tensor and adds it to the report.
func (d *differ) add(t DiffTensor, sameBytes bool) {
	t.Differs = []string{}
	switch a, b := t.A, t.B; {
	case a == nil || b == nil:
		t.Differs = append(t.Differs, "name")
	case (d.a.imported == nil) != (d.b.imported == nil):
		if !slices.Equal(a.Shape, b.Shape) {
			t.Differs = append(t.Differs, "shape")
		} else if t.SQNR == nil || !t.SQNR.Exact() {
			t.Differs = append(t.Differs, "weights")
		}
	default:
		if a.Scheme != b.Scheme {
			t.Differs = append(t.Differs, "scheme")
		}
		if !slices.Equal(a.Shape, b.Shape) {
			t.Differs = append(t.Differs, "shape")
		}
		if !sameBytes {
			t.Differs = append(t.Differs, "bytes")
		}
	}
	t.Equal = len(t.Differs) == 0
	d.r.Compared++
	if !t.Equal {
		d.r.Differing++
	}
	if d.o.All || !t.Equal {
		d.r.Tensors = append(d.r.Tensors, t)
	}
}

// sideOf describes a tensor of a .gqf file, or of the file or checkpoint that it was made from.
func (d *differ) sideOf(row *gqf.TensorRow, im *measure.Imported) *DiffSide {
	if im != nil {
		t := im.Tensors[row.Name]
		return &DiffSide{Scheme: t.Type, Shape: row.Shape, Bytes: t.Bytes}
	}
	s := row.Dtype
	if row.Quantized {
		group := fmt.Sprintf("g%d", row.Group)
		if row.Group == 0 {
			group = "channel"
		}
		s = fmt.Sprintf("%d-bit %s %s %s %s, %s %s", row.Bits, group, row.Mapping, row.ScaleDtype, row.Algorithm, row.Layout, row.Tile)
		for _, v := range row.Variants[min(1, len(row.Variants)):] {
			s += fmt.Sprintf(" and %s %s", v.Layout, v.Tile)
		}
	}
	if _, ok := d.words[s]; !ok {
		d.words[s] = s
	}
	return &DiffSide{Scheme: d.words[s], Shape: row.Shape, Bytes: row.Bytes}
}

func (d *differ) files() error {
	b, err := d.b.open()
	if err != nil {
		return err
	}
	defer b.Close()
	a, err := d.a.open()
	if err != nil {
		return err
	}
	defer a.Close()
	side := func(f *gqf.File, i int, im *measure.Imported) *DiffSide {
		row := f.Tensor(i).Row()
		return d.sideOf(&row, im)
	}
	pairs, onlyA, onlyB := d.pair(a, b)
	if len(pairs)+len(onlyA)+len(onlyB) == 0 {
		for _, f := range []*gqf.File{a, b} {
			for n := range f.AllNames() {
				d.names = append(d.names, n.Name)
			}
		}
	}
	list := make([]measure.Pair, len(pairs))
	total := int64(0)
	for i, p := range pairs {
		list[i] = measure.Pair{A: p.a, B: p.b}
		total += a.Tensor(p.a).Elements()
	}
	add, end := stages{to: d.o.Progress}.begin("comparing tensors", "weights", total)
	distances, err := measure.Between(d.ctx, a, b, list, measure.BetweenOptions{Threads: d.o.Threads, Progress: add})
	end()
	if err != nil {
		return err
	}
	d.r.Tensors = make([]DiffTensor, 0, len(pairs)+len(onlyA)+len(onlyB))
	for i, p := range pairs {
		distance := &distances[i]
		t := DiffTensor{Name: p.name, A: side(a, p.a, d.a.imported), B: side(b, p.b, d.b.imported), Note: distance.Incomparable}
		if t.Note == "" {
			t.SQNR = &distance.SQNR
		}
		d.add(t, distance.Equal)
	}
	for _, p := range onlyA {
		d.add(DiffTensor{Name: p.name, A: side(a, p.a, d.a.imported)}, false)
	}
	for _, p := range onlyB {
		d.add(DiffTensor{Name: p.name, B: side(b, p.b, d.b.imported)}, false)
	}
	return nil
}

// namedPair holds the indices of two tensors, one of each side, that have a name in common.
type namedPair struct {
	name string
	a, b int
}

// pair finds the tensors with common names. If one side stores a tensor once under several names
// and the other side stores it several times, the tensor is in several pairs.
func (d *differ) pair(a, b *gqf.File) (both, onlyA, onlyB []namedPair) {
	seen := map[[2]int]bool{}
	for i := range a.Len() {
		t := a.Tensor(i)
		for _, name := range t.Names() {
			other, ok := b.Lookup(name)
			switch {
			case !d.match(name):
			case !ok:
				onlyA = append(onlyA, namedPair{name, i, -1})
			case !seen[[2]int{i, other.Index}]:
				seen[[2]int{i, other.Index}] = true
				both = append(both, namedPair{name, i, other.Index})
			}
		}
	}
	for i := range b.Len() {
		t := b.Tensor(i)
		for _, name := range t.Names() {
			if _, ok := a.Lookup(name); !ok && d.match(name) {
				onlyB = append(onlyB, namedPair{name, -1, i})
			}
		}
	}
	return both, onlyA, onlyB
}

// checkpoint compares a .gqf file with the checkpoint that it was made from. The job opens both
// sides itself. To hold the names of each side once, checkpoint opens the sides after the job.
func (d *differ) checkpoint() error {
	job := &measure.Job{Settings: accuracy.Settings{NoOutputs: true, Threads: d.o.Threads}, Source: d.pathA, SourceName: d.r.A, File: d.b.path, View: d.b.view, Name: d.r.B, Stage: stages{to: d.o.Progress}.begin, Imported: d.b.imported}
	job.Match = func(name string) bool { return d.match(name) }
	measured, err := job.Run(d.ctx)
	if err != nil {
		return err
	}
	d.r.Fold = measured.Fold
	f, err := d.b.open()
	if err != nil {
		return err
	}
	defer f.Close()
	// From here on the figures need neither the job's copy of the names nor the histograms.
	next := 0
	for i := range f.Len() {
		name := f.Tensor(i).Name
		for ; next < len(measured.Tensors) && measured.Tensors[next].Name == name; next++ {
			measured.Tensors[next].Name, measured.Tensors[next].Errors = name, accuracy.ErrorHistogram{}
		}
	}
	ck, err := safetensors.Open(d.pathA, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	sourceBytes := make([]int64, f.Len())
	for n := range f.AllNames() {
		sourceBytes[n.Tensor] += n.SourceBytes
	}
	rest := measured.Tensors // in the order of the file
	for i := range f.Len() {
		row := f.Tensor(i).Row()
		n := 0
		for n < len(rest) && rest[n].Name == row.Name {
			n++
		}
		stats := rest[:n]
		rest = rest[n:]
		first := slices.IndexFunc(stats, func(s accuracy.TensorStats) bool { return s.Variant == 0 })
		if first < 0 {
			continue
		}
		s := &stats[first]
		t := DiffTensor{Name: row.Name, B: d.sideOf(&row, d.b.imported), A: &DiffSide{Scheme: row.Dtype, Shape: row.Shape, Bytes: sourceBytes[i]}, Note: s.Difference}
		for _, name := range f.Tensor(i).Names() {
			if src, ok := ck.Lookup(name); ok {
				t.A = &DiffSide{Scheme: src.DtypeName, Shape: src.Shape, Bytes: src.Size}
				break
			}
		}
		sqnr := s.SQNR
		if !s.Unquantized {
			var all accuracy.Totals
			all.SumUp(stats)
			sqnr = all.SQNR
		}
		t.SQNR = &sqnr
		d.add(t, s.Unquantized && s.Equal)
	}
	for _, src := range ck.Tensors() {
		if _, ok := f.FindName(src.Name); !ok && d.match(src.Name) {
			d.add(DiffTensor{Name: src.Name, A: &DiffSide{Scheme: src.DtypeName, Shape: src.Shape, Bytes: src.Size}}, false)
		}
	}
	return nil
}

// String describes the result in a line: "a.gqf and b.gqf differ in 3 of 57 tensors".
func (r *DiffReport) String() string {
	if r.Equal {
		return fmt.Sprintf("%s and %s: %d tensors, all equal", r.A, r.B, r.Compared)
	}
	return fmt.Sprintf("%s and %s differ in %d of %d tensors", r.A, r.B, r.Differing, r.Compared)
}
