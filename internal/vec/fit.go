package vec

import (
	"fmt"
	"math"
	"math/bits"
)

const (
	// FitLanes is the number of groups of a Fit.
	FitLanes = 16
	// FitStarts is the number of scales that Fit.Search starts from.
	FitStarts = 16
	// FitChoices is the number of scales that Fit.Choose compares.
	FitChoices = 4
)

// A Fit finds scales of FitLanes groups at once, in integers of 16 bits: the values of a group, in
// units of its largest magnitude, and their weights. Lanes are groups, so no sum crosses lanes, and
// sums of integers are the same in any order. A Fit is for searches only: codes are chosen in
// float32, see QuantizeGroups. Its methods are not for concurrent use.
//
// For a scale, let c be its inverse times power, as an integer. For a group's value x and its
// weight w,
//
//	q = min(max(rnd(rnd(x*c) * 2^15/power), least), most)
//	A += rnd(w*x) * q
//	B += w*q*q
//
// where rnd(a*b) is (a*b + 2^14) >> 15, and power is the number of units of a step.
type Fit struct {
	// Unit multiplies the values of a group, Weight their weights; Offset is then added to the values.
	// The results are within -32767 .. 32767 and 0 .. MaxWeight. A group with Unit 0 has no result.
	Unit, Weight, Offset [FitLanes]float32
	// MaxWeight is the largest integer for a weight with which no sum exceeds 31 bits.
	MaxWeight float32
	// Scale is the result of Search: the scale in units of Unit, or 0 if no start has a score.
	Scale [FitLanes]float32
	// Stored are the scales that Choose compares, in units of Unit, 0 only with Unit. Choice is the
	// best.
	Stored [FitChoices][FitLanes]float32
	Choice [FitLanes]int32

	group  int
	width  int // group rounded up to a multiple of Lanes
	starts [FitStarts][FitLanes]uint32
	limits [fitLimits]uint32
	bits   int     // of codes, see NewGridFit
	power  float32 // units of a step
	// for each pair of values: values, products with the weights, weights; [FitLanes][2] each
	data []int16
	rest []float32 // values and weights of groups that are not FitLanes whole groups
}

// Indexes of limits. As a vector of int16, limits holds each number twice.
const (
	fitUnit = iota // 2^15/power
	fitLeast
	fitMost
	fitHalf  // power/2: rnd(a * 2^15/power) is (a + power/2) >> fitShift
	fitShift // the logarithm of power
	fitLimits
)

const fitPair = 3 * 2 * FitLanes

// fitMargin is how much a scale of Choose may be smaller than the smallest scale of Search.
const fitMargin = 1.25

// NewFit returns a Fit for groups of up to so many values. Search puts a value to the steps starts,
// not 0, if its product with Unit is 32768. least and most are the steps at the ends, within -128
// .. 127.
func NewFit(group int, starts *[FitStarts]float32, least, most int) *Fit {
	if group <= 0 || least < -128 || most > 127 || least > 0 || most < 0 {
		panic(fmt.Sprintf("vec: a fit of groups of %d with steps from %d to %d", group, least, most))
	}
	largest := float32(max(-least, most))
	for _, c := range starts {
		largest = max(largest, c, -c)
	}
	f := newFit(group, max(-least, most, 1))
	f.power = 1 << 14
	for f.power*largest*fitMargin > math.MaxInt16 {
		f.power /= 2
	}
	shift := bits.TrailingZeros(uint(f.power))
	f.limits = [fitLimits]uint32{
		twice(int16((1 << 15) / f.power)), twice(int16(least)), twice(int16(most)), twice(int16(f.power / 2)), twice(int16(shift)),
	}
	for i, c := range starts {
		for g := range FitLanes {
			f.starts[i][g] = twice(int16(math.RoundToEven(float64(c * f.power))))
		}
	}
	return f
}

// newFit returns a Fit without candidates for steps within -step .. step.
func newFit(group, step int) *Fit {
	width := (group + Lanes - 1) &^ (Lanes - 1)
	return &Fit{
		group: group, width: width, data: make([]int16, fitPair*width/2),
		MaxWeight: float32(min(math.MaxInt16, math.MaxInt32/(step*step*width))),
	}
}

func twice(v int16) uint32 { return uint32(uint16(v)) | uint32(uint16(v))<<16 }

