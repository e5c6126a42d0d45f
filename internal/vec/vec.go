package vec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Lanes is the number of partial sums of an error sum: value i of a group is in lane i % Lanes.
const Lanes = 16

// flushEvery is the number of values of a group after which float32 lanes are added to the float64
// lanes. flushEvery bounds the rounding error of a lane: 16 additions in float32, for every group
// size.
const flushEvery = 256

// WidenBF16 converts the little-endian BF16 values of src to float32, exactly and for any bits (NaN
// payloads stay). len(src) is 2*len(dst); src needs no alignment.
func WidenBF16(dst []float32, src []byte) {
	checkWiden(len(dst), len(src))
	if n := len(dst) &^ (Lanes - 1); assembled() && n > 0 {
		widenBF16Block(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	widenBF16Generic(dst, src)
}

// WidenF16 converts the little-endian IEEE binary16 values of src to float32: exact for all numbers
// including subnormals and infinities. A NaN keeps its sign and payload and becomes quiet (bit 22
// set), as hardware does. len(src) is 2*len(dst); src needs no alignment.
func WidenF16(dst []float32, src []byte) {
	checkWiden(len(dst), len(src))
	if n := len(dst) &^ (Lanes - 1); assembled() && n > 0 {
		widenF16Block(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	widenF16Generic(dst, src)
}

// GroupRange stores the range of each run of group values of x, zero included: lo[g] = min(0, ...)
// and hi[g] = max(0, ...), where zeros are +0 whatever the signs of zeros in x. The last run may be
// short; len(lo) and len(hi) are Groups(len(x), group). finite is false if x holds a NaN or an
// infinity; lo and hi are then undefined.
func GroupRange(lo, hi, x []float32, group int) (finite bool) {
	n := Groups(len(x), group)
	if len(lo) != n || len(hi) != n {
		panic(fmt.Sprintf("vec: %d values in groups of %d need %d ranges, not %d and %d", len(x), group, n, len(lo), len(hi)))
	}
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		return groupRangeGeneric(lo, hi, x, group)
	}
	var top uint32
	if groups > 0 {
		top = groupRangeBlock(&lo[0], &hi[0], &x[0], groups, group)
		lo, hi, x = lo[groups:], hi[groups:], x[groups*group:]
	}
	if last == 0 {
		return top < expMask
	}
	whole := last &^ (Lanes - 1)
	finite = groupRangeGeneric(lo, hi, x[whole:], last)
	if whole > 0 {
		var low, high float32
		top = max(top, groupRangeBlock(&low, &high, &x[0], 1, whole))
		lo[0], hi[0] = min(lo[0], low), max(hi[0], high)
	}
	return finite && top < expMask
}

// LeastLanes is the number of results of LeastMagnitudes for each group.
const LeastLanes = 4

// LeastMagnitudes finds the least magnitudes but zero of each run of group values of x. The last
// run may be short. least[LeastLanes*g + j] is the minimum over the values i of run g with i %
// LeastLanes = j of 2 b - 1, where b are the bits of the value without its sign, and of 2^32 - 1,
// for which zeros stand too. len(least) is LeastLanes*Groups(len(x), group).
func LeastMagnitudes(least []uint32, x []float32, group int) {
	if n := Groups(len(x), group); len(least) != LeastLanes*n {
		panic(fmt.Sprintf("vec: %d values in groups of %d need %d least magnitudes, not %d", len(x), group, LeastLanes*n, len(least)))
	}
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		leastMagnitudesGeneric(least, x, group)
		return
	}
	if groups > 0 {
		leastMagnitudesBlock(&least[0], &x[0], groups, group)
	}
	least, x = least[LeastLanes*groups:], x[groups*group:]
	if last == 0 {
		return
	}
	whole := last &^ (Lanes - 1)
	leastMagnitudesGeneric(least, x[whole:], last)
	if whole > 0 {
		var m [LeastLanes]uint32
		leastMagnitudesBlock(&m[0], &x[0], 1, whole)
		for i, v := range m {
			least[i] = min(least[i], v)
		}
	}
}

// QuantizeGroups chooses the code of each value of x, cut into runs of group values (the last may
// be short), and adds the squared errors and squared values to acc. For value i of group g, in
// float32, with every step rounded:
//
//	t = min(max(x*inv[g], qmin-z), qmax-z)   z = zero[g], or 0 if zero is nil
//	r = t rounded to the nearest integer, ties to even
//	q = r + z
//	e = x - r*scale[g]
//	noise[i%Lanes] += e*e, signal[i%Lanes] += x*x
//
// At a group's end, and after each 256 values of a longer group, the float32 sums are added to
// acc's lanes as float64 and restart from zero. An x*x beyond float32 makes acc infinite; an x*x
// below the smallest denormal adds nothing.
//
// len(q) is len(x); scale, inv and (unless nil) zero have Groups(len(x), group) elements; -128 <=
// qmin <= qmax <= 127. x (see GroupRange), scale and inv must be finite; otherwise codes and acc
// are undefined. QuantizeGroups does not retain its arguments.
func QuantizeGroups(q []int8, x, scale, inv []float32, zero []int8, group, qmin, qmax int, acc *ErrorSum) {
	checkQuantize(q, x, scale, inv, zero, group, qmin, qmax)
	quantizeGroups(q, x, scale, inv, zero, nil, group, qmin, qmax, acc)
}

// QuantizeFractions is QuantizeGroups with zero points zero[g] - fraction[g]:
//
//	t = min(max(x*inv[g] + fraction[g], qmin-z), qmax-z)
//	e = x - (r-fraction[g])*scale[g]
//
// fraction is within -1/2 .. 1/2.
func QuantizeFractions(q []int8, x, scale, inv []float32, zero []int8, fraction []float32, group, qmin, qmax int, acc *ErrorSum) {
	checkQuantize(q, x, scale, inv, zero, group, qmin, qmax)
	if len(fraction) != len(scale) {
		panic(fmt.Sprintf("vec: %d fractions of %d groups", len(fraction), len(scale)))
	}
	quantizeGroups(q, x, scale, inv, zero, fraction, group, qmin, qmax, acc)
}

func checkQuantize(q []int8, x, scale, inv []float32, zero []int8, group, qmin, qmax int) {
	n := Groups(len(x), group)
	if len(q) != len(x) || len(scale) != n || len(inv) != n || zero != nil && len(zero) != n {
		panic(fmt.Sprintf("vec: %d values in groups of %d need %d codes and %d scales, inverses and zero points, not %d, %d, %d and %d",
			len(x), group, len(x), n, len(q), len(scale), len(inv), len(zero)))
	}
	if qmin < -128 || qmin > qmax || qmax > 127 {
		panic(fmt.Sprintf("vec: codes from %d to %d are not a range of int8", qmin, qmax))
	}
}

// Groups returns the number of groups of n values: n/group, rounded up. group must be positive.
func Groups(n, group int) int {
	if group <= 0 {
		panic(fmt.Sprintf("vec: group size %d", group))
	}
	return n/group + min(n%group, 1)
}

func checkWiden(values, bytes int) {
	if bytes != 2*values {
		panic(fmt.Sprintf("vec: %d values of 2 bytes from %d bytes", values, bytes))
	}
}

// WidenF32 reads the little-endian float32 values of src, bit by bit. len(src) is 4*len(dst).
// Copying in pieces of constant length needs no bounds checks: 23 GB/s instead of 3, in the cache
// of an AMD EPYC.
func WidenF32(dst []float32, src []byte) {
	if len(src) != 4*len(dst) {
		panic(fmt.Sprintf("vec: %d bytes of float32 for %d values", len(src), len(dst)))
	}
	for len(dst) >= 8 && len(src) >= 32 {
		d, s := dst[:8], src[:32]
		d[0] = math.Float32frombits(binary.LittleEndian.Uint32(s[0:]))
		d[1] = math.Float32frombits(binary.LittleEndian.Uint32(s[4:]))
		d[2] = math.Float32frombits(binary.LittleEndian.Uint32(s[8:]))
		d[3] = math.Float32frombits(binary.LittleEndian.Uint32(s[12:]))
		d[4] = math.Float32frombits(binary.LittleEndian.Uint32(s[16:]))
		d[5] = math.Float32frombits(binary.LittleEndian.Uint32(s[20:]))
		d[6] = math.Float32frombits(binary.LittleEndian.Uint32(s[24:]))
		d[7] = math.Float32frombits(binary.LittleEndian.Uint32(s[28:]))
		dst, src = dst[8:], src[32:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// ErrorSum accumulates the quantization error of QuantizeGroups: per lane the sum of squared errors
// and of squared values. The zero value is an empty sum. The result depends on the order of rows,
// so goroutines that share the work keep a sum per row, or per fixed block of rows, and combine the
// sums with Add in a fixed order.
type ErrorSum struct {
	Noise, Signal [Lanes]float64
}

func (s *ErrorSum) Add(o *ErrorSum) {
	for i := range Lanes {
		s.Noise[i] += o.Noise[i]
		s.Signal[i] += o.Signal[i]
	}
}

// Total adds the lanes in a fixed tree: lane i and i+8, then i and i+4, i+2, i+1.
func (s *ErrorSum) Total() (noise, signal float64) {
	return tree(s.Noise), tree(s.Signal)
}

func tree(v [Lanes]float64) float64 {
	for half := Lanes / 2; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

// level says which assembly runs. level is a number, because calls through function variables would
// make the arguments of these functions escape to the heap.
//
// The assembly (kernels_amd64.go, kernels_arm64.go) needs positive counts, and values in multiples
// of 16. The functions here cut calls into such pieces; the portable code does the rest.
type level int

const (
	portable level = iota
	neon
	avx2
	wide // AVX2, and AVX-512 with VNNI for some functions
)

var accelerated = cpu.NewFamily("vec", portable)

func assembled() bool { return accelerated.Chosen() != portable }

// onX86 is assembled for functions without NEON.
func onX86() bool { return accelerated.Chosen() >= avx2 }

// noZero stands in for absent zero points.
var noZero int8

func quantizeGroups(q []int8, x, scale, inv []float32, zero []int8, fraction []float32, group, qmin, qmax int, acc *ErrorSum) {
	groups, last, ok := cut(len(x), group)
	if !assembled() || !ok {
		quantizeGroupsGeneric(q, x, scale, inv, zero, fraction, group, qmin, qmax, acc)
		return
	}
	block := func(q []int8, x, scale, inv []float32, z *int8, zeroStep int, fraction []float32, groups, group int) {
		if fraction != nil {
			quantizeFractionsBlock(&q[0], &x[0], &scale[0], &inv[0], z, &fraction[0], zeroStep, groups, group, qmin, qmax, &acc.Noise[0])
			return
		}
		quantizeGroupsBlock(&q[0], &x[0], &scale[0], &inv[0], z, zeroStep, groups, group, qmin, qmax, &acc.Noise[0])
	}
	z, zeroStep := &noZero, 0
	if groups > 0 {
		if zero != nil {
			z, zeroStep = &zero[0], 1
		}
		block(q, x, scale, inv, z, zeroStep, fraction, groups, group)
	}
	if last == 0 {
		return
	}
	q, x, scale, inv = q[groups*group:], x[groups*group:], scale[groups:], inv[groups:]
	if zero != nil {
		z = &zero[groups]
	}
	var f float32
	if fraction != nil {
		fraction = fraction[groups:]
		f = fraction[0]
	}
	// The sums of a group restart after every flushEvery values, so the group can only be cut
	// there.
	whole := last
	if last%Lanes != 0 {
		whole = last &^ (flushEvery - 1)
	}
	if whole > 0 {
		block(q, x, scale, inv, z, 0, fraction, 1, whole)
	}
	quantizeRun(q[whole:], x[whole:], scale[0], inv[0], f, int(*z), qmin, qmax, acc)
}

// cut returns the number of whole groups of n values for the assembly, and the number of values
// after the groups. ok is false if a group size that is not a multiple of Lanes has several groups
// begin within a row.
func cut(n, group int) (groups, last int, ok bool) {
	if group%Lanes != 0 {
		return 0, n, group >= n
	}
	return n / group, n % group, true
}

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
	if !assembled() {
		fitRangesGeneric(s, unit, base, inverse, most, x, w)
		return
	}
	fitRangesBlock(&s.Inv[0], unit, base, inverse, most, &x[0], &w[0], len(x))
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
	if !assembled() {
		gridErrorsGeneric(f, least, most, x, w)
		return
	}
	gridErrorsBlock(&f.Scale[0], least, most, &x[0], &w[0], len(x))
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
