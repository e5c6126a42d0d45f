package vec

import (
	"fmt"
	"math"
)

// A grid of a group is scale*(q - zero) for all codes q. GridSearch and GridChoice find the best
// grid with a Fit of NewGridFit. With the codes' bits, power = 2^(14-bits), and rnd as in Fit, the
// code of a value x on a grid with the inverse c and the start d, both integers of 16 bits, is
//
//	t = sat(rnd(x*c) + d)
//	q = sat(4*t) >> (16-bits)
//
// where sat brings an integer into the range of int16, and >> rounds down: x*c/2^15/power +
// d/power, rounded down and brought into the range of the codes. A product within the range of
// int16 is at most four times as large as the largest step. A group has the sums, converted to
// float32,
//
//	A += rnd(w*x) * q
//	B += w*q*q
//	N += w*q

// GridSearch has the grids of FitLanes groups for SearchGrids, and the best grids so far.
type GridSearch struct {
	// Inverse times a candidate's Factor is c, Start plus its Shift is d. Both are finite.
	Inverse, Start [FitLanes]float32
	// The score of a candidate is a*a/b, for a = A + A0 + N*A1 and b = B + B0 + N*(B1 + N*B2).
	A0, A1, B0, B1, B2 [FitLanes]float32
	// The highest score, and the a, b and N of its candidate.
	Score, A, B, N [FitLanes]float32
}

type GridStart struct{ Factor, Shift float32 }

// GridChoices is the largest number of grids that ChooseGrids compares.
const GridChoices = 8

// GridChoice has the grids of FitLanes groups that ChooseGrids compares.
type GridChoice struct {
	// Values and Weights are the results of Totals.
	Values, Weights [FitLanes]float32
	// Scale is in units of 2^15, not 0; Zero is a code, not rounded.
	Scale, Zero [GridChoices][FitLanes]float32
	// Choice is the index of the best grid.
	Choice [FitLanes]int32
}

// leastGridB is the smallest b. A smaller b may be nothing but the rounding of its terms.
const leastGridB = 256

// NewGridFit returns a Fit for SearchGrids and ChooseGrids, groups up to a size and 1 to 8 bits.
func NewGridFit(group, bits int) *Fit {
	if group <= 0 || bits < 1 || bits > 8 {
		panic(fmt.Sprintf("vec: a fit of groups of %d with codes of %d bits", group, bits))
	}
	f := newFit(group, 1<<(bits-1))
	f.bits, f.power = bits, float32(int(1)<<(14-bits))
	return f
}

// Power is the number of units of Start, Shift and the inverse of a Scale in a step.
func (f *Fit) Power() float32 { return f.power }

// Totals sets Values to the sums of rnd(w*x), and Weights to the sums of the weights.
func (f *Fit) Totals(c *GridChoice) {
	if !assembled() {
		fitTotalsGeneric(f, c)
		return
	}
	fitTotalsBlock(&c.Values[0], &f.data[0], f.width)
}

// SearchGrids replaces the results of s if a candidate of list has a higher score. The length of
// list is a multiple of 4. In float32, with every step rounded, for each candidate, in order:
//
//	c = Factor*Inverse, d = Shift + Start, brought into -32767 .. 32767, rounded to even
//	a = (A + A0) + N*A1
//	b = max((B + B0) + N*(B1 + N*B2), 256)
//	score = a*a/b
func (f *Fit) SearchGrids(s *GridSearch, list []GridStart) {
	if len(list) == 0 || len(list)%4 != 0 || f.bits == 0 {
		panic(fmt.Sprintf("vec: search of %d grids with codes of %d bits", len(list), f.bits))
	}
	switch accelerated.Chosen() {
	case portable:
		searchGridsGeneric(f, s, list)
	case wide:
		searchGridsWide(&s.Inverse[0], &list[0].Factor, &f.data[0], f.width, len(list)/4, 16-f.bits)
	default:
		searchGridsBlock(&s.Inverse[0], &list[0].Factor, &f.data[0], f.width, len(list)/4, 16-f.bits)
	}
}

// ChooseGrids sets Choice to the first of so many grids, a multiple of 4, with the largest gain. In
// float32, with every step rounded:
//
//	c = power/Scale, d = Zero*power + power/2, brought into -32767 .. 32767, rounded to even
//	p = A - Zero*Values
//	r = (B - Zero*(N+N)) + (Zero*Zero)*Weights
//	gain = Scale*((p+p) - Scale*r)
func (f *Fit) ChooseGrids(c *GridChoice, count int) {
	if count <= 0 || count > GridChoices || count%4 != 0 || f.bits == 0 {
		panic(fmt.Sprintf("vec: choice of %d grids with codes of %d bits", count, f.bits))
	}
	switch accelerated.Chosen() {
	case portable:
		chooseGridsGeneric(f, c, count)
	case wide:
		chooseGridsWide(&c.Choice[0], &c.Values[0], &f.data[0], f.width, count, 16-f.bits, f.power)
	default:
		chooseGridsBlock(&c.Choice[0], &c.Values[0], &f.data[0], f.width, count, 16-f.bits, f.power)
	}
}

func gridInteger(v float32) int16 { return integer(min(max(v, -math.MaxInt16), math.MaxInt16)) }

