package calib

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// grid is the grid of a group: code q stands for float32((q - zero + half) * scale) + offset.
type grid struct {
	scale, inverse float32
	zero           float32 // zero point
	whole          float32 // its integer part; the rest is 0 unless zero points are fractions
	half           float32 // 1/2 on the half-step grid
	offset         float32 // of block types with minima
	least, most    float32 // codes

	table  *rounding.Table  // the codes where they are no range of integers; else nil
	points *rounding.Points // the codes where several are a point of a lattice; else nil
	sub    float32          // see rounding.Scheme.SubUnit
}

// roundMagic is 1.5 * 2^23: x + roundMagic - roundMagic rounds |x| < 2^22, ties to even.
const roundMagic = 3 << 22

func (g *grid) code(w float32) float32 {
	if g.table != nil {
		return float32(g.table.Code(float32(w * g.inverse)))
	}
	t := float32((w-g.offset)*g.inverse) - g.half + (g.zero - g.whole)
	t = min(max(t, g.least-g.whole), g.most-g.whole)
	return float32(t+roundMagic) - roundMagic + g.whole
}

func (g *grid) weight(q float32) float32 {
	return float32((q-g.zero+g.half)*g.scale) + g.offset
}

// grids are the grids of a matrix's groups, by rows and by groups in the natural order of columns.
type grids struct {
	scheme  rounding.Scheme
	columns int
	groups  int // of a row
	scales  []float32
	zeros   []int8        // nil unless gq's own grids have zero points
	unit    float32       // of zeros
	offsets []float32     // nil unless the scheme has a block type
	blocks  []gguf.Fields // of rows, without codes: scales and offsets follow; nil likewise
	common  grid          // the fields that all groups share

	smallest float32 // scale that the layouts can store
}

func newGrids(s rounding.Scheme, rows, k int) *grids {
	g := &grids{scheme: s, columns: k, groups: s.Groups(k), unit: s.ZeroUnit()}
	least, most := s.CodeRange()
	g.common.least, g.common.most, g.common.table = float32(least), float32(most), s.Table()
	g.common.points, g.common.sub = s.Points(), s.SubUnit()
	if s.Mapping == gqf.MappingHalfStep {
		g.common.half = 0.5
	}
	n := rows * g.groups
	g.scales = make([]float32, n)
	switch {
	case s.Type != 0:
		g.offsets, g.blocks = make([]float32, n), make([]gguf.Fields, rows)
	case s.Mapping == gqf.MappingAsymmetric:
		g.zeros = make([]int8, n)
	}
	return g
}

func (g *grids) grid(r, group int) grid {
	one, i := g.common, r*g.groups+group
	one.scale = g.scales[i]
	if one.scale != 0 { // a sub-scale may be 0, and all codes stand for the offset
		one.inverse = 1 / one.scale
	}
	if g.zeros != nil {
		one.zero = float32(float32(g.zeros[i]) * g.unit)
		one.whole = float32(one.zero+roundMagic) - roundMagic
	}
	if g.offsets != nil {
		one.offset = g.offsets[i]
	}
	return one
}

func (g *grids) clone() *grids {
	c := *g
	c.scales, c.zeros, c.offsets = slices.Clone(g.scales), slices.Clone(g.zeros), slices.Clone(g.offsets)
	c.blocks = slices.Clone(g.blocks)
	for i := range c.blocks {
		c.setBlocks(i, g.blocks[i])
	}
	return &c
}

func (g *grids) copyRow(r int, o *grids) {
	at := r * g.groups
	copy(g.scales[at:][:g.groups], o.scales[at:])
	if g.zeros != nil {
		copy(g.zeros[at:][:g.groups], o.zeros[at:])
	}
	if g.blocks != nil {
		g.setBlocks(r, o.blocks[r])
	}
}

func (g *grids) setBlocks(r int, f gguf.Fields) {
	g.blocks[r] = gguf.Fields{
		Scales: slices.Clone(f.Scales), Mins: slices.Clone(f.Mins),
		SubScales: slices.Clone(f.SubScales), SubMins: slices.Clone(f.SubMins),
	}
	g.blocksChanged(r)
}

