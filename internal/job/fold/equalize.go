package fold

import (
	"context"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
)

const (
	// sinkhornSteps is how often factors in [sinkhornLeast, sinkhornMost] balance columns and rows.
	sinkhornSteps = 8
	sinkhornLeast = 0.7
	sinkhornMost  = 2
	// equalizePower is the exponent of the columns' factors between equalizeWhole and its inverse.
	// With 1 two of the models of docs/QUALITY.md get 2 to 3 % worse at 4 bits, with 0.5 at most 1 %.
	equalizePower = 0.5
	// equalizeWhole is the factor beyond which a column is an outlier and is balanced in full. Square
	// roots alone leave copies with outliers (testoutliers) 2 to 4 times the KL divergence at 4 bits.
	equalizeWhole = 2
)

// Equalize chooses factors for the checkpoint in a directory from its weights alone: Sinkhorn's
// balancing factors of the consumers' columns, damped (see damp). Balancing equalizes the root mean
// squares of columns, and of rows (as SINQ does for its scales; huawei-csl/SINQ, 2025).
func Equalize(ctx context.Context, dir string, o Options) (Step, error) {
	s := Step{Kind: KindScale, By: ByEqualize, Parameters: map[string]any{"steps": sinkhornSteps, "power": equalizePower, "whole": equalizeWhole}}
	m, err := openModel(dir, 1)
	if err != nil {
		return s, err
	}
	defer m.Close()
	ck, err := openSource(dir)
	if err != nil {
		return s, err
	}
	defer ck.Close()
	e := &equalizer{source: ck, pool: kernels.NewPool(o.Threads)}
	defer e.pool.Close()
	for layer := range m.Config().Layers {
		for _, place := range m.Scalings(layer) {
			if err := ctx.Err(); err != nil {
				return s, err
			}
			t, err := e.factors(&place)
			if err != nil {
				return s, err
			}
			s.Scalings = append(s.Scalings, FactorsOf(&place, t))
		}
		o.layerDone(ck.Checkpoint, len(m.Config().Layers))
	}
	return s, nil
}

type equalizer struct {
	*source
	pool *kernels.Pool
}

// factors computes the factors of a place. Their geometric mean is 1.
func (e *equalizer) factors(s *forward.Scaling) ([]float32, error) {
	col := make([]float64, s.Width)
	for i := range col {
		col[i] = 1
	}
	rows := make([][]float64, len(s.Consumers))
	for i, b := range s.Consumers {
		rows[i] = make([]float64, b.Rows)
		for r := range rows[i] {
			rows[i][r] = 1
		}
	}
	for range sinkhornSteps {
		sums := make([]float64, s.Width)
		for i, b := range s.Consumers {
			if err := e.balanceRows(sums, s, b, col, rows[i]); err != nil {
				return nil, err
			}
		}
		mean := geometricMean(sums)
		for i, v := range sums {
			if v > 0 {
				col[i] = float64(col[i] * step(math.Sqrt(mean/v)))
			}
		}
	}
	for i, v := range col {
		col[i] = damp(v)
	}
	mean := geometricMean(col)
	t := make([]float32, s.Width)
	for i, v := range col {
		t[i] = bf16(v / mean)
	}
	return t, nil
}

// damp is v^equalizePower up to equalizeWhole, and from there in proportion to v; likewise for 1/v.
func damp(v float64) float64 {
	switch {
	case v > equalizeWhole:
		return v / math.Sqrt(equalizeWhole)
	case v < 1.0/equalizeWhole:
		return float64(v * math.Sqrt(equalizeWhole))
	}
	return math.Sqrt(v) // equalizePower
}

func step(f float64) float64 { return min(max(f, sinkhornLeast), sinkhornMost) }

// geometricMean is the geometric mean of the numbers above zero; 1 if there are none.
func geometricMean(list []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range list {
		if v > 0 {
			sum += detmath.Log(v)
			n++
		}
	}
	if n == 0 {
		return 1
	}
	return detmath.Exp(sum / float64(n))
}

// balanceRows adds the squares of a consumer's weights, multiplied by the factors of columns and
// rows, to the sums of the columns, and then updates the factors of rows.
func (e *equalizer) balanceRows(sums []float64, s *forward.Scaling, b forward.Block, col, row []float64) error {
	weights, err := e.weights(b.Tensor)
	if err != nil {
		return err
	}
	// The parts depend on the shape alone, and so does the order of sums.
	const most = 64
	piece := max(16, (b.Rows+most-1)/most)
	partial := make([][]float64, most)
	err = e.pool.Pieces(b.Rows, piece, func(_, from, to int) error {
		own, line := make([]float64, s.Width), make([]float32, b.Cols)
		partial[from/piece] = own
		for r := from; r < to; r++ {
			if err := weights.Read(line, b.From+r, 1); err != nil {
				return err
			}
			sum := 0.0
			for c, v := range line {
				i := s.Factor(c)
				y := float64(float64(float64(v)*col[i]) * row[r])
				y = float64(y * y)
				own[i] += y
				sum += y
			}
			if sum > 0 {
				row[r] = float64(row[r] * step(math.Sqrt(float64(b.Cols)/sum)))
			}
		}
		return nil
	})
	for _, p := range partial {
		for i, v := range p {
			sums[i] += v
		}
	}
	return err
}

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
		s := forward.Scaling{HeadDim: f.HeadDim, Repeat: f.Repeat}
		cols := make([]float64, f.columns())
		for c := range cols {
			cols[c] = float64(f.T[s.Factor(c)])
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
