package rowmath

import (
	"math"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
)

// Set is an implementation. All implementations give the same bits.
type Set struct {
	// MulAdd adds to each dst[i][j], i < m, j < n, the products a[i][l] * b[l][j] for l = 0, 1, ...,
	// k-1, in this order, each rounded to float32 before the addition. Row i of a matrix begins at i
	// times its stride.
	//
	//	for l := range k {
	//		dst[i*dstStride+j] += float32(a[i*aStride+l] * b[l*bStride+j])
	//	}
	MulAdd func(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int)

	// Softmax sets each x[i] to e^(x[i]-max) / sum:
	//
	//	e := detmath.ExpNarrow(max(-693, float64(x[i]-highest)))   of a float32 difference
	//	x[i] = float32(float32(e) * float32(1/sum))
	//
	// The sum has 8 lanes of float64. Lane i % 8 adds the exponential of x[i]; the lanes are added
	// as a tree.
	Softmax func(x []float32)

	// Gate sets each gate[i] to x / (1 + e^u) * up[i], for x = gate[i] and u = linear * (x +
	// cubic*x^3) in float64:
	//
	//	u := linear * (x + cubic*(x*(x*x)))
	//	gate[i] = float32(float32(x/(1+detmath.ExpNarrow(max(-693, min(693, u))))) * up[i])
	Gate func(gate, up []float32, linear, cubic float64)

	// Exp sets each dst[i] to e^(x[i]-highest), in float64:
	//
	//	dst[i] = detmath.ExpNarrow(max(-693, float64(x[i])-float64(highest)))
	//
	// x may be longer than dst. All x[i] are finite and at most highest.
	Exp func(dst []float64, x []float32, highest float32)
}

// ExpSum is Exp, and returns the sum of dst in order.
func (s *Set) ExpSum(dst []float64, x []float32, highest float32) (sum float64) {
	s.Exp(dst, x, highest)
	for _, e := range dst {
		sum += e
	}
	return sum
}

// Coefficients of Gate. By the identity x/2 (1 + tanh v) = x / (1 + e^-2v), GELU with tanh has this
// form, with v = sqrt(2/pi) (x + 0.044715 x^3).
const (
	SiluLinear, SiluCubic = -1, 0
	GeluLinear, GeluCubic = -2 * 0.7978845608028653558798921198687637, 0.044715
)

var Sets = cpu.NewFamily("rowmath", &Set{mulAddGeneric, softmaxGeneric, gateGeneric, expGeneric})

// least is the smallest exponent with an effect on a sum of at least 1.
const least = -693

func sum8(l *[8]float64) float64 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// constants are detmath.ExpNarrow's, for the assembly. The last two are the arguments' range.
var constants = [...]float64{
	math.Log2E, 0x1.8p52, ln2Hi, ln2Lo,
	1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
	least, -least,
}

const (
	ln2Hi = 0x1.62e42fefp-1
	ln2Lo = math.Ln2 - ln2Hi
)

func mulAddGeneric(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int) {
	for i := range m {
		row, x := dst[i*dstStride:][:n], a[i*aStride:][:k]
		j := 0
		for ; j+8 <= n; j += 8 {
			out := (*[8]float32)(row[j:])
			s := *out
			at := j
			for _, v := range x {
				w := (*[8]float32)(b[at:])
				s[0] += float32(v * w[0])
				s[1] += float32(v * w[1])
				s[2] += float32(v * w[2])
				s[3] += float32(v * w[3])
				s[4] += float32(v * w[4])
				s[5] += float32(v * w[5])
				s[6] += float32(v * w[6])
				s[7] += float32(v * w[7])
				at += bStride
			}
			*out = s
		}
		for ; j < n; j++ {
			s, at := row[j], j
			for _, v := range x {
				s += float32(v * b[at])
				at += bStride
			}
			row[j] = s
		}
	}
}

func softmaxGeneric(x []float32) {
	var lanes [8]float64
	highest := highestGeneric(x, float32(math.Inf(-1)))
	expSumGeneric(x, highest, &lanes)
	scaleGeneric(x, float32(1/sum8(&lanes)))
}

func highestGeneric(x []float32, highest float32) float32 {
	for _, v := range x {
		if v > highest {
			highest = v
		}
	}
	return highest
}

// expSumGeneric is the part of Softmax that replaces x by e^(x-highest) and adds each to lanes,
// x[0] to the first lane.
func expSumGeneric(x []float32, highest float32, lanes *[8]float64) {
	for i, v := range x {
		e := detmath.ExpNarrow(max(least, float64(v-highest)))
		x[i] = float32(e)
		lanes[i&7] += e
	}
}

func scaleGeneric(x []float32, factor float32) {
	for i, v := range x {
		x[i] = float32(v * factor)
	}
}

func gateGeneric(gate, up []float32, linear, cubic float64) {
	up = up[:len(gate)]
	for i, v := range gate {
		x := float64(v)
		u := float64(linear * (x + float64(cubic*float64(x*float64(x*x)))))
		e := detmath.ExpNarrow(max(least, min(-least, u)))
		gate[i] = float32(float32(x/(1+e)) * up[i])
	}
}

func expGeneric(dst []float64, x []float32, highest float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = detmath.ExpNarrow(max(least, float64(v)-float64(highest)))
	}
}
