package fromcheckpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/lattice"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// surveyedTensors is of how many tensors a plan samples rows.
const surveyedTensors = 64

// warnOfLattices names lattices that the schemes of the plan lose. It samples a few rows of a few
// tensors.
func (in *Input) warnOfLattices(pl *plan.Planner) error {
	var list []*plan.Quantized
	for it := range pl.Quantized() {
		list = append(list, it)
	}
	type finding struct {
		text  string
		names []string
	}
	var findings []*finding
	surveyed := min(len(list), surveyedTensors)
	ahead := in.Ck.ReadAhead(in.Ck.Context(), surveyed, func(i int, ranges []safetensors.Range) []safetensors.Range {
		return in.sampleRanges(ranges, list[i*len(list)/surveyed])
	})
	defer ahead.Close()
	for i := range surveyed {
		it := list[i*len(list)/surveyed]
		if err := ahead.Wait(i); err != nil {
			return err
		}
		text := in.lostLattice(it)
		ahead.Done(i)
		if text == "" {
			continue
		}
		at := slices.IndexFunc(findings, func(f *finding) bool { return f.text == text })
		if at < 0 {
			at, findings = len(findings), append(findings, &finding{text: text})
		}
		findings[at].names = append(findings[at].names, it.Src.Name)
	}
	slices.SortStableFunc(findings, func(a, b *finding) int { return cmp.Compare(len(b.names), len(a.names)) })
	for _, f := range findings {
		more := ""
		if n := len(f.names) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more of %d sampled tensors", n, surveyed)
		}
		pl.Warn("%s (%q%s)", f.text, f.names[0], more)
	}
	return nil
}

// sampleRanges appends the ranges of the rows of a tensor that lostLattice reads.
func (in *Input) sampleRanges(list []safetensors.Range, it *plan.Quantized) []safetensors.Range {
	if !in.sampled(it) {
		return list
	}
	all := int(int64(it.Slices) * it.Rows)
	for i := range min(lattice.LatticeRows, all) {
		list = append(list, it.Src.Range(int64(lattice.SampledRow(i, min(lattice.LatticeRows, all), all))*it.RowBytes(), it.RowBytes()))
	}
	return list
}

// sampled reports whether lattices are looked for in a tensor. The rows of a transposed tensor that
// is elsewhere are too far apart.
func (in *Input) sampled(it *plan.Quantized) bool {
	return it.Src.Precision() != packing.ScaleNone && !(it.Transposed && in.Ck.Remote())
}

// lostLattice says which lattice of a tensor its scheme loses, and what to do; "" if none.
func (in *Input) lostLattice(it *plan.Quantized) string {
	if !in.sampled(it) {
		return ""
	}
	ck, src := in.Ck, *it.Src
	o := in.opts.Origin
	if o != nil {
		t, ok := o.Checkpoint.Lookup(src.Name)
		if !ok {
			return ""
		}
		ck, src = o.Checkpoint, t
	}
	w, err := ck.Weights(src, safetensors.WeightsOptions{Block: in.scaleBlock, Transposed: it.Transposed})
	if err != nil {
		return "" // the writing of the file says so
	}
	l, err := lattice.FindLattice(w, lattice.LatticeRows)
	if err != nil || l == nil {
		return ""
	}
	if o != nil {
		return fmt.Sprintf("this checkpoint was trained for %s, and folding its weights loses the codes: leave out rotations, factors and awq to keep them", l)
	}
	rows := make([][]float32, min(lattice.LatticeRows, w.Slices*w.Rows))
	for i := range rows {
		rows[i] = make([]float32, w.Cols)
		if w.Read(rows[i], lattice.SampledRow(i, len(rows), w.Slices*w.Rows), 1) != nil {
			return ""
		}
	}
	if l.KeptBy(it.Scheme, it.Smallest, src.Precision(), rows) {
		return ""
	}
	if in.opts.Recipe.ForGGUF() {
		const bits = 2
		t, _ := rounding.BlockType(bits, rounding.MappingTernary)
		if s, _ := rounding.BlockScheme(t, it.Scheme.Algorithm); l.KeptBy(s, it.Smallest, src.Precision(), rows) {
			return fmt.Sprintf("this checkpoint's weights are ternary: use --bits %d --mapping %s (%s) to keep them exactly", bits, s.Mapping, t)
		}
	}
	return fmt.Sprintf("this checkpoint was trained for %s: use %s to keep its codes exactly", l, l.Flags(it.Role, it.Scheme))
}