// Load takes the values x and weights w of up to FitLanes groups of consecutive values; the last
// group may be short. In float32, with every step rounded, then to the nearest integer, ties to
// even: x*Unit + Offset and w*Weight.
func (f *Fit) Load(x, w []float32) {
	if len(x) != len(w) || len(x) == 0 || len(x) > FitLanes*f.group {
		panic(fmt.Sprintf("vec: %d weights of %d values for %d groups of %d", len(w), len(x), FitLanes, f.group))
	}
	if len(x) == FitLanes*f.width {
		fitLoad(f, x, w)
		return
	}
	n := FitLanes * f.width
	if f.rest == nil {
		f.rest = make([]float32, 2*n)
	}
	clear(f.rest)
	for at := 0; len(x) > 0; at += f.width {
		run := min(f.group, len(x))
		copy(f.rest[at:n], x[:run])
		copy(f.rest[n+at:], w[:run])
		x, w = x[run:], w[run:]
	}
	fitLoad(f, f.rest[:n], f.rest[n:])
}

func fitLoad(f *Fit, x, w []float32) {
	if !assembled() {
		fitLoadGeneric(f, x, w)
		return
	}
	fitLoadBlock(&f.data[0], &x[0], &w[0], &f.Unit[0], f.width)
}

// Search sets Scale to the best of the scales that fit best the steps of the starts. In float32,
// with every step rounded, the score of a start is A*A/B, and its scale is A/B. The first start
// with the highest score above 0 wins.
func (f *Fit) Search() {
	switch accelerated.Chosen() {
	case portable:
		fitSearchGeneric(f)
	case wide:
		fitSearchWide(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	default:
		fitSearchBlock(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	}
}

// Choose sets Choice to the best of the scales Stored. In float32, with every step rounded, c of a
// scale s is power/s, brought into -32767 .. 32767 and rounded to the nearest integer, ties to
// even. The first scale with the largest s*((A+A) - s*B) wins.
func (f *Fit) Choose() {
	switch accelerated.Chosen() {
	case portable:
		fitChooseGeneric(f)
	case wide:
		fitChooseWide(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	default:
		fitChooseBlock(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	}
}

func fitLoadGeneric(f *Fit, x, w []float32) {
	for g := range FitLanes {
		for i := range f.width {
			d := f.data[i/2*fitPair+2*g+i%2:]
			v := integer(float32(x[g*f.width+i]*f.Unit[g]) + f.Offset[g])
			weight := integer(float32(w[g*f.width+i] * f.Weight[g]))
			d[0], d[2*FitLanes], d[4*FitLanes] = v, scaled(v, weight), weight
		}
	}
}

// integer rounds v, in the range of int16, to the nearest integer, ties to even.
func integer(v float32) int16 { return int16(float32(v+roundMagic) - roundMagic) }

func scaled(a, b int16) int16 { return int16((int32(a)*int32(b) + 1<<14) >> 15) }

func (f *Fit) sums(g int, c int16) (a, b float32) {
	unit, least, most := int16(f.limits[fitUnit]), int16(f.limits[fitLeast]), int16(f.limits[fitMost])
	var sumA, sumB int32
	for at := 2 * g; at < len(f.data); at += fitPair {
		for i := at; i < at+2; i++ {
			q := min(max(scaled(scaled(f.data[i], c), unit), least), most)
			sumA += int32(f.data[i+2*FitLanes]) * int32(q)
			sumB += int32(f.data[i+4*FitLanes]) * int32(q*q)
		}
	}
	return float32(sumA), float32(sumB)
}

func fitSearchGeneric(f *Fit) {
	for g := range FitLanes {
		var best, bestA float32
		bestB := float32(1)
		for i := range f.starts {
			a, b := f.sums(g, int16(f.starts[i][g]))
			if score := float32(a*a) / b; score > best {
				best, bestA, bestB = score, a, b
			}
		}
		f.Scale[g] = bestA / bestB
	}
}

func fitChooseGeneric(f *Fit) {
	for g := range FitLanes {
		var best float32
		for i := range f.Stored {
			s := f.Stored[i][g]
			a, b := f.sums(g, integer(min(max(f.power/s, -math.MaxInt16), math.MaxInt16)))
			if gain := float32(s * (float32(a+a) - float32(s*b))); i == 0 || gain > best {
				best, f.Choice[g] = gain, int32(i)
			}
		}
	}
}
