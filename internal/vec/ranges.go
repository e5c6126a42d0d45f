package vec

// Ranges holds the grids that FitRanges tries and its results.
type Ranges struct {
	// For candidate c: the inverse of its scale in units of the call's unit, and how many steps its
	// grid starts above the call's base.
	Inv, Cut [SearchLanes]float32
	// Product is the sum of w*x*q, Sum the sum of w*q. Score is the reduction of the squared error
	// with the best scale and offset for these steps: the scale is Score/Product.
	Product, Sum, Score [SearchLanes]float32
}

// FitRanges finds for each candidate of s the steps q, 0 to most, nearest to the values of a group
// x with weighted mean zero. Score is the reduction of the group's squared error, weighted by w,
// with the best scale and offset for these steps. inverse is the inverse of the sum of the weights.
// In float32, with every step rounded, for candidate c and the values in order:
//
//	i = Inv[c]*unit
//	t = min(max(x*i + (base*i - Cut[c]), 0), most)
//	q = t rounded to the nearest integer, ties to even
//	v = w*q
//	n += v
//	a += v*x
//	b += v*q
//
// Then Product[c] = a, Sum[c] = n and Score[c] = a*a/(b - n*n*inverse), or 0 where that is negative
// or NaN.
//
// The lengths of x and w are the same, at least 1. All arguments and each product Inv[c]*unit must
// be finite, and weights not negative; otherwise the results are undefined.
func FitRanges(s *Ranges, unit, base, inverse, most float32, x, w []float32) {
	checkWeights(x, w)
	fitRanges(s, unit, base, inverse, most, x, w)
}

// Grids holds the grids that GridErrors measures and its results.
type Grids struct {
	// For candidate c: the scale, not zero and with a finite inverse, and the offset.
	Scale, Offset [FinalLanes]float32
	// Error is the weighted squared error.
	Error [FinalLanes]float32
}

// GridErrors sums for each candidate of f the weighted squared errors of a group x on the grid
// q*Scale + Offset, q from least to most. In float32, with every step rounded, for candidate c and
// value i:
//
//	t = min(max((x-Offset[c])*(1/Scale[c]), least), most)
//	q = t rounded to the nearest integer, ties to even
//	e = x - (q*Scale[c] + Offset[c])
//	sum[i%2] += (w*e)*e
//
// Error[c] is sum[0] + sum[1]. The conditions of FitRanges hold.
func GridErrors(f *Grids, least, most float32, x, w []float32) {
	checkWeights(x, w)
	gridErrors(f, least, most, x, w)
}

func fitRangesGeneric(s *Ranges, unit, base, inverse, most float32, x, w []float32) {
	for c := range SearchLanes {
		inv := float32(s.Inv[c] * unit)
		shift := float32(base*inv) - s.Cut[c]
		var n, a, b float32
		for i, v := range x {
			q := nearest(float32(v*inv)+shift, 0, most)
			p := float32(w[i] * q)
			n += p
			a += float32(p * v)
			b += float32(p * q)
		}
		score := float32(a*a) / (b - float32(float32(n*n)*inverse))
		if !(score > 0) {
			score = 0
		}
		s.Product[c], s.Sum[c], s.Score[c] = a, n, score
	}
}

func gridErrorsGeneric(f *Grids, least, most float32, x, w []float32) {
	for c := range FinalLanes {
		scale, offset := f.Scale[c], f.Offset[c]
		inv := 1 / scale
		var sum [2]float32
		for i, v := range x {
			q := nearest(float32((v-offset)*inv), least, most)
			e := v - (float32(q*scale) + offset)
			sum[i%2] += float32(float32(w[i]*e) * e)
		}
		f.Error[c] = sum[0] + sum[1]
	}
}
