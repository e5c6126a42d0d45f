package calib

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

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
	f, err := factorize(j.e, g.hessian, j.Refine)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", g.matrices[0].Name(), err)
	}
	j.notes.Dead += f.dead
	shift := j.shift(g, f)
	g.hessian = nil
	f.feedback()
	for _, m := range g.matrices {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		target, held, err := j.target(g, f, m, shift)
		if err != nil {
			return nil, err
		}
		if held != nil && held.all {
			j.e.floats.Put(target)
			list = append(list, held.codes)
			j.progress(int64(m.Rows) * int64(m.Cols))
			continue
		}
		s := newSolver(j.e, f, m.Scheme, target, m.Rows)
		s.smallest, s.held = m.SmallestScale, held
		improved, err := j.choose(s)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if !improved {
			j.notes.Searched = append(j.notes.Searched, m.Name())
		}
		c, err := s.result()
		if err != nil {
			return nil, matrixError(m, err)
		}
		s.drop()
		j.e.floats.Put(target)
		list = append(list, c)
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
	if shift != nil {
		j.e.floats.Put(shift.rows)
	}
	j.e.floats.Put(f.u, f.h)
	return list, nil
}

// choose finds a matrix's codes. GPTQ starts from two sets of scales: from the search with the
// diagonal of H as weights, and from a search that weights errors of large weights more and clips
// less, because compensation makes targets larger. Each row keeps the best, or the search's result.
func (j *job) choose(s *solver) (improved bool, err error) {
	if err := s.search(true); err != nil {
		return false, err
	}
	best, sloped := s.clone(), s.clone()
	best.gptq()
	if err := sloped.search(false); err != nil {
		return false, err
	}
	sloped.gptq()
	best.takeBetter(sloped)
	sloped.drop()
	s.errs = s.measure(best.errs)
	taken := s.takeBetter(best)
	best.drop()
	if j.Refine {
		next := s.clone()
		next.refine()
		taken += s.takeBetter(next)
		next.drop()
	}
	return taken > 0, nil
}

// follow is the factor a or r for n rows of k inputs, unless stated. The default is 1/2 up to 8192
// rows, because measured differences are noisier the fewer the rows and the more the inputs, and 1
// from 32768 rows on if there are 48 rows per input. (With 8192 self-written tokens, 1 is 1-8 %
// worse than 1/2 on the models of docs/QUALITY.md; with 32768, 1 is 0-16 % better.)
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

type shift struct {
	// rows are the shifts of all matrices. If product is set, rows are the matrix P instead, and the
	// shifts are weights times P. Columns are in the factor's order.
	rows    []float32
	product bool
	factor  float32
	at      int // the next matrix's first row
}

func (j *job) shift(g *group, f *factor) *shift {
	h := g.hessian
	if h.shift == nil {
		return nil
	}
	s := &shift{rows: f.permute(h.shift, h.width), product: !h.ofWeights, factor: 1}
	f.e.floats.Put(h.shift)
	h.shift = nil
	if h.ofOutputs == 0 { // else S has the factors already
		s.factor = follow(j.FollowInputs, h.n, h.k)
	}
	f.solve(s.rows, h.width)
	return s
}

// target returns a matrix's target weights, columns in the factor's order, and the held groups.
func (j *job) target(g *group, f *factor, m plan.Matrix, s *shift) ([]float32, *held, error) {
	n, k := m.Rows, m.Cols
	w := j.e.floats.Take(n * k)
	defer j.e.floats.Put(w)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, nil, err
	}
	h, err := j.hold(m, w)
	if err != nil {
		return nil, nil, err
	}
	t := f.permute(w, n)
	if s == nil {
		return t, h, nil
	}
	var rows []float32
	if !s.product {
		rows = s.rows[s.at*k:][:n*k]
		s.at += n
	}
	if m.Scheme.Algorithm != gqf.AlgorithmGPTQFT {
		return t, h, nil
	}
	if s.product {
		rows = j.e.floats.Zeros(n * k)
		defer j.e.floats.Put(rows)
		j.e.add(rows, k, n, k, k, operand{Data: w, Stride: k}, operand{Data: s.rows, Stride: k})
	}
	j.e.rows(n, 16, func(_, from, to int) {
		for i := from * k; i < to*k; i++ {
			t[i] += float32(s.factor * rows[i])
		}
	})
	return t, h, nil
}

func (j *job) unreached(m plan.Matrix) (*rounding.Codes, error) {
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

func matrixError(m plan.Matrix, err error) error {
	return fmt.Errorf("tensor %q: %w", m.Name(), err)
}

// headGroup is the group of the lm_head, with a matrix if the lm_head is untied and calibrated.
func (j *job) headGroup() *group {
	return j.prepare(forward.Group{Linears: []string{j.quant.Head()}, Expert: -1})
}

// head chooses the codes of an untied, calibrated lm_head.
func (j *job) head() error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	g := j.headGroup()
	if len(g.matrices) == 0 {
		return nil
	}
	if err := j.newHessian(g); err != nil {
		return err
	}
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		var floats []float32
		if g.hessian.ofInputs != 0 {
			j.floats.HeadInput(seq, func(in *forward.Input) { floats = slices.Clone(in.X) })
		}
		j.quants.HeadInput(seq, func(in *forward.Input) {
			g.hessian.add(in.Rows, func(i int, x, d, _ []float32) {
				copy(x, in.X[i*in.K:][:in.K])
				if d != nil {
					difference(d, floats[i*in.K:][:in.K], x)
				}
			})
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
