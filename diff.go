package gq

import (
	"context"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/pattern"
)

// DiffOptions are the options of Diff. The zero value is ready to use.
type DiffOptions struct {
	// Tensors is a pattern for the names of tensors to compare: a name, a module, a glob or "re:"
	// and a regular expression. Default (""): all.
	Tensors string
	// All lists equal tensors too. Default: those that differ.
	All bool
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
	Scheme string  `json:"scheme"` // "4-bit g32 full-range bf16 search, lowbit 8x16x2", a type of ggml, or a dtype
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
}

// Diff compares the tensors of the file b with the tensors of a, which is another file or the
// checkpoint that b was made from. Files are .gqf or GGUF files, or checkpoints whose weights are
// quantized.
func Diff(ctx context.Context, a, b string, o DiffOptions) (*DiffReport, error) {
	if o.Threads < 0 {
		return nil, optionf("threads", "%d: at least 1", o.Threads)
	}
	s := stages{to: o.Progress}
	fromA, err := resolveSource(ctx, a, true, s)
	if err != nil {
		return nil, err
	}
	defer fromA.release()
	fromB, err := resolveSource(ctx, b, true, s)
	if err != nil {
		return nil, err
	}
	defer fromB.release()
	if err := checkOrder(fromA.Path, fromB.Path); err != nil {
		return nil, err
	}
	d := &differ{ctx: ctx, o: o, pathA: fromA.Path, r: &DiffReport{A: fromA.Name, B: fromB.Name, Tensors: []DiffTensor{}}, match: func(...string) bool { return true }}
	if o.Tensors != "" {
		p, err := pattern.Parse(o.Tensors)
		if err != nil {
			return nil, optionf("tensors", "%q: %w", o.Tensors, err)
		}
		d.match = p.MatchAny
	}
	err = withGQF(ctx, fromB.Path, o.Threads, s, func(temp string, im *accuracy.Imported) error {
		f, err := gqf.Open(temp, gqf.Options{})
		if err != nil {
			return err
		}
		defer f.Close()
		d.fileB, d.importedB = temp, im
		return withGQF(ctx, fromA.Path, o.Threads, s, func(temp string, im *accuracy.Imported) error {
			switch kind, err := kindOf(temp); {
			case err != nil:
				return err
			case kind != files.GQF:
				return d.checkpoint(f)
			}
			d.importedA = im
			return d.files(temp, f)
		})
	})
	if err == nil && d.r.Compared == 0 && o.Tensors != "" {
		err = optionf("tensors", "%q matches no tensor of %s or %s", o.Tensors, fromA.Name, fromB.Name)
	}
	if err != nil {
		return nil, err
	}
	d.r.Equal = d.r.Differing == 0
	return d.r, nil
}

// differ is a running Diff.
type differ struct {
	ctx   context.Context
	o     DiffOptions
	match func(names ...string) bool
	r     *DiffReport
	// importedA and importedB describe the sides that are no .gqf files. fileB is the .gqf file of B, and
	// pathA the place of A on this machine.
	importedA, importedB *accuracy.Imported
	pathA, fileB         string
}

// add lists the differences of a tensor and adds it to the report.
func (d *differ) add(t DiffTensor, sameBytes bool) {
	t.Differs = []string{}
	switch a, b := t.A, t.B; {
	case a == nil || b == nil:
		t.Differs = append(t.Differs, "name")
	case (d.importedA == nil) != (d.importedB == nil):
		if !slices.Equal(a.Shape, b.Shape) {
			t.Differs = append(t.Differs, "shape")
		} else if t.SQNR == nil || *t.SQNR != accuracy.Exact {
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
func sideOf(row *gqf.TensorRow, im *accuracy.Imported) *DiffSide {
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
	return &DiffSide{Scheme: s, Shape: row.Shape, Bytes: row.Bytes}
}

// files compares two .gqf files.
func (d *differ) files(fileA string, b *gqf.File) error {
	a, err := gqf.Open(fileA, gqf.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	rowsA, err := gqf.Inspect(a)
	if err != nil {
		return err
	}
	rowsB, err := gqf.Inspect(b)
	if err != nil {
		return err
	}
	pairs, onlyA, onlyB := d.pair(a, b)
	list := make([]accuracy.Pair, len(pairs))
	total := int64(0)
	for i, p := range pairs {
		list[i] = accuracy.Pair{A: a.Tensor(p.a), B: b.Tensor(p.b)}
		total += list[i].A.Elements()
	}
	add, end := stages{to: d.o.Progress}.begin("comparing tensors", "weights", total)
	distances, err := accuracy.Between(d.ctx, a, b, list, accuracy.BetweenOptions{Threads: d.o.Threads, Progress: add})
	end()
	if err != nil {
		return err
	}
	for i, p := range pairs {
		distance := &distances[i]
		t := DiffTensor{Name: p.name, A: sideOf(&rowsA.Tensors[p.a], d.importedA), B: sideOf(&rowsB.Tensors[p.b], d.importedB), Note: distance.Incomparable}
		if t.Note == "" {
			t.SQNR = &distance.SQNR
		}
		d.add(t, distance.Equal)
	}
	for _, p := range onlyA {
		d.add(DiffTensor{Name: p.name, A: sideOf(&rowsA.Tensors[p.a], d.importedA)}, false)
	}
	for _, p := range onlyB {
		d.add(DiffTensor{Name: p.name, B: sideOf(&rowsB.Tensors[p.b], d.importedB)}, false)
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

// checkpoint compares a .gqf file with the checkpoint that it was made from.
func (d *differ) checkpoint(f *gqf.File) error {
	ck, err := safetensors.Open(d.pathA, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	rows, err := gqf.Inspect(f)
	if err != nil {
		return err
	}
	job := &accuracy.Job{Source: d.pathA, SourceName: d.r.A, File: d.fileB, Name: d.r.B, NoOutputs: true, Threads: d.o.Threads, Stage: stages{to: d.o.Progress}.begin, Imported: d.importedB}
	job.Match = func(name string) bool { return d.match(name) }
	measured, err := job.Run(d.ctx)
	if err != nil {
		return err
	}
	d.r.Fold = measured.Fold
	byName := map[string][]accuracy.TensorStats{} // the slices of the first variant
	for _, s := range measured.Tensors {
		if s.Variant == 0 {
			byName[s.Name] = append(byName[s.Name], s)
		}
	}
	known := map[string]bool{}
	for n := range f.AllNames() {
		known[n.Name] = true
	}
	for i := range rows.Tensors {
		row := &rows.Tensors[i]
		stats := byName[row.Name]
		if stats == nil {
			continue
		}
		t := DiffTensor{Name: row.Name, B: sideOf(row, d.importedB), A: &DiffSide{Scheme: row.Dtype, Shape: row.Shape, Bytes: row.SourceBytes}, Note: stats[0].Difference}
		for _, name := range append([]string{row.Name}, row.SharedWith...) {
			if src, ok := ck.Lookup(name); ok {
				t.A = &DiffSide{Scheme: src.DtypeName, Shape: src.Shape, Bytes: src.Size}
				break
			}
		}
		sqnr := stats[0].SQNR
		if !stats[0].Unquantized {
			sqnr = accuracy.SumUp(stats).SQNR
		}
		t.SQNR = &sqnr
		d.add(t, stats[0].Unquantized && stats[0].Equal)
	}
	for _, src := range ck.Tensors() {
		if !known[src.Name] && d.match(src.Name) {
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
