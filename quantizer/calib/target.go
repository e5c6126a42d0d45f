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
	if g.hessian.n == 0 || g.hessian.zero() {
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
	f, err := factorize(j.e, g.hessian)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", g.matrices[0].Name(), err)
	}
	j.notes.Dead += f.dead
	g.hessian.h = nil
	// All targets need the factor, whose memory the feedback then takes.
	var targets [][]float32
	var lattices []*held
	for _, m := range g.matrices {
		t, h, err := j.target(g, f, m)
		if err != nil {
			return nil, err
		}
		targets, lattices = append(targets, t), append(lattices, h)
	}
	g.hessian.cross, g.hessian.residual = nil, nil
	v := f.feedback()
	f.u = nil
	for i, m := range g.matrices {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		if h := lattices[i]; h != nil && h.all {
			targets[i] = nil
			list = append(list, h.codes)
			j.progress(int64(m.Rows) * int64(m.Cols))
			continue
		}
		s := newSolver(j.e, f, v, m.Scheme, targets[i], m.Rows)
		s.smallest, s.held = m.SmallestScale, lattices[i]
		targets[i] = nil
		improved, err := j.choose(s)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if !improved {
			j.notes.Kept = append(j.notes.Kept, m.Name())
		}
		c, err := s.result()
		if err != nil {
			return nil, matrixError(m, err)
		}
		list = append(list, c)
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
	return list, nil
}

// choose finds a matrix's codes. GPTQ starts from two sets of scales: from the search with the
// diagonal of H as weights, and from a search that also weights errors of large weights more and so
// clips less, because compensation makes targets larger. Each row keeps the result with the least
// error, the search's included.
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

// follow is the factor a or r for n rows of k inputs, if it was not stated. It is 1/2 up to 8192
// rows, because measured differences are noisier the fewer the rows and the more the inputs, and 1
// from 32768 rows on if there are 48 rows per input. (With 8192 self-written tokens, 1 is 1-8 %
// worse than 1/2 on the models of docs/QUALITY.md; with 32768 it is 0-16 % better.)
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

// target returns a matrix's target weights, columns in the factor's order, and the groups whose codes
// are held.
func (j *job) target(g *group, f *factor, m conversion.Matrix) ([]float32, *held, error) {
	n, k := m.Rows, m.Cols
	w := make([]float32, n*k)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, nil, err
	}
	h, err := j.hold(m, w)
	if err != nil {
		return nil, nil, err
	}
	if m.Scheme.Algorithm != gqf.AlgorithmGPTQFT || g.hessian.cross == nil && g.hessian.residual == nil {
		return f.permute(w, n), h, nil
	}
	shift := make([]float32, n*k)
	if g.hessian.cross != nil {
		j.e.product(shift, w, n, k, k, func(dst []float32, row int) { copy(dst, g.hessian.cross[row*k:][:k]) })
		a := follow(j.FollowInputs, g.hessian.n, k)
		for i, v := range shift {
			shift[i] = float32(a * v)
		}
	}
	if g.hessian.residual != nil {
		r := follow(j.FollowResidual, g.hessian.n, k)
		for i, v := range g.hessian.residual {
			shift[i] += float32(r * v)
		}
	}
	shift = f.permute(shift, n)
	f.solve(shift, n)
	t := f.permute(w, n)
	for i, v := range shift {
		t[i] += v
	}
	return t, h, nil
}

// unreached chooses codes for a matrix that no calibration token reached.
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
	q.Recover(m.Precision)
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

// head chooses the codes of an untied lm_head, if it is to be calibrated.
func (j *job) head() error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	g := j.prepare(model.Group{Linears: []string{j.quant.Head()}, Expert: -1})
	if len(g.matrices) == 0 {
		return nil
	}
	g.hessian = newHessian(j.e, g.cols(), g.follow && j.FollowInputs >= 0, 0)
	diff := make([]float32, g.cols())
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		var floats []float32
		if g.hessian.cross != nil {
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
				g.hessian.add(x, d, nil)
			}
		})
	}
	g.hessian.done()
	list, err := j.solve(g)
	if err != nil {
		return err
	}
	j.names, j.done = []string{g.matrices[0].Name()}, list
	return nil
}
