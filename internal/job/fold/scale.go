package fold

import (
	"fmt"

	"github.com/lowbit-go/gq/kernels"
)

func quiet(kernels.Choice) {}

func scaleEdits(ck *source, list []Factors) (*edits, error) {
	e := newEdits()
	for i := range list {
		f := &list[i]
		inverse := make([]float64, len(f.T))
		for k, t := range f.T {
			inverse[k] = 1 / float64(t)
		}
		if f.Norm != "" {
			plusOne := f.PlusOne
			e.vector(f.Norm, len(f.T), func(v []float64) { divide(v, inverse, 0, plusOne) })
		} else {
			if f.Rows.From < 0 {
				return nil, &MismatchError{ck.Dir(), fmt.Sprintf("tensor %q has no row %d", f.Rows.Tensor, f.Rows.From)}
			}
			ed := e.matrix(f.Rows.Tensor)
			ed.rows = append(ed.rows, rowFactors{f.Rows.From, inverse})
			if f.Rows.Bias != "" {
				from := f.Rows.From
				e.vector(f.Rows.Bias, from+len(f.T), func(v []float64) { divide(v, inverse, from, false) })
			}
		}
		// Checked before anything is allocated: a record may be damaged.
		for _, r := range f.Consumers {
			if t, ok := ck.Lookup(r.Tensor); !ok || len(t.Shape) == 0 || t.Shape[len(t.Shape)-1] != int64(f.columns()) || r.From < 0 || r.Rows < 0 {
				return nil, &MismatchError{ck.Dir(), fmt.Sprintf("tensor %q is not there, or has not %d columns and rows from %d", r.Tensor, f.columns(), r.From)}
			}
		}
		cols := make([]float64, f.columns())
		for c := range cols {
			cols[c] = f.factor(c)
		}
		for _, r := range f.Consumers {
			ed := e.matrix(r.Tensor)
			ed.cols = append(ed.cols, colFactors{r.From, r.From + r.Rows, cols})
		}
	}
	return e, nil
}

// divide multiplies the numbers from index from on by the inverse factors.
func divide(v, inverse []float64, from int, plusOne bool) {
	for i, f := range inverse {
		x := v[from+i]
		if plusOne {
			x++
		}
		if x = float64(x * f); plusOne {
			x--
		}
		v[from+i] = x
	}
}
