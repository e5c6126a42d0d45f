package conversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Lattice is the scheme of a tensor whose weights are codes times scales already, rounded to the
// checkpoint's dtype: of a model that was trained with quantized weights, or dequantized.
type Lattice struct {
	rounding.TrainedScheme
	// ScaleDtype is bf16 or f16 if it holds nearly all scales, else f32.
	ScaleDtype packing.ScaleDtype `json:"scale_dtype"`
}

// String names the scheme: "4 bits, group 32".
func (l *Lattice) String() string {
	s := fmt.Sprintf("%d bits, group %d", l.Bits, l.Group)
	if l.Bits == 1 {
		s = strings.Replace(s, "bits", "bit", 1)
	}
	if l.Group == 0 {
		s = strings.Replace(s, "group 0", "per channel", 1)
	}
	if l.Mapping != gqf.MappingFullRange {
		s += ", " + l.Mapping.String()
	}
	return s
}

// FindLattice looks for the lattice of a tensor in up to sample rows, or in all with 0. It returns nil
// if there is none, and for dtypes whose numbers are not rounded products.
func FindLattice(w *safetensors.Weights, sample int) (*Lattice, error) {
	precision, all := w.Tensor.Precision(), w.Slices*w.Rows
	if precision == packing.ScaleNone || w.Cols < 16 || len(w.Tensor.Shape) < 2 {
		return nil, nil
	}
	survey := rounding.NewLatticeSurvey(precision, w.Cols)
	plausible, n := sample == 0, all
	if sample > 0 {
		n = min(sample, all)
	}
	var kept [][]float32 // rows for the dtype of the scales
	row := make([]float32, w.Cols)
	for i := range n {
		if err := w.Read(row, sampledRow(i, n, all), 1); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(row, func(v float32) bool { return !floats.Finite(v) }) {
			continue
		}
		if plausible = plausible || survey.Plausible(row); plausible {
			survey.Add(row)
		}
		if i%(n/min(n, latticeRows)) == 0 && len(kept) < latticeRows {
			kept = append(kept, slices.Clone(row))
		}
	}
	t, ok := survey.Result()
	if !ok {
		return nil, nil
	}
	l := &Lattice{TrainedScheme: t, ScaleDtype: packing.ScaleF32}
	for _, d := range []packing.ScaleDtype{packing.ScaleF16, packing.ScaleBF16} {
		scheme := rounding.Scheme{Bits: t.Bits, Group: t.Group, Mapping: t.Mapping, ScaleDtype: d}
		if l.keptBy(scheme, d.Smallest(), precision, kept) {
			l.ScaleDtype = d
		}
	}
	return l, nil
}

// latticeRows is how many rows are sampled of a tensor.
const latticeRows = 4

// sampledRow is sample i of n among all rows.
func sampledRow(i, n, all int) int { return (2*i + 1) * all / (2 * n) }

// keptBy reports whether a scheme recovers nearly all groups of rows that are on the lattice.
func (l *Lattice) keptBy(s rounding.Scheme, smallest float32, precision packing.ScaleDtype, rows [][]float32) bool {
	s.Algorithm = gqf.AlgorithmRTN
	if s.Type != 0 || len(rows) == 0 {
		return false
	}
	q, err := rounding.NewRounder(s, len(rows[0]))
	if err != nil {
		return false
	}
	q.LimitScales(smallest)
	q.Recover(precision)
	kept, groups, width := 0, 0, s.GroupWidth(len(rows[0]))
	y := make([]float32, len(rows[0]))
	for _, x := range rows {
		if q.Round(y, x) != nil {
			return false
		}
		for g := range s.Groups(len(x)) {
			if q.Recovered(g) {
				kept, groups = kept+1, groups+1
			} else if slices.ContainsFunc(x[g*width:min(len(x), (g+1)*width)], func(v float32) bool { return v != 0 }) {
				groups++
			}
		}
	}
	return float64(kept)*float64(l.Groups) >= 0.9*float64(l.Exact)*float64(groups)
}

