package vec

import (
	"fmt"
	"math"
)

// SoftLanes is the number of relaxed codes of a block, and SoftChoices the largest number of
// choices of a code.
const (
	SoftLanes   = 8
	SoftChoices = 4
)

// SoftStep is a step of Adam for the logits of relaxed codes, see StepSoft. Colder and Next are the
// inverses of the temperatures before and after the step. Slope is a power of two times Colder:
// squares of gradients times Slope must be normal numbers. Rate and Second are the learning rate
// and the factor of second moments, both corrected for their bias.
type SoftStep struct {
	Colder, Next, Slope, Rate, Second float32
}

// The constants of Adam for logits. Gradients are multiplied by Slope, so epsilon is large.
const (
	softBeta1, softRest1 float32 = .9, .1
	softBeta2, softRest2 float32 = .99, .01
	softEpsilon          float32 = 0x1p-16
)

// StepSoft moves the logits of relaxed codes against the gradient of the codes and clears the
// gradient. A block is SoftLanes codes: their logits of the first choice, then of the second, and
// so on, in x, with the moments m and v in the same order. value, grad and least have a value for
// each code. In float32, with every step rounded, for each code and its choices c = 0, 1 ..
// choices-1:
//
//	e, inverse = softmax(x, Colder)
//	d = (c*e[0] + (c-1)*e[1] + ...)*inverse
//	g = ((grad*Slope)*(e[c]*inverse))*d
//	m = .9*m + .1*g, v = .99*v + .01*(g*g)
//	x -= (Rate*m)/(sqrt(v*Second) + 2^-16)
//
// d is the distance of the choice from the mean choice, without the rounding error of the mean:
// Adam would enlarge that. Then value is least - d of choice 0, with softmax(x, Next). softmax
// is
//
//	e[c] = exp((x[c] - max(x))*colder), 0 below e^-40
//	inverse = 1/(e[0] + e[1] + ...)
//
// Here exp is Taylor's series to r^6/6! for r = x - n log 2, with a relative error below 2^-21.
func StepSoft(s *SoftStep, choices int, value, grad []float32, least []int8, x, m, v []float32) {
	n := len(value)
	if n%SoftLanes != 0 || len(grad) != n || len(least) != n || choices < 2 || choices > SoftChoices ||
		len(x) != n*choices || len(m) != len(x) || len(v) != len(x) {
		panic(fmt.Sprintf("vec: %d relaxed codes, %d gradients, %d least choices, and %d, %d and %d numbers for %d choices",
			n, len(grad), len(least), len(x), len(m), len(v), choices))
	}
	if !assembled() || n == 0 {
		stepSoftGeneric(s, choices, value, grad, least, x, m, v)
		return
	}
	stepSoftBlock(&value[0], &grad[0], &least[0], &x[0], &m[0], &v[0], n/SoftLanes, choices, &s.Colder)
}

func stepSoftGeneric(s *SoftStep, choices int, value, grad []float32, least []int8, x, m, v []float32) {
	var e [SoftChoices]float32
	for i := range value {
		at := i/SoftLanes*SoftLanes*choices + i%SoftLanes
		inverse := softmax(&e, x[at:], choices, s.Colder)
		slope := float32(grad[i] * s.Slope)
		for c := range choices {
			k := at + c*SoftLanes
			d := float32(distance(&e, choices, float32(c)) * inverse)
			g := float32(float32(slope*float32(e[c]*inverse)) * d)
			a := float32(softBeta1*m[k]) + float32(softRest1*g)
			b := float32(softBeta2*v[k]) + float32(softRest2*float32(g*g))
			m[k], v[k] = a, b
			x[k] -= float32(s.Rate*a) / (float32(math.Sqrt(float64(float32(b*s.Second)))) + softEpsilon)
		}
		inverse = softmax(&e, x[at:], choices, s.Next)
		value[i], grad[i] = float32(least[i])-float32(distance(&e, choices, 0)*inverse), 0
	}
}

func softmax(e *[SoftChoices]float32, x []float32, choices int, colder float32) (inverse float32) {
	top := x[0]
	for c := 1; c < choices; c++ {
		top = max(top, x[c*SoftLanes])
	}
	sum := float32(0)
	for c := range choices {
		e[c] = softExp(float32((x[c*SoftLanes] - top) * colder))
		sum += e[c]
	}
	return 1 / sum
}

// distance is the sum of e times the distances from the choices to c.
func distance(e *[SoftChoices]float32, choices int, c float32) (sum float32) {
	for _, v := range e[:choices] {
		sum += float32(v * c)
		c--
	}
	return sum
}

// The parts of log 2: the product of softLn2Hi and an integer below 2^8 is exact.
const (
	softLog2e float32 = math.Log2E
	softLn2Hi float32 = 0x1.62e4p-1
	softLn2Lo float32 = math.Ln2 - 0x1.62e4p-1
	softLeast float32 = -40
)

// softSeries are the factors of Taylor's series, from r^6 on.
var softSeries = [...]float32{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1}

func softExp(x float32) float32 {
	if x < softLeast {
		return 0
	}
	n := float32(float32(x*softLog2e)+roundMagic) - roundMagic
	r := x - float32(n*softLn2Hi)
	r -= float32(n * softLn2Lo)
	y := softSeries[0]
	for _, c := range softSeries[1:] {
		y = float32(y*r) + c
	}
	return math.Float32frombits(math.Float32bits(y) + uint32(int32(n))<<23)
}
