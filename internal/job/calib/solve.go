package calib

import (
	"slices"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/vec"
)

// solver chooses a matrix's codes. Only weights and codes are in the factor's order of columns.
type solver struct {
	*grids
	e      *engine
	f      *factor // after feedback
	n, k   int
	place  []int // group of the column at each place
	target []float32
	codes  []int8 // [n][k]
	held   *held  // nil: no group is
	// errs are the rows' (target - weights) (H + lambda) (target - weights)^T.
	errs []float64
	buf  *solverBuffers // shared with all solvers of the engine
}

type solverBuffers struct {
	grids []vec.ColumnGrids
	rows  []blockRows // of each goroutine
}

func newSolver(e *engine, f *factor, s rounding.Scheme, target []float32, n int) *solver {
	k := f.k
	sv := &solver{grids: newGrids(s, n, k), e: e, f: f, n: n, k: k, target: target, place: make([]int, k), buf: &e.solver}
	for a, j := range f.order {
		sv.place[a] = j / s.GroupWidth(k)
	}
	return sv
}

func (s *solver) clone() *solver {
	c := *s
	c.grids = s.grids.clone()
	c.codes = append(s.e.codes.Take(len(s.codes))[:0], s.codes...)
	c.errs = slices.Clone(s.errs)
	return &c
}

// drop frees the codes. s must not be used afterwards.
func (s *solver) drop() {
	s.e.codes.Put(s.codes)
	s.codes = nil
}

// takeBetter takes and counts the rows with the smaller error in o, another result for the matrix.
func (s *solver) takeBetter(o *solver) (taken int) {
	for r, e := range o.errs {
		if !(e < s.errs[r]) {
			continue
		}
		taken++
		s.errs[r] = e
		copy(s.codes[r*s.k:][:s.k], o.codes[r*s.k:])
		s.copyRow(r, o.grids)
	}
	return taken
}

// search chooses scales and zero points by the weighted search and rounds to the nearest codes,
// without measuring errors. An error is weighted with the diagonal of H and, unless flat, more in
// larger weights (see rounding.RowQuantizer.Weigh).
func (s *solver) search(flat bool) error {
	n, k := s.n, s.k
	if s.codes == nil {
		s.codes = s.e.codes.Take(n * k)
	}
	weights := s.f.searchWeights()
	quantizers := make([]*rowQuantizer, s.e.pool.Threads())
	err := s.e.pool.Pieces(n, 8, func(worker, from, to int) (err error) {
		if quantizers[worker] == nil {
			if quantizers[worker], err = s.rowQuantizer(weights, flat); err != nil {
				return err
			}
		}
		row := make([]float32, k)
		for r := from; r < to; r++ {
			for a, j := range s.f.order {
				row[j] = s.target[r*k+a]
			}
			codes, err := s.grids.search(quantizers[worker], r, row)
			if err != nil {
				return err
			}
			for a, j := range s.f.order {
				s.codes[r*k+a] = codes[j]
			}
		}
		return nil
	})
	if err == nil {
		s.restore()
	}
	return err
}

// searchWeights is the diagonal of H with mean 1 and without zeros.
func (f *factor) searchWeights() []float32 {
	mean := 0.0
	for _, d := range f.diag {
		mean += d
	}
	mean /= float64(f.k)
	w := make([]float32, f.k)
	for j, d := range f.diag {
		w[j] = 1
		if mean > 0 {
			w[j] = float32(max(d/mean, 1e-6))
		}
	}
	return w
}

