package calib

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
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
	f, err := factorize(j.e, g.hessian, j.improves(g), g.unit())
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
		c, improved, err := j.codes(f, m, target, held)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if !improved {
			j.notes.Searched = append(j.notes.Searched, m.Name())
		}
		list = append(list, c)
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
	if shift != nil {
		j.e.floats.Put(shift.rows)
	}
	j.e.floats.Put(f.u, f.h)
	return list, nil
}

// codes chooses the codes of a matrix, or of as many of its rows as target has, and frees target.
func (j *job) codes(f *factor, m plan.Matrix, target []float32, held *held) (c *rounding.Codes, improved bool, err error) {
	s := newSolver(j.e, f, m.Scheme, target, len(target)/m.Cols)
	s.smallest, s.held = m.SmallestScale, held
	if improved, err = j.choose(s); err == nil {
		c, err = s.result()
	}
	s.drop()
	j.e.floats.Put(target)
	return c, improved, err
}

// unit is the number of columns of the group's matrices that stay together, see factorize.
func (g *group) unit() int {
	if slices.ContainsFunc(g.matrices, func(m plan.Matrix) bool { return m.Scheme.Points() != nil }) {
		return rounding.UnitMost
	}
	return 1
}

// improves reports whether the codes of a group change after gptq. This takes the Hessian.
func (j *job) improves(g *group) bool {
	return j.Refine || slices.ContainsFunc(g.matrices, func(m plan.Matrix) bool { return m.Scheme.SubScales() })
}

// choose finds a matrix's codes. GPTQ starts from two sets of scales: from the search with the
// diagonal of H as weights, and from a search that weights errors of large weights more and clips
// less, because compensation makes targets larger. Each row keeps the best, or the search's result.
// Sub-scales then settle.
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
	if j.Refine || s.scheme.SubScales() {
		next := s.clone()
		if j.Refine {
			next.refine()
		} else {
			next.settle()
		}
		taken += s.takeBetter(next)
		next.drop()
	}
	return taken > 0, nil
}

// follow is the factor of gptq-ft's targets for n rows of k inputs: 1/2 up to 8192 rows, because
// measured differences are noisier the fewer the rows and the more the inputs, and 1 from 32768
// rows on if there are 48 rows per input. (With 8192 self-written tokens, 1 is 1-8 % worse than 1/2
// on the models of docs/QUALITY.md; with 32768, 1 is 0-16 % better.)
func follow(n, k int) float32 {
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
	if h.factor == 0 { // else S has the factor already
		s.factor = follow(h.n, h.k)
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
	q, err := m.Rounder(gqf.AlgorithmSearch)
	if err != nil {
		return nil, err
	}
	c := rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols))
	for r := range m.Rows {
		if err := q.Quantize(c.Row(r), w[r*m.Cols:][:m.Cols]); err != nil {
			return nil, matrixError(m, err)
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
		if g.hessian.shift != nil {
			if err := j.floats.HeadInput(seq, func(in *forward.Input) { floats = slices.Clone(in.X) }); err != nil {
				return err
			}
		}
		err := j.quants.HeadInput(seq, func(in *forward.Input) {
			g.hessian.add(in.Rows, func(i int, x, d, _ []float32) {
				copy(x, in.X[i*in.K:][:in.K])
				if d != nil {
					difference(d, floats[i*in.K:][:in.K], x)
				}
			})
		})
		if err != nil {
			return err
		}
	}
	g.hessian.done()
	list, err := j.solve(g)
	if err != nil {
		return err
	}
	j.names, j.done = []string{g.matrices[0].Name()}, list
	return nil
}

// refitRows is the number of rows with n knobs that are refitted at a time: their normal equations
// take at most 64 MiB, unless a single row's take more.
func refitRows(n int) int { return max(1, min(refineRows, (16<<20)/(n*n))) }

