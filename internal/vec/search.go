package vec

import (
	"fmt"
	"math"
)

// SearchLanes is the number of scales that a call of SearchScales tries.
const SearchLanes = 32

// Search holds the scales that SearchScales tries and its results.
type Search struct {
	// For candidate c: the inverse of its scale in units of the call's unit, and the least and
	// greatest steps, qmin-z and qmax-z, within -256 .. 255.
	Inv, Lo, Hi [SearchLanes]float32
	// Product is the sum of w*x*q; Score is the square of Product over the sum of w*q*q.
	Product, Score [SearchLanes]float32
}

// SearchScales finds for each candidate of s the steps q nearest to the values of a group x. Score
// is the reduction of the group's squared error, weighted by w, with the best scale for these
// steps: Product/sum(w*q*q) = Score/Product. In float32, with every step rounded, for candidate c
// and the values in order:
//
//	t = min(max(x*(Inv[c]*unit), Lo[c]), Hi[c])
//	q = t rounded to the nearest integer, ties to even
//	v = w*q
//	a += v*x
//	b += v*q
//
// a and b start at zero and are added to their totals A and B after each 256 values and at the end.
// Then Product[c] = A and Score[c] = A*A/B, or 0 where that is NaN.
//
// The lengths of x and w are the same, at least 1. All arguments and each product Inv[c]*unit must
// be finite, and weights not negative; otherwise the results are undefined.
func SearchScales(s *Search, unit float32, x, w []float32) {
	checkWeights(x, w)
	searchScales(s, unit, x, w)
}

// FinalLanes is the number of scales that a call of ScaleErrors measures.
const FinalLanes = 8

// Final holds the scales that ScaleErrors measures and its results.
type Final struct {
	// For candidate c: the scale, not zero, its inverse finite, and the least and greatest steps.
	Scale, Lo, Hi [FinalLanes]float32
	// Error is the weighted squared error.
	Error [FinalLanes]float32
}

// ScaleErrors sums for each candidate of f the weighted squared errors of a group x with the
// candidate's scale. In float32, with every step rounded, for candidate c and value i:
//
//	t = min(max(x*(1/Scale[c]), Lo[c]), Hi[c])
//	q = t rounded to the nearest integer, ties to even
//	e = x - q*Scale[c]
//	sum[i%2] += (w*e)*e
//
// sum[0] and sum[1] start at zero; their sum is added to Error[c] after each 256 values and at the
// end.
//
// The conditions of SearchScales hold.
func ScaleErrors(f *Final, x, w []float32) {
	checkWeights(x, w)
	scaleErrors(f, x, w)
}

func checkWeights(x, w []float32) {
	if len(x) != len(w) || len(x) == 0 {
		panic(fmt.Sprintf("vec: %d weights of %d values", len(w), len(x)))
	}
}

// SumSquares returns the sum of the squares of x, added as QuantizeGroups adds a group's signal.
func SumSquares(x []float32) float64 {
	var sum [Lanes]float64
	sumSquares(&sum, x)
	return tree(sum)
}

// Importance sets w to the weights of errors of x: w[i] = sqrt(1 + (x[i]*x[i])*inverse), with every
// step rounded to float32. len(w) is len(x).
func Importance(w, x []float32, inverse float32) {
	if len(w) != len(x) {
		panic(fmt.Sprintf("vec: %d weights of %d values", len(w), len(x)))
	}
	importance(w, x, inverse)
}

func searchScalesGeneric(s *Search, unit float32, x, w []float32) {
	for c := range SearchLanes {
		inv, lo, hi := float32(s.Inv[c]*unit), s.Lo[c], s.Hi[c]
		var sumA, sumB float32
		for start := 0; start < len(x); start += flushEvery {
			end := min(len(x), start+flushEvery)
			var a, b float32
			for i, v := range x[start:end] {
				q := nearest(float32(v*inv), lo, hi)
				p := float32(w[start+i] * q)
				a += float32(p * v)
				b += float32(p * q)
			}
			sumA += a
			sumB += b
		}
		score := float32(sumA*sumA) / sumB
		if score != score {
			score = 0
		}
		s.Product[c], s.Score[c] = sumA, score
	}
}

func scaleErrorsGeneric(f *Final, x, w []float32) {
	for c := range FinalLanes {
		scale, lo, hi := f.Scale[c], f.Lo[c], f.Hi[c]
		inv := 1 / scale
		var total float32
		for start := 0; start < len(x); start += flushEvery {
			end := min(len(x), start+flushEvery)
			var sum [2]float32
			for i, v := range x[start:end] {
				e := v - float32(nearest(float32(v*inv), lo, hi)*scale)
				sum[i%2] += float32(float32(w[start+i]*e) * e)
			}
			total += sum[0] + sum[1]
		}
		f.Error[c] = total
	}
}

func nearest(t, lo, hi float32) float32 {
	if t < lo {
		t = lo
	}
	if t > hi {
		t = hi
	}
	return float32(t+roundMagic) - roundMagic
}

// sumSquaresGeneric adds to sum; x begins at lane 0.
func sumSquaresGeneric(sum *[Lanes]float64, x []float32) {
	for len(x) > 0 {
		n := min(len(x), flushEvery)
		var run [Lanes]float32
		for i, v := range x[:n] {
			run[i%Lanes] += float32(v * v)
		}
		for i := range Lanes {
			sum[i] += float64(run[i])
		}
		x = x[n:]
	}
}

func importanceGeneric(w, x []float32, inverse float32) {
	for i, v := range x {
		w[i] = float32(math.Sqrt(float64(1 + float32(float32(v*v)*inverse))))
	}
}

// Near has a scale of each of FitLanes groups. NearScales looks for scales next to these.
type Near struct {
	From [FitLanes]uint32 // bits of the scales
	// Present are the groups' present scales, and Unit the factors of scaled.
	Present, Unit [FitLanes]float32
}

// NearScales sets stored to scales that a group may have, and scaled to their products with Unit:
// at index 0 the present scales, and at index 1+i the scales with the bits From + distances[i].
// Where the bits of a magnitude are not within least .. most, the present scale stands instead.
func NearScales(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	if len(distances) == 0 || len(stored) != 1+len(distances) || len(scaled) != len(stored) || most > math.MaxInt32 || least > most {
		panic(fmt.Sprintf("vec: %d scales for %d distances, within %#x .. %#x", len(stored), len(distances), least, most))
	}
	nearScales(stored, scaled, n, distances, least, most)
}

func nearScalesGeneric(stored, scaled [][FitLanes]float32, n *Near, distances []uint32, least, most uint32) {
	stored[0] = n.Present
	for i, v := range n.Present {
		scaled[0][i] = float32(v * n.Unit[i])
	}
	for c, d := range distances {
		stored, scaled := &stored[1+c], &scaled[1+c]
		for i, from := range n.From {
			bits := from + d
			if bits&^(1<<31)-least > most-least {
				bits = math.Float32bits(n.Present[i])
			}
			v := math.Float32frombits(bits)
			stored[i], scaled[i] = v, float32(v*n.Unit[i])
		}
	}
}
