package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
)

// matrix is a quantized matrix with trained scales and, possibly, codes. A group g of a row stands
// for
//
//	(q + offset[g]) scale sub[g]        scale of the unit that g belongs to
//	q scale sub[g] + minimum least[g]   types with minima
//
// Units are groups, or blocks of K and IQ types with 8 or 16 groups, their factors sub, and the
// integers least.
type matrix struct {
	plan.Matrix
	shape  rounding.Shape
	width  int // columns of a group
	groups int // of a row
	per    int // groups of a unit

	codes  []int8  // [Rows][Cols]
	zeros  []int8  // [Rows][groups], as in the file; nil without
	offset float32 // without zero points: 0, or 1/2 on the half-step grid
	unit   float32 // of zero points
	subs   []int8  // [Rows][groups]; nil: all are 1
	part   float32 // of sub-scales, see rounding.Scheme.SubUnit
	leasts []uint8 // [Rows][groups], of types with integer minima

	scales *factors // [Rows][units]
	mins   *factors // [Rows][units]; nil without minima
	// steps are the trained positions; the nearest integers are the codes. nil: codes stay.
	steps    *trained
	soft     *soft  // relaxed codes, instead of codes; nil: codes are not relaxed
	lo, hi   int    // codes
	still    []bool // groups with fixed codes; nil: none
	embedded bool   // rows are looked up
}

func newMatrix(m plan.Matrix, c *rounding.Codes) (*matrix, error) {
	t := &matrix{Matrix: m, shape: c.Shape, width: c.Group, groups: c.Groups(), per: 1, part: m.Scheme.SubUnit()}
	t.lo, t.hi = m.Scheme.CodeRange()
	if c.Type != 0 {
		return t, t.unpack(c)
	}
	t.codes, t.zeros = c.Values, c.Zeros
	t.unit = 1 / float32(int(1)<<c.ZeroShift)
	if c.HalfStep {
		t.offset = .5
	}
	t.scales = newFactors(c.Scales, m.Scheme.ScaleDtype, m.SmallestScale, 1, 0)
	return t, nil
}

func (t *matrix) unpack(c *rounding.Codes) error {
	var f gguf.Fields
	if err := c.Type.Unpack(&f, c.Blocks); err != nil {
		return fmt.Errorf("%q: %w", t.Name(), err)
	}
	units := t.Cols / c.Type.BlockWeights()
	t.per, t.codes = t.groups/units, f.Codes
	if len(f.SubScales) > 0 {
		t.subs = f.SubScales
	}
	if len(f.SubMins) > 0 {
		t.leasts = f.SubMins
	}
	t.scales = newFactors(f.Scales, packing.ScaleF16, 0, 1, 0)
	if len(f.Mins) > 0 {
		t.mins = newFactors(f.Mins, packing.ScaleF16, 0, 1, 0)
	}
	return nil
}

func (t *matrix) units() int { return t.groups / t.per }

// train makes the scales parameters: a factor for all scales of a row, or for each scale.
func (t *matrix) train(perRow bool, rate float64) {
	per := 1
	if perRow {
		per = t.units()
		t.scales.still = t.silent()
	}
	if t.Scheme.Mapping == rounding.MappingMXFP4 { // the next power of two is far
		t.scales.still = slices.Repeat([]bool{true}, len(t.scales.base))
	}
	t.scales.per, t.scales.by = per, newTrained(len(t.scales.base)/per, rate)
	if t.mins == nil {
		return
	}
	if t.mins.per, t.mins.by = per, t.scales.by; !perRow {
		t.mins.by = newTrained(len(t.mins.base), rate)
	}
}

// silent are the scales of all-zero weights. A group of zeros has scale 1 for its readers.
func (t *matrix) silent() []bool {
	if t.mins != nil || t.per > 1 {
		return nil
	}
	list := make([]bool, t.Rows*t.groups)
	any := false
	for r := range t.Rows {
		for g := range t.groups {
			all, off := true, t.off(r*t.groups+g)
			for k := g * t.width; k < min((g+1)*t.width, t.Cols) && all; k++ {
				all = float32(t.codes[r*t.Cols+k])+off == 0
			}
			list[r*t.groups+g] = all
			any = any || all
		}
	}
	if !any {
		return nil
	}
	return list
}

// off is the offset of the codes of group i, counted over all rows.
func (t *matrix) off(i int) float32 {
	if t.zeros == nil {
		return t.offset
	}
	return -float32(float32(t.zeros[i]) * t.unit)
}