// gptq chooses codes for the present scales, from the last column to the first; the target of each
// column compensates the errors of the columns done (E. Frantar et al., GPTQ, 2023; in this form
// the nearest-plane algorithm). The rest of each target is an element of U d^T except for the
// factor on U's diagonal, so the errors follow on the way.
func (s *solver) gptq() {
	n, k := s.n, s.k
	shift := s.e.floats.Take(n * k) // changes of the columns' targets
	s.e.rows(n, 64, func(_, from, to int) { clear(shift[from*k : to*k]) })
	s.errs = make([]float64, n)
	grids := s.columnGrids()
	blocks := buffer.Grow(&s.buf.rows, s.e.pool.Threads())
	part := s.e.floats.Take(n * min(panel, k)) // errors of a panel's codes, its last block first
	above := s.e.floats.Take(k * min(panel, k))
	defer s.e.floats.Put(shift, part, above)
	for j1 := k; j1 > 0; {
		j0 := (j1 - 1) / panel * panel
		w := j1 - j0
		for i1 := j1; i1 > j0; {
			i0 := (i1 - 1) / block * block
			s.e.rows(n, abreast, func(worker, from, to int) {
				for r := from; r < to; r += abreast {
					own := grids[r/abreast*s.groups:][:s.groups]
					s.gptqBlock(&blocks[worker], own, part[r*w+j1-i1:], w, shift, r, min(abreast, to-r), i0, i1-i0)
				}
			})
			s.e.add(shift[j0:], k, n, i0-j0, i1-i0, operand{Data: part[j1-i1:], Stride: w}, operand{Data: s.f.u[j0*k+i0:], Stride: k, Transposed: true})
			i1 = i0
		}
		s.e.add(shift, k, n, j0, w, operand{Data: part, Stride: w}, s.f.above(above, j0, j1))
		j1 = j0
	}
}

// abreast is the number of rows that choose the codes of a block together, with independent sums.
const abreast = vec.ColumnLanes

func (s *solver) columnGrids() []vec.ColumnGrids {
	tiles := (s.n + abreast - 1) / abreast
	grids := buffer.Grow(&s.buf.grids, tiles*s.groups)
	s.e.rows(tiles, 1, func(_, from, to int) {
		for i := from * s.groups; i < to*s.groups; i++ {
			r, group := i/s.groups*abreast, i%s.groups
			g := &grids[i]
			*g = vec.ColumnGrids{Half: s.common.half, Least: s.common.least, Most: s.common.most}
			for c := range min(abreast, s.n-r) {
				one := s.grid(r+c, group)
				g.Scale[c], g.Inverse[c], g.Zero[c], g.Whole[c], g.Offset[c] = one.scale, one.inverse, one.zero, one.whole, one.offset
			}
		}
	})
	return grids
}

// column is a value of each of the rows that are in work.
type column = [abreast]float32

// blockRows are rows of a block in work, by column. Before a column is done, errors holds its
// targets and left their shifts; then errors holds the codes' errors, left shifted targets minus
// weights.
type blockRows struct{ errors, left, codes [block]column }

// gptqBlock chooses the codes of m rows from row r in columns j0 to j0+w-1, with the rows' grids,
// and writes their errors to part, with rows stride values apart.
func (s *solver) gptqBlock(b *blockRows, grids []vec.ColumnGrids, part []float32, stride int, shift []float32, r, m, j0, w int) {
	k := s.k
	for i := range m {
		at := (r+i)*k + j0
		shifts := shift[at:][:w]
		for j, x := range s.target[at:][:w] {
			b.errors[j][i], b.left[j][i] = x, shifts[j]
		}
	}
	all := unsafe.Slice(&b.errors[0][0], w*abreast)
	if s.common.points != nil {
		s.pointCodes(b, all, r, m, j0, w)
	}
	for j := w - 1; j >= 0 && s.common.points == nil; j-- {
		var sums, target, to column
		vec.ColumnSums(&sums, all[(j+1)*abreast:], s.f.u[(j0+j)*k+j0:][j+1:w])
		if s.common.table != nil {
			s.tableCodes(b, grids[s.place[j0+j]].Inverse[:m], r, j0+j, j, &sums)
			continue
		}
		if s.held != nil {
			target = b.errors[j]
			for i, x := range target {
				to[i] = x + (b.left[j][i] + sums[i])
			}
		}
		group := s.place[j0+j]
		vec.ColumnCodes(&grids[group], &b.errors[j], &b.left[j], &b.codes[j], &sums)
		if s.held == nil {
			continue
		}
		for i := range m {
			if held := s.held.row(r + i); held[group] {
				q := float32(s.codes[(r+i)*k+j0+j])
				g := s.grid(r+i, group)
				weight := g.weight(q)
				b.codes[j][i], b.errors[j][i], b.left[j][i] = q, target[i]-weight, to[i]-weight
			}
		}
	}
	var row [block]float32
	for i := range m {
		codes := s.codes[(r+i)*k+j0:][:w]
		for j := range codes {
			part[i*stride+j], row[j], codes[j] = b.errors[j][i], b.left[j][i], int8(b.codes[j][i])
		}
		s.errs[r+i] += s.f.squares(row[:w], j0)
	}
}