func saturated(v int) int { return min(max(v, math.MinInt16), math.MaxInt16) }

func (f *Fit) gridSums(g int, c, d int16) (a, b, n float32) {
	var sumA, sumB, sumN int32
	for at := 2 * g; at < len(f.data); at += fitPair {
		for i := at; i < at+2; i++ {
			t := saturated(int(scaled(f.data[i], c)) + int(d))
			q := int32(saturated(4*t) >> (16 - f.bits))
			w := int32(f.data[i+4*FitLanes])
			sumA += int32(f.data[i+2*FitLanes]) * q
			sumB += w * q * q
			sumN += w * q
		}
	}
	return float32(sumA), float32(sumB), float32(sumN)
}

func fitTotalsGeneric(f *Fit, c *GridChoice) {
	for g := range FitLanes {
		var values, weights int32
		for at := 2 * g; at < len(f.data); at += fitPair {
			for i := at; i < at+2; i++ {
				values += int32(f.data[i+2*FitLanes])
				weights += int32(f.data[i+4*FitLanes])
			}
		}
		c.Values[g], c.Weights[g] = float32(values), float32(weights)
	}
}

func searchGridsGeneric(f *Fit, s *GridSearch, list []GridStart) {
	for g := range FitLanes {
		for _, l := range list {
			a, b, n := f.gridSums(g, gridInteger(float32(l.Factor*s.Inverse[g])), gridInteger(l.Shift+s.Start[g]))
			a = (a + s.A0[g]) + float32(n*s.A1[g])
			b = (b + s.B0[g]) + float32(n*(s.B1[g]+float32(n*s.B2[g])))
			if !(b > leastGridB) {
				b = leastGridB
			}
			if score := float32(a*a) / b; score > s.Score[g] {
				s.Score[g], s.A[g], s.B[g], s.N[g] = score, a, b, n
			}
		}
	}
}

func chooseGridsGeneric(f *Fit, c *GridChoice, count int) {
	for g := range FitLanes {
		best := float32(math.Inf(-1))
		c.Choice[g] = 0
		for i := range count {
			s, z := c.Scale[i][g], c.Zero[i][g]
			a, b, n := f.gridSums(g, gridInteger(f.power/s), gridInteger(float32(z*f.power)+f.power/2))
			p := a - float32(z*c.Values[g])
			r := (b - float32(z*(n+n))) + float32(float32(z*z)*c.Weights[g])
			if gain := float32(s * ((p + p) - float32(s*r))); gain > best {
				best, c.Choice[g] = gain, int32(i)
			}
		}
	}
}

// ColumnLanes is the number of sums of ColumnSums.
const ColumnLanes = 32

// ColumnSums multiplies a row by a matrix of ColumnLanes columns: sum[c] is the sum of v[i] *
// e[ColumnLanes*i+c], in order of i from 0 on. Products and sums are rounded to float32 each.
// len(e) is ColumnLanes*len(v). The values must be finite, else which NaN results is undefined.
func ColumnSums(sum *[ColumnLanes]float32, e, v []float32) {
	if len(e) != ColumnLanes*len(v) {
		panic(fmt.Sprintf("vec: %d values in rows of %d for %d factors", len(e), ColumnLanes, len(v)))
	}
	if !assembled() || len(v) == 0 {
		columnSumsGeneric(sum, e, v)
		return
	}
	columnSumsBlock(&sum[0], &e[0], &v[0], len(v))
}

func columnSumsGeneric(sum *[ColumnLanes]float32, e, v []float32) {
	clear(sum[:])
	for i, f := range v {
		for c, x := range e[ColumnLanes*i:][:ColumnLanes] {
			sum[c] += float32(x * f)
		}
	}
}

// ColumnGrids are the grids of ColumnLanes rows: code q of row c stands for (q - Zero[c] + Half) *
// Scale[c] + Offset[c]. Inverse is 1/Scale, and Whole the integer next to Zero.
type ColumnGrids struct {
	Scale, Inverse, Zero, Whole, Offset [ColumnLanes]float32
	// Least and Most bound the codes; magnitudes are below 2^20
	Half, Least, Most float32
}

// ColumnCodes chooses the codes of a column for targets values + (shifts + sums), rounds them to
// nearest, ties to even, and sets values to values minus the codes' weights, shifts to the targets
// minus these weights, and codes. Every operation is rounded to float32. The values must be finite.
func ColumnCodes(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	if !assembled() {
		columnCodesGeneric(g, values, shifts, codes, sums)
		return
	}
	columnCodesBlock(&g.Scale[0], &values[0], &shifts[0], &codes[0], &sums[0])
}

func columnCodesGeneric(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	for c, x := range values {
		zero, whole := g.Zero[c], g.Whole[c]
		to := x + (shifts[c] + sums[c])
		t := float32((to-g.Offset[c])*g.Inverse[c]) - g.Half + (zero - whole)
		t = min(max(t, g.Least-whole), g.Most-whole)
		q := float32(t+roundMagic) - roundMagic + whole
		weight := float32((q-zero+g.Half)*g.Scale[c]) + g.Offset[c]
		codes[c], values[c], shifts[c] = q, x-weight, to-weight
	}
}