func (g *grids) blocksChanged(r int) {
	at := r * g.groups
	g.scheme.GroupGrids(g.scales[at:][:g.groups], g.offsets[at:][:g.groups], &g.blocks[r])
}

type rowQuantizer struct {
	*rounding.RowQuantizer
	row    rounding.Row
	fields gguf.Fields
}

func (g *grids) rowQuantizer(weights []float32, flat bool) (*rowQuantizer, error) {
	s := g.scheme
	s.Algorithm = gqf.AlgorithmSearch
	q, err := rounding.NewRowQuantizer(s, g.columns)
	if err != nil {
		return nil, err
	}
	q.Weigh(weights, flat)
	q.LimitScales(g.smallest)
	return &rowQuantizer{RowQuantizer: q, row: rounding.NewCodes(s.Shape(1, g.columns)).Row(0)}, nil
}

// search sets row r's grids and returns its codes, valid until the next call.
func (g *grids) search(q *rowQuantizer, r int, x []float32) ([]int8, error) {
	if g.blocks != nil {
		if err := q.QuantizeBlocks(q.row.Blocks, x, nil); err != nil {
			return nil, err
		}
		if err := g.scheme.Type.Unpack(&q.fields, q.row.Blocks); err != nil {
			return nil, err
		}
		g.setBlocks(r, q.fields)
		return q.fields.Codes, nil
	}
	at := r * g.groups
	if g.zeros != nil {
		q.row.Zeros = g.zeros[at:][:g.groups]
	}
	return q.row.Codes, q.Quantize(q.row.Codes, g.scales[at:][:g.groups], q.row.Zeros, x, nil)
}

// store sets dst to row r with its codes in the natural order of columns.
func (g *grids) store(dst rounding.Row, r int, codes []int8) error {
	if g.blocks != nil {
		f := g.blocks[r]
		f.Codes = codes
		return g.scheme.Type.Encode(dst.Blocks, f)
	}
	copy(dst.Codes, codes)
	copy(dst.Scales, g.scales[r*g.groups:])
	if g.zeros != nil {
		copy(dst.Zeros, g.zeros[r*g.groups:])
	}
	return nil
}

// The numbers of a row that a refit may change are its knobs: scales of gq's own grids; or d and,
// for types with minima, dmin of each block. A weight is a sum of knobs times steps from the codes.

// span is the number of groups that share a knob, and kinds how many knobs a group has.
func (g *grids) span() (span, kinds int) {
	if g.blocks == nil {
		return 1, 1
	}
	f := &g.blocks[0]
	kinds = 1
	if f.Mins != nil {
		kinds = 2
	}
	return g.groups / len(f.Scales), kinds
}

// step is how much a weight with code q of row r grows with a knob of a kind.
func (g *grids) step(kind, r, group int, q float32) float32 {
	if g.blocks == nil {
		one := g.grid(r, group)
		return q - one.zero + one.half
	}
	f := &g.blocks[r]
	switch {
	case kind == 0 && f.SubScales == nil:
		return q
	case kind == 0:
		return q * float32(g.common.sub*float32(f.SubScales[group]))
	case f.SubMins == nil:
		return 1
	}
	return -float32(f.SubMins[group])
}

func (g *grids) knobs(kind, r int) []float32 {
	switch {
	case g.blocks == nil:
		return g.scales[r*g.groups:][:g.groups]
	case kind == 0:
		return g.blocks[r].Scales
	}
	return g.blocks[r].Mins
}

// turn changes a knob to v in its stored dtype, unless v cannot be stored or has the other sign.
// Scales of MXFP4 stay: the next power of two is far.
func (g *grids) turn(kind int, knob *float32, v float64) {
	if g.scheme.Mapping == rounding.MappingMXFP4 {
		return
	}
	stored := g.scheme.ScaleDtype.Round(float32(v))
	if kind > 0 { // a minimum
		if floats.Finite(stored) && (stored >= 0 || *knob < 0) {
			*knob = stored
		}
		return
	}
	if g.scheme.ScaleDtype.IsScale(stored) && (stored > 0) == (*knob > 0) && max(stored, -stored) >= g.smallest {
		*knob = stored
	}
}

