// Package lattice finds tensors with weights that are codes times scales already.
package lattice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
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

// FindLattice looks for the lattice of a tensor in up to sample rows, or in all with 0. It returns
// nil if there is none, and for dtypes whose numbers are not rounded products.
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
		if err := w.Read(row, SampledRow(i, n, all), 1); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(row, func(v float32) bool { return !floats.Finite(v) }) {
			continue
		}
		if plausible = plausible || survey.Plausible(row); plausible {
			survey.Add(row)
		}
		if i%(n/min(n, LatticeRows)) == 0 && len(kept) < LatticeRows {
			kept = append(kept, slices.Clone(row))
		}
	}
	t, ok := survey.Result()
	if !ok {
		return nil, nil
	}
	l := &Lattice{TrainedScheme: t, ScaleDtype: packing.ScaleF32}
	for _, d := range []packing.ScaleDtype{packing.ScaleF16, packing.ScaleBF16} {
		scheme := rounding.Scheme{Bits: t.Bits, Group: t.Group, Mapping: t.Mapping, ScaleDtype: d, Fractions: t.Mapping == gqf.MappingAsymmetric && t.Bits < 8}
		if l.KeptBy(scheme, d.Smallest(), precision, kept) {
			l.ScaleDtype = d
		}
	}
	return l, nil
}

// LatticeRows is how many rows are sampled of a tensor.
const LatticeRows = 4

// SampledRow is sample i of n among all rows.
func SampledRow(i, n, all int) int { return (2*i + 1) * all / (2 * n) }

// KeptBy reports whether a scheme recovers nearly all groups of rows that are on the lattice. Block
// types must hold every weight of the rows.
func (l *Lattice) KeptBy(s rounding.Scheme, smallest float32, precision packing.ScaleDtype, rows [][]float32) bool {
	s.Algorithm = gqf.AlgorithmRTN
	if len(rows) == 0 {
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
		if s.Type != 0 {
			if !slices.Equal(x, y) {
				return false
			}
			continue
		}
		for g := range s.Groups(len(x)) {
			if q.Recovered(g) {
				kept, groups = kept+1, groups+1
			} else if slices.ContainsFunc(x[g*width:min(len(x), (g+1)*width)], func(v float32) bool { return v != 0 }) {
				groups++
			}
		}
	}
	return s.Type != 0 || float64(kept)*float64(l.Groups) >= 0.9*float64(l.Exact)*float64(groups)
}

// Flags are the command's flags that give a tensor the lattice's scheme, instead of s.
func (l *Lattice) Flags(role gqf.Role, s rounding.Scheme) string {
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
