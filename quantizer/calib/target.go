package calib

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// solve chooses the codes of a group's matrices.
func (j *job) solve(g *group) ([]*rounding.Codes, error) {
	var list []*rounding.Codes
	if g.g.n == 0 || g.g.zero() {
		for _, m := range g.matrices {
			c, err := j.unreached(m)
			if err != nil {
				return nil, err
			}
			list = append(list, c)
			j.progress(int64(m.Rows) * int64(m.Cols))
		}
		return list, nil
	}
	f, err := factorize(j.e, g.g)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", g.matrices[0].Name(), err)
	}
	j.notes.Dead += f.dead
	g.g.h = nil
	// The targets of all need the factor, which then makes room for the feedback.
	var targets [][]float32
	for _, m := range g.matrices {
		t, err := j.target(g, f, m)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	g.g.cross, g.g.residual = nil, nil
	v := f.feedback()
	f.u = nil
	for i, m := range g.matrices {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		s := newSolver(j.e, f, v, m.Scheme, targets[i], m.Rows)
		s.smallest = m.SmallestScale
		targets[i] = nil
		improved, err := j.choose(s)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if !improved {
			j.notes.Kept = append(j.notes.Kept, m.Name())
		}
		list = append(list, s.result())
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
	return list, nil
}

// choose finds a matrix's codes. GPTQ starts from two sets of scales: of the search in which an error counts its column's
// moment, and of that in which it counts more in a large weight, so that less is cut off; targets grow as they make up for
// errors. Each row gets what has the least error, and no row more than the search gives it.
func (j *job) choose(s *solver) (improved bool, err error) {
	if err := s.search(true); err != nil {
		return false, err
	}
	flat, sloped := s.clone(), s.clone()
	flat.gptq()
	taken := s.takeBetter(flat)
	if err := sloped.search(false); err != nil {
		return false, err
	}
	sloped.gptq()
	taken += s.takeBetter(sloped)
	if j.Refine {
		next := s.clone()
		next.refine()
		taken += s.takeBetter(next)
	}
	return taken > 0, nil
}

// follow is how far n rows of k inputs let a target follow the float path, if that was not stated: half as far as they say
// up to 8192 rows, as what they say has the more noise the fewer they are and the more inputs there are; all the way from
// 32768 rows on, if there are 48 of them an input. (All the way is 1-8 % worse than half with 8192 self-written tokens on
// the models of docs/QUALITY.md, and 0-16 % better with 32768.)
func follow(stated float64, n, k int) float32 {
	if stated != 0 {
		return float32(max(stated, 0))
	}
	ratio := min(float64(n)/8192, float64(n)/float64(12*k))
	if ratio <= 1 {
		return 0.5
	}
	return float32(min(0.5+float64(detmath.Log(ratio)/(4*math.Ln2)), 1))
}

// target is what a matrix's codes are to stand for, columns in the factor's order.
func (j *job) target(g *group, f *factor, m conversion.Matrix) ([]float32, error) {
	n, k := m.Rows, m.Cols
	w := make([]float32, n*k)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, err
	}
	if m.Scheme.Algorithm != gqf.AlgorithmGPTQFT || g.g.cross == nil && g.g.residual == nil {
		return f.permute(w, n), nil
	}
	shift := make([]float32, n*k)
	if g.g.cross != nil {
		j.e.product(shift, w, n, k, k, func(dst []float32, row int) { copy(dst, g.g.cross[row*k:][:k]) })
		a := follow(j.FollowInputs, g.g.n, k)
		for i, v := range shift {
			shift[i] = float32(a * v)
		}
	}
	if g.g.residual != nil {
		r := follow(j.FollowResidual, g.g.n, k)
		for i, v := range g.g.residual {
			shift[i] += float32(r * v)
		}
	}
	shift = f.permute(shift, n)
	f.solve(shift, n)
	t := f.permute(w, n)
	for i, v := range shift {
		t[i] += v
	}
	return t, nil
}

// unreached chooses codes for a matrix whose inputs were never seen.
func (j *job) unreached(m conversion.Matrix) (*rounding.Codes, error) {
	j.notes.Unreached = append(j.notes.Unreached, m.Name())
	w := make([]float32, m.Rows*m.Cols)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, err
	}
	scheme := m.Scheme
	scheme.Algorithm = gqf.AlgorithmSearch
	q, err := rounding.NewRounder(scheme, m.Cols)
	if err != nil {
		return nil, err
	}
	q.LimitScales(m.SmallestScale)
	c := rounding.NewCodes(scheme.Shape(m.Rows, m.Cols))
	for r := range m.Rows {
		if err := q.Quantize(c.Row(r), w[r*m.Cols:][:m.Cols]); err != nil {
			return nil, matrixError(m, &rowError{r, err})
		}
	}
	return c, nil
}

func matrixError(m conversion.Matrix, err error) error {
	return fmt.Errorf("tensor %q: %w", m.Name(), err)
}

// head chooses the codes of an output head that is not the table, if it is to be calibrated.
func (j *job) head() error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	g := j.prepare(model.Group{Linears: []string{j.quant.Head()}, Expert: -1})
	if len(g.matrices) == 0 {
		return nil
	}
	g.g = newGram(j.e, g.cols(), g.follow && j.FollowInputs >= 0, 0)
	diff := make([]float32, g.cols())
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		var floats []float32
		if g.g.cross != nil {
			j.floats.HeadInput(seq, func(in *model.Input) { floats = slices.Clone(in.X) })
		}
		j.quants.HeadInput(seq, func(in *model.Input) {
			for r := range in.Rows {
				x := in.X[r*in.K:][:in.K]
				var d []float32
				if floats != nil {
					d = diff
					for i, v := range floats[r*in.K:][:in.K] {
						d[i] = v - x[i]
					}
				}
				g.g.add(x, d, nil)
			}
		})
	}
	g.g.done()
	list, err := j.solve(g)
	if err != nil {
		return err
	}
	j.names, j.done = []string{g.matrices[0].Name()}, list
	return nil
}