// line is the scale of group i, counted over all rows, and the minimum that is added.
func (t *matrix) line(i int) (scale, least float32) {
	u := i / t.per
	scale = t.scales.value[u]
	if t.subs != nil {
		scale = float32(scale * float32(t.part*float32(t.subs[i])))
	}
	if t.mins == nil {
		return scale, 0
	}
	return scale, float32(t.mins.value[u] * t.sign(i))
}

// sign is the factor of group i's minimum.
func (t *matrix) sign(i int) float32 {
	if t.leasts == nil {
		return 1
	}
	return -float32(t.leasts[i])
}

func (t *matrix) row(dst []float32, row int) {
	if t.soft != nil {
		rowOf(t, dst, row, t.soft.value)
		return
	}
	rowOf(t, dst, row, t.codes)
}

func rowOf[T int8 | float32](t *matrix, dst []float32, row int, all []T) {
	codes := all[row*t.Cols:][:t.Cols]
	for g := range t.groups {
		i := row*t.groups + g
		scale, least := t.line(i)
		from, to := g*t.width, min((g+1)*t.width, t.Cols)
		if t.mins != nil {
			for k := from; k < to; k++ {
				dst[k] = float32(float32(codes[k])*scale) + least
			}
			continue
		}
		off := t.off(i)
		for k := from; k < to; k++ {
			dst[k] = float32((float32(codes[k]) + off) * scale)
		}
	}
}

// gradient adds the gradient of row, d loss / d weight, to parameters. Rows may run in parallel.
func (t *matrix) gradient(row int, dw []float32) {
	switch {
	case t.soft != nil:
		gradientOf(t, row, dw, t.soft.value, t.soft.grad)
	case t.steps != nil:
		gradientOf(t, row, dw, t.codes, t.steps.grad)
	default:
		gradientOf(t, row, dw, t.codes, nil)
	}
}

func gradientOf[T int8 | float32](t *matrix, row int, dw []float32, all []T, grads []float32) {
	codes := all[row*t.Cols:][:t.Cols]
	for g := range t.groups {
		i := row*t.groups + g
		from, to := g*t.width, min((g+1)*t.width, t.Cols)
		off := float32(0)
		if t.mins == nil {
			off = t.off(i)
		}
		sum, total := float32(0), float32(0)
		for k := from; k < to; k++ {
			sum += float32(dw[k] * (float32(codes[k]) + off))
			total += dw[k]
		}
		if t.subs != nil {
			sum = float32(sum * float32(t.part*float32(t.subs[i])))
		}
		t.scales.add(i/t.per, sum)
		if t.mins != nil {
			t.mins.add(i/t.per, float32(total*t.sign(i)))
		}
		if grads == nil || t.still[i] {
			continue
		}
		scale, _ := t.line(i)
		grad := grads[row*t.Cols:][:t.Cols]
		for k := from; k < to; k++ {
			grad[k] += float32(dw[k] * scale)
		}
	}
}

// factorGradient adds the gradients of all rows if each row has a single parameter, given d loss /
// d f of a factor f of each present row. A row is its first weights times 1 + parameter.
func (t *matrix) factorGradient(factors []float32) {
	by := t.scales.by
	for row, v := range factors {
		if now := 1 + by.x[row]; now != 0 {
			by.grad[row] += float32(v / now)
		}
	}
}

// refresh computes the scales and codes of rows from their parameters.
func (t *matrix) refresh(from, to int) {
	n := t.units()
	t.scales.refresh(from*n, to*n)
	if t.mins != nil {
		t.mins.refresh(from*n, to*n)
	}
	if t.steps == nil {
		return
	}
	for i := from * t.Cols; i < to*t.Cols; i++ {
		code := int(math.RoundToEven(float64(max(-300, min(t.steps.x[i], 300)))))
		t.codes[i] = int8(min(max(code, t.lo), t.hi))
	}
}

// ReadRow copies a row in the file's form.
func (t *matrix) ReadRow(row int, dst rounding.Row) error {
	n := t.units()
	codes := t.codes[row*t.Cols:][:t.Cols]
	if t.shape.Type == 0 {
		copy(dst.Codes, codes)
		copy(dst.Scales, t.scales.value[row*n:][:n])
		if t.zeros != nil {
			copy(dst.Zeros, t.zeros[row*n:][:n])
		}
		return nil
	}
	f := gguf.Fields{Codes: codes, Scales: t.scales.value[row*n:][:n]}
	if t.mins != nil {
		f.Mins = t.mins.value[row*n:][:n]
	}
	if t.subs != nil {
		f.SubScales = t.subs[row*t.groups:][:t.groups]
	}
	if t.leasts != nil {
		f.SubMins = t.leasts[row*t.groups:][:t.groups]
	}
	return t.shape.Type.Encode(dst.Blocks, f)
}