// tableCodes is vec.ColumnCodes for a column of a block of rows from row r, with the codes of a
// table. at is the column's place, j its place in the block.
func (s *solver) tableCodes(b *blockRows, inverse []float32, r, at, j int, sums *column) {
	values, shifts := &b.errors[j], &b.left[j]
	for c, inv := range inverse {
		to := values[c] + (shifts[c] + sums[c])
		q := float32(s.common.table.Code(float32(to * inv)))
		weight := float32(q * s.scales[(r+c)*s.groups+s.place[at]])
		b.codes[j][c], values[c], shifts[c] = q, values[c]-weight, to-weight
	}
}

// errors returns target minus dequantized weights, in a slice to be returned to the engine.
func (s *solver) errors() []float32 {
	d := s.e.floats.Take(s.n * s.k)
	s.e.rows(s.n, 16, func(_, from, to int) {
		row := make([]grid, s.groups)
		for r := from; r < to; r++ {
			for g := range row {
				row[g] = s.grid(r, g)
			}
			for a, g := range s.place {
				i := r*s.k + a
				d[i] = s.target[i] - row[g].weight(float32(s.codes[i]))
			}
		}
	})
	return d
}

// measure returns the rows' errors. An error beyond its row's limit, if any, may be incomplete.
func (s *solver) measure(limits []float64) []float64 {
	d := s.errors()
	defer s.e.floats.Put(d)
	return s.f.weightedErrors(d, s.n, limits)
}

// refineRows is how many rows are refined at a time.
const refineRows = 256

// refine sweeps over the codes and refits the scales, of block types also the integers.
func (s *solver) refine() {
	if s.scheme.SubScales() {
		s.adjust(true)
		s.adjust(true)
	} else {
		s.sweep()
		s.sweep()
		s.adjust(false)
	}
	s.refit()
	s.sweep()
	s.errs = s.measure(nil)
}

// settle moves the integers of block types and then the codes, twice. On books3.7M, one type in all
// layers, this takes 2 to 17 % of the divergence: Q5_K and IQ3_S least, IQ2_S most.
func (s *solver) settle() {
	s.adjust(true)
	s.adjust(true)
	s.errs = s.measure(nil)
}

// sweep moves each code to the minimum of the error in turn, from the largest diagonal on.
func (s *solver) sweep() {
	k := s.k
	d := s.errors()
	grad := s.e.floats.Take(min(refineRows, s.n) * k)
	defer s.e.floats.Put(d, grad)
	for r0 := 0; r0 < s.n; r0 += refineRows {
		m := min(refineRows, s.n-r0)
		s.gradients(grad, d, r0, m)
		s.e.rows(m, 4, func(_, from, to int) {
			for r := r0 + from; r < r0+to; r++ {
				s.sweepRow(r, grad[(r-r0)*k:][:k])
			}
		})
	}
}

// sweepRow is sweep for row r, with the row's error times H.
func (s *solver) sweepRow(r int, gradient []float32) {
	if s.common.points != nil {
		s.sweepPoints(r, gradient)
		return
	}
	k, h, held := s.k, s.f.h, s.held.row(r)
	for a := k - 1; a >= 0; a-- {
		if held != nil && held[s.place[a]] {
			continue
		}
		g := s.grid(r, s.place[a])
		was := float32(s.codes[r*k+a])
		now := g.code(g.weight(was) + gradient[a]/h[a*k+a])
		if now == was {
			continue
		}
		s.codes[r*k+a] = int8(now)
		step := float32((now - was) * g.scale)
		for b, v := range h[a*k:][:a] { // the columns behind a are done
			gradient[b] -= float32(step * v)
		}
	}
}

// gradients sets grad to d H for m rows of errors d from row r0.
func (s *solver) gradients(grad, d []float32, r0, m int) {
	k := s.k
	s.e.product(grad, m, k, k, operand{Data: d[r0*k:], Stride: k}, operand{Data: s.f.h, Stride: k})
}

func (s *solver) result() (*rounding.Codes, error) {
	c := rounding.NewCodes(s.scheme.Shape(s.n, s.k))
	err := s.e.pool.Pieces(s.n, 16, func(_, from, to int) error {
		codes := make([]int8, s.k)
		for r := from; r < to; r++ {
			for a, j := range s.f.order {
				codes[j] = s.codes[r*s.k+a]
			}
			if err := s.store(c.Row(r), r, codes); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}