// held are groups of a matrix with codes that were chosen before: the weights are on a lattice of
// the scheme, see rounding.RowQuantizer.Recover. No step changes their codes, scales and zero
// points. Other columns still compensate the difference from the target there.
type held struct {
	codes  *rounding.Codes
	groups []bool // [Rows][Groups]
	all    bool   // every group is held
}

// hold finds the groups of a matrix of weights w that are on a lattice; nil if there are none. In a
// matrix with such groups, groups of zeros are held too.
func (j *job) hold(m plan.Matrix, w []float32) (*held, error) {
	if m.Scheme.Table() != nil {
		return j.holdTable(m, w)
	}
	if m.Precision == packing.ScaleNone || m.Scheme.Type != 0 {
		return nil, nil
	}
	h := &held{codes: rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols))}
	n := h.codes.Groups()
	h.groups = make([]bool, m.Rows*n)
	zeros := make([]bool, m.Rows*n)
	err := j.e.pool.Pieces(m.Rows, 8, func(_, from, to int) error {
		q, err := m.Rounder(gqf.AlgorithmRTN)
		if err != nil {
			return err
		}
		for r := from; r < to; r++ {
			row := w[r*m.Cols:][:m.Cols]
			if err := q.Quantize(h.codes.Row(r), row); err != nil {
				return err
			}
			for g := range n {
				h.groups[r*n+g] = q.Recovered(g)
				zeros[r*n+g] = !slices.ContainsFunc(row[g*h.codes.Group:min(m.Cols, (g+1)*h.codes.Group)], func(v float32) bool { return v != 0 })
			}
		}
		return nil
	})
	if err != nil {
		return nil, matrixError(m, err)
	}
	if !slices.Contains(h.groups, true) {
		return nil, nil
	}
	for i, zero := range zeros {
		h.groups[i] = h.groups[i] || zero
	}
	h.all = !slices.Contains(h.groups, false)
	return h, nil
}

// holdTable holds a matrix of a type with a table if the blocks of round-to-nearest hold every
// weight, as MXFP4 of an MXFP4 checkpoint and TQ2_0 of a ternary checkpoint do; else nil.
func (j *job) holdTable(m plan.Matrix, w []float32) (*held, error) {
	q, err := m.Rounder(gqf.AlgorithmRTN)
	if err != nil {
		return nil, matrixError(m, err)
	}
	h, back := &held{codes: rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols)), all: true}, make([]float32, m.Cols)
	for r := range m.Rows {
		row := w[r*m.Cols:][:m.Cols]
		if err := q.Quantize(h.codes.Row(r), row); err != nil {
			return nil, matrixError(m, err)
		}
		if h.codes.DequantizeRow(back, r); !slices.Equal(back, row) {
			return nil, nil
		}
	}
	return h, nil
}

func (h *held) row(r int) []bool {
	if h == nil {
		return nil
	}
	n := h.codes.Groups()
	return h.groups[r*n:][:n]
}

// restore gives held groups their own codes, scales and zero points after a search.
func (s *solver) restore() {
	for r := range s.n {
		groups := s.held.row(r)
		if !slices.Contains(groups, true) {
			continue
		}
		own, at := s.held.codes.Row(r), r*s.groups
		for g, is := range groups {
			if !is {
				continue
			}
			s.scales[at+g] = own.Scales[g]
			if s.zeros != nil {
				s.zeros[at+g] = own.Zeros[g]
			}
		}
		for a, j := range s.f.order {
			if groups[s.place[a]] {
				s.codes[r*s.k+a] = own.Codes[j]
			}
		}
	}
}

// pin makes the unknown i of a system of n equations 0.
func pin(a, b []float64, n, i int) {
	for j := range n {
		a[i*n+j], a[j*n+i] = 0, 0
	}
	a[i*n+i], b[i] = 1, 0
}