// refit sets each row's knobs to the least-squares solution for its codes.
func (s *solver) refit() {
	k := s.k
	span, kinds := s.span()
	each := (s.groups + span - 1) / span // knobs of a kind
	n := each * kinds
	rows := refitRows(n)
	take := s.e.floats.Take
	th, out := take(rows*k), take(rows*k) // targets times H, products
	normal, rhs := take(rows*n*n), take(rows*n)
	steps := take(kinds * rows * k) // of each weight with its knobs
	defer s.e.floats.Put(th, out, normal, rhs, steps)
	members := make([][]int, each) // places of each knob
	for a, g := range s.place {
		members[g/span] = append(members[g/span], a)
	}
	h := s.f.h
	var x, y []float32
	for r0 := 0; r0 < s.n; r0 += rows {
		m := min(rows, s.n-r0)
		s.e.product(th, m, k, k, operand{Data: s.target[r0*k:], Stride: k}, operand{Data: h, Stride: k})
		for kind := range kinds {
			for i := range m * k {
				r := r0 + i/k
				steps[kind*rows*k+i] = s.step(kind, r, s.place[i%k], float32(s.codes[r0*k+i]))
			}
		}
		clear(rhs)
		clear(normal)
		for knob := range n {
			own, steps1 := members[knob%each], steps[knob/each*rows*k:]
			x := buffer.Grow(&x, m*len(own))
			for r := range m {
				for i, a := range own {
					x[r*len(own)+i] = steps1[r*k+a]
				}
			}
			y := buffer.Grow(&y, len(own)*k)
			for i, a := range own {
				copy(y[i*k:], h[a*k:][:k])
			}
			s.e.product(out, m, k, len(own), operand{Data: x, Stride: len(own)}, operand{Data: y, Stride: k})
			s.e.rows(m, 16, func(_, from, to int) {
				sums := make([]float64, n)
				for r := from; r < to; r++ {
					clear(sums)
					for kind := range kinds {
						steps := steps[(kind*rows+r)*k:]
						for a, v := range out[r*k:][:k] {
							sums[kind*each+s.place[a]/span] += float64(v * steps[a])
						}
					}
					for b, v := range sums {
						normal[(r*n+knob)*n+b] = float32(v)
					}
					b := 0.0
					for _, a := range own {
						b += float64(steps1[r*k+a] * th[r*k+a])
					}
					rhs[r*n+knob] = float32(b)
				}
			})
		}
		s.e.rows(m, 1, func(_, from, to int) {
			for r := from; r < to; r++ {
				s.refitRow(r0+r, kinds, normal[r*n*n:][:n*n], rhs[r*n:][:n])
			}
		})
	}
}

// refitRow solves A s = b for a row's knobs and turns the knobs.
func (s *solver) refitRow(r, kinds int, normal, rhs []float32) {
	n := len(rhs)
	a, b := make([]float64, n*n), make([]float64, n)
	trace := 0.0
	for i := range n {
		trace += float64(normal[i*n+i])
	}
	if !(trace > 0) {
		return
	}
	ridge := 1e-7 * trace / float64(n)
	var now []float32
	for kind := range kinds {
		now = append(now, s.knobs(kind, r)...)
	}
	// The unknowns are changes of knobs, so the ridge favours the present values.
	for i := range n {
		b[i] = float64(rhs[i])
		for j := range n {
			v := (float64(normal[i*n+j]) + float64(normal[j*n+i])) / 2
			a[i*n+j] = v
			b[i] -= float64(v * float64(now[j]))
		}
		a[i*n+i] += ridge
	}
	for g, is := range s.held.row(r) { // each has a knob of its own
		if is {
			pin(a, b, n, g)
		}
	}
	if !solveSymmetric(a, b, n) {
		return
	}
	for kind := range kinds {
		knobs := s.knobs(kind, r)
		for i := range knobs {
			at := kind*len(knobs) + i
			s.turn(kind, &knobs[i], float64(now[at])+b[at])
		}
	}
	if s.blocks != nil {
		s.blocksChanged(r)
	}
}

// solveSymmetric replaces b by a^-1 b. a is positive definite; its lower triangle is overwritten.
func solveSymmetric(a, b []float64, n int) bool {
	for i := range n {
		for j := 0; j <= i; j++ {
			v := a[i*n+j]
			for p := range j {
				v -= float64(a[i*n+p] * a[j*n+p])
			}
			if i > j {
				a[i*n+j] = v / a[j*n+j]
				continue
			}
			if !(v > 0) {
				return false
			}
			a[i*n+i] = math.Sqrt(v)
		}
	}
	for i := range n {
		for p := range i {
			b[i] -= float64(a[i*n+p] * b[p])
		}
		b[i] /= a[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for p := i + 1; p < n; p++ {
			b[i] -= float64(a[p*n+i] * b[p])
		}
		b[i] /= a[i*n+i]
	}
	return true
}