// flags are the command's flags that give a tensor the lattice's scheme, instead of s.
func (l *Lattice) flags(role gqf.Role, s rounding.Scheme) string {
	of := ""
	if role == gqf.RoleEmbedding {
		of = "embedding-"
	}
	group := "channel"
	if l.Group != 0 {
		group = fmt.Sprint(l.Group)
	}
	list := fmt.Sprintf("--%sbits %d --%sgroup %s", of, l.Bits, of, group)
	// Zero points hold lattices without them.
	if l.Mapping != s.Mapping && !(l.Mapping == gqf.MappingFullRange && s.Mapping == gqf.MappingAsymmetric) {
		list += " --mapping " + l.Mapping.String()
	}
	if l.ScaleDtype != s.ScaleDtype && s.ScaleDtype != packing.ScaleF32 {
		list += " --scale-dtype " + l.ScaleDtype.String()
	}
	return list
}

// surveyedTensors is of how many tensors a plan samples rows.
const surveyedTensors = 64

// warnOfLattices names lattices that the schemes of the plan lose. It samples a few rows of a few
// tensors.
func (pl *planner) warnOfLattices() error {
	var list []*quantized
	for it := range pl.quantized() {
		list = append(list, it)
	}
	type finding struct {
		text  string
		names []string
	}
	var findings []*finding
	surveyed := min(len(list), surveyedTensors)
	ahead := pl.ck.ReadAhead(pl.ck.Context(), surveyed, func(i int, ranges []safetensors.Range) []safetensors.Range {
		return pl.sampleRanges(ranges, list[i*len(list)/surveyed])
	})
	defer ahead.Close()
	for i := range surveyed {
		it := list[i*len(list)/surveyed]
		if err := ahead.Wait(i); err != nil {
			return err
		}
		text := pl.lostLattice(it)
		ahead.Done(i)
		if text == "" {
			continue
		}
		at := slices.IndexFunc(findings, func(f *finding) bool { return f.text == text })
		if at < 0 {
			at, findings = len(findings), append(findings, &finding{text: text})
		}
		findings[at].names = append(findings[at].names, it.src.Name)
	}
	slices.SortStableFunc(findings, func(a, b *finding) int { return cmp.Compare(len(b.names), len(a.names)) })
	for _, f := range findings {
		more := ""
		if n := len(f.names) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more of %d sampled tensors", n, surveyed)
		}
		pl.warn("%s (%q%s)", f.text, f.names[0], more)
	}
	return nil
}

// sampleRanges appends the ranges of the rows of a tensor that lostLattice reads.
func (pl *planner) sampleRanges(list []safetensors.Range, it *quantized) []safetensors.Range {
	if !pl.sampled(it) {
		return list
	}
	all := int(int64(it.slices) * it.rows)
	for i := range min(latticeRows, all) {
		list = append(list, it.src.Range(int64(sampledRow(i, min(latticeRows, all), all))*it.rowBytes(), it.rowBytes()))
	}
	return list
}

// sampled reports whether lattices are looked for in a tensor. The rows of a transposed tensor that is
// elsewhere are too far apart.
func (pl *planner) sampled(it *quantized) bool {
	return it.src.Precision() != packing.ScaleNone && !(it.transposed && pl.ck.Remote())
}

// lostLattice says which lattice of a tensor its scheme loses, and what to do; "" if none.
func (pl *planner) lostLattice(it *quantized) string {
	if !pl.sampled(it) {
		return ""
	}
	ck, src := pl.ck, *it.src
	o := pl.opts.Origin
	if o != nil {
		t, ok := o.Checkpoint.Lookup(src.Name)
		if !ok {
			return ""
		}
		ck, src = o.Checkpoint, t
	}
	w, err := ck.Weights(src, safetensors.WeightsOptions{Block: pl.scaleBlock, Transposed: it.transposed})
	if err != nil {
		return "" // the writing of the file says so
	}
	l, err := FindLattice(w, latticeRows)
	if err != nil || l == nil {
		return ""
	}
	if o != nil {
		return fmt.Sprintf("this checkpoint was trained for %s, and folding its weights loses the codes: leave out rotations, factors and awq to keep them", l)
	}
	rows := make([][]float32, min(latticeRows, w.Slices*w.Rows))
	for i := range rows {
		rows[i] = make([]float32, w.Cols)
		if w.Read(rows[i], sampledRow(i, len(rows), w.Slices*w.Rows), 1) != nil {
			return ""
		}
	}
	if l.keptBy(it.scheme, it.smallest, src.Precision(), rows) {
		return ""
	}
	return fmt.Sprintf("this checkpoint was trained for %s: use %s to keep its codes exactly", l, l.flags(it.role, it.scheme))
}