func (t *matrix) Lookup(dst []float32, row int) error {
	t.row(dst, row)
	return nil
}

// apart reports whether codes are of a table or points of a lattice: the next integer is no code.
func (t *matrix) apart() bool { return t.Scheme.Table() != nil || t.Scheme.Points() != nil }

// trainCodes makes the codes parameters, as soften.
func (t *matrix) trainCodes(rate float64, weights func(dst []float32, first, rows int) error) error {
	if t.apart() {
		return nil
	}
	t.steps = newTrained(len(t.codes), rate)
	return t.eachRow(weights, func(row int, w []float32) {
		t.place(row, w, t.steps.x[row*t.Cols:][:t.Cols], reach)
	})
}

// eachRow calls f for every row with its weights in the checkpoint.
func (t *matrix) eachRow(weights func(dst []float32, first, rows int) error, f func(row int, w []float32)) error {
	t.still = make([]bool, t.Rows*t.groups)
	const rows = 64
	var buf []float32
	for first := 0; first < t.Rows; first += rows {
		n := min(rows, t.Rows-first)
		x := buffer.Grow(&buf, n*t.Cols)
		if err := weights(x, first, n); err != nil {
			return err
		}
		for r := range n {
			f(first+r, x[r*t.Cols:][:t.Cols])
		}
	}
	return nil
}

// reach is how far a position begins from its code towards the checkpoint's weight. At .49 all
// codes may change in the first steps, and small losses have grown (see the package's document).
const reach = .35

// place sets u to the first positions of the codes of a row with weights w: at most reach from the
// codes. It finds the groups with fixed codes.
func (t *matrix) place(row int, w, u []float32, reach float32) {
	for g := range t.groups {
		i := row*t.groups + g
		scale, least := t.line(i)
		off, zero := float32(0), true
		if t.mins == nil {
			off = t.off(i)
		}
		for k := g * t.width; k < min((g+1)*t.width, t.Cols); k++ {
			q, at := float32(t.codes[row*t.Cols+k]), float32(0)
			if scale != 0 {
				at = (w[k]-least)/scale - off - q
			}
			zero = zero && w[k] == 0
			u[k] = q + max(-reach, min(at, reach))
		}
		// A group of zeros has scale 1: a step of a code would be large.
		t.still[i] = zero || scale == 0
	}
}

// gains are the factors of a norm, stored in the checkpoint's dtype.
type gains struct {
	plan.Vector
	*factors
}

// dtypes of vectors, as dtypes of scales.
var vectorDtypes = map[packing.Dtype]packing.ScaleDtype{packing.F32: packing.ScaleF32, packing.F16: packing.ScaleF16, packing.BF16: packing.ScaleBF16}

func (j *job) openGains(rate float64) error {
	vectors := map[string]plan.Vector{}
	for _, v := range j.plan.Vectors() {
		vectors[v.Name] = v
	}
	j.gainsOf = map[string]*gains{}
	for _, n := range j.student.Norms() {
		v, ok := vectors[n.Tensor]
		if !ok || v.Size != n.Width {
			continue
		}
		stored, err := j.student.NormGains(n.Tensor)
		if err != nil {
			return err
		}
		minus := float32(0)
		if n.PlusOne {
			minus = 1
			for i := range stored {
				stored[i]++
			}
		}
		g := &gains{v, newFactors(stored, vectorDtypes[v.Dtype], 0, 1, rate)}
		g.minus = minus
		j.gains, j.gainsOf[n.Tensor] = append(j.gains, g), g
		j.all = append(j.all, g.by)
	}
	return nil
}

func (j *job) setGains() error {
	for _, g := range j.gains {
		g.refresh(0, len(g.value))
		if _, err := j.student.SetNorm(g.Name, g.stored()); err != nil {
			return err
		}
	}
	return nil
}

func (g *gains) stored() []float32 {
	list := make([]float32, len(g.value))
	for i, v := range g.value {
		list[i] = v - g.minus
	}
	return list
}

func (j *job) vectors() map[string][]byte {
	list := map[string][]byte{}
	for _, g := range j.gains {
		g.refresh(0, len(g.value))
		if slices.Equal(g.value, g.base) {
			continue
		}
		list[g.Name] = write.AppendFloats(nil, g.stored(), g.dtype)
	}
	return list
}
