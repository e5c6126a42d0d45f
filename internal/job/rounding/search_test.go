package rounding

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// studentT5 returns n numbers of Student's distribution with 5 degrees of freedom.
func studentT5(seed uint64, n int) []float32 {
	x, c := testrows.Gaussian(seed, n), testrows.Gaussian(seed+1, 5*n)
	for i := range x {
		sum := 0.0
		for _, v := range c[5*i : 5*i+5] {
			sum += float64(v) * float64(v)
		}
		x[i] = float32(float64(x[i]) / math.Sqrt(sum/5))
	}
	return x
}

// searchSQNR is the SQNR of all rows of k weights of x.
func searchSQNR(t testing.TB, s Scheme, x []float32, k int, flat bool) float64 {
	t.Helper()
	rq, err := NewRowQuantizer(s, k)
	if err != nil {
		t.Fatal(err)
	}
	rq.Weigh(nil, flat)
	codes, scales, zeros := make([]int8, k), make([]float32, s.Groups(k)), make([]int8, s.Groups(k))
	var acc vec.ErrorSum
	for r := 0; r < len(x); r += k {
		if err := rq.Quantize(codes, scales, zeros, x[r:r+k], &acc); err != nil {
			t.Fatal(err)
		}
	}
	noise, signal := acc.Total()
	return 10 * math.Log10(signal/noise)
}

// TestSearchSQNR compares the search, without weights, with a float32 prototype of llama.cpp's
// make_qx_quants on other random numbers. The search may exceed it.
func TestSearchSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "it compares figures, which are the same natively")
	const k = 1024
	rows := 512
	if testing.Short() {
		rows = 48
	}
	for _, d := range []struct {
		name string
		x    []float32
		want map[int][2]float64 // dB by bits: groups of 32 and of 128
	}{
		{"gauss", testrows.Gaussian(2026, rows*k), map[int][2]float64{2: {9.52, 8.65}, 3: {15.79, 14.51}, 4: {21.86, 20.24}, 8: {45.86, 44.04}}},
		{"t5", studentT5(2027, rows*k), map[int][2]float64{2: {8.57, 7.10}, 3: {14.00, 11.79}, 4: {19.73, 16.98}, 8: {43.70, 40.58}}},
	} {
		for bits, want := range d.want {
			for i, group := range []int{32, 128} {
				s := Scheme{Bits: bits, Group: group, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}
				got := searchSQNR(t, s, d.x, k, true)
				if got < want[i]-0.1 {
					t.Errorf("%s %s: %.2f dB, want %.2f", d.name, s, got, want[i])
				}
				t.Logf("%s %s: %.2f dB, with large weights counting more %.2f; the prototype %.2f", d.name, s, got, searchSQNR(t, s, d.x, k, false), want[i])
			}
		}
	}
}

// TestSearchExhaustive compares with all scales near enough to matter, for small groups.
func TestSearchExhaustive(t *testing.T) {
	seeds, most := uint64(40), 4
	if testing.Short() {
		seeds, most = 10, 2
	}
	for _, kind := range []Scheme{
		{Mapping: gqf.MappingFullRange}, {Mapping: gqf.MappingSymmetric}, {Mapping: gqf.MappingAsymmetric}, {Mapping: gqf.MappingHalfStep},
		{Mapping: gqf.MappingAsymmetric, Fractions: true},
	} {
		for bits := 1; bits <= most; bits++ {
			m := kind.Mapping
			s := Scheme{Bits: bits, Group: 16, Mapping: m, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch, Fractions: kind.Fractions}
			if s.ValidateCommand() != nil {
				continue
			}
			if kind.Fractions && (bits > 2 || testing.Short()) {
				continue // 256 zero points
			}
			var found, best float64
			for seed := range seeds {
				x := testrows.Gaussian(seed, 16)
				f, b := mustQuantizeRow(t, s, x).losses(s, x)[0], exhaustive(s, x)
				if f < b*(1-1e-5) {
					t.Errorf("%s: loss %g of row %d is less than the least, %g", s, f, seed, b)
				}
				found, best = found+f, best+b
			}
			limit := 1.01
			switch m {
			case gqf.MappingAsymmetric: // not all pairs of zero point and scale are tried
				limit = 1.03
			case gqf.MappingHalfStep: // exact except for the rounding of the scale
				limit = 1.0001
			}
			if kind.Fractions {
				limit = 1.05
			}
			if found > limit*best {
				t.Errorf("%s: losses of %g, the least are %g", s, found, best)
			}
		}
	}
}

// exhaustive is the least loss of a group with any BF16 scale and zero point.
func exhaustive(s Scheme, x []float32) float64 {
	var m float32
	for _, v := range x {
		m = max(m, floats.Abs(v))
	}
	qmin, qmax := codeRange(s.Bits)
	zeros := []int8{0}
	if s.Mapping == gqf.MappingAsymmetric {
		zeros = nil
		for z := qmin << s.ZeroShift(); z < (qmax+1)<<s.ZeroShift(); z++ {
			zeros = append(zeros, int8(z))
		}
	}
	least := math.Inf(1)
	r := &quantizedRow{codes: make([]int8, len(x)), scales: make([]float32, 1), half: s.Mapping == gqf.MappingHalfStep, unit: s.ZeroUnit()}
	if s.Mapping == gqf.MappingAsymmetric {
		r.zeros = make([]int8, 1)
	}
	w := weigh(x)
	try := func(scale float32) {
		r.scales[0] = scale
		for _, z := range zeros {
			if r.zeros != nil {
				r.zeros[0] = z
			}
			r.roundGroup(0, x, scale, float32(z)*r.unit, float32(qmin), float32(qmax))
			sum := 0.0
			for i := 0; i < len(x) && sum < least; i++ { // no term is negative
				e := r.errorOf(x, i, 0)
				sum += w[i] * e * e
			}
			least = min(least, sum)
		}
	}
	for b := math.Float32bits(m/float32(int(4)<<s.Bits)) >> 16; b <= math.Float32bits(2*m)>>16; b++ {
		scale := math.Float32frombits(b << 16)
		if try(scale); !s.Positive() {
			try(-scale)
		}
	}
	return least
}

// TestSearchImplementations checks that the assembly and the portable code of package vec give the
// same bytes, for every algorithm.
func TestSearchImplementations(t *testing.T) {
	for _, a := range allAlgorithms {
		for _, m := range []Scheme{{Mapping: gqf.MappingFullRange}, {Mapping: gqf.MappingSymmetric}, {Mapping: gqf.MappingAsymmetric}, {Mapping: gqf.MappingAsymmetric, Fractions: true}} {
			for _, group := range []int{16, 32, 80, 0} {
				s := Scheme{Bits: 4, Group: group, Mapping: m.Mapping, ScaleDtype: packing.ScaleBF16, Algorithm: a, Fractions: m.Fractions}
				x := oddRow(uint64(group), 1003)
				var want *quantizedRow
				for _, cpu := range []string{"generic", ""} {
					asmtest.Restrict(t, cpu)
					got := mustQuantizeRow(t, s, x)
					if want == nil {
						want = got
						continue
					}
					sameBits(t, "scale", got.scales, want.scales)
					sameCodes(t, "zero point", got.zeros, want.zeros)
					sameCodes(t, "code", got.codes, want.codes)
					if got.sum != want.sum {
						t.Errorf("%s: other sums", s)
					}
				}
			}
		}
	}
}

// TestSearchExtremes checks that weights whose squares overflow float32 are rounded to nearest.
func TestSearchExtremes(t *testing.T) {
	for _, m := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingAsymmetric, gqf.MappingHalfStep} {
		for _, size := range []float32{0x1p-115, 0x1p-80, 0x1p-40, 0x1p50, 0x1p70, 0x1p120} {
			for _, group := range []int{32, 0} {
				s := Scheme{Bits: 2, Group: group, Mapping: m, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmSearch}
				x := testrows.Gaussian(3, 300)
				for i := range x {
					x[i] *= size
				}
				checkRow(t, s, mustQuantizeRow(t, s, x), x)
			}
		}
	}
}

// TestLimitScales checks that a search stays within the scales of the layout.
func TestLimitScales(t *testing.T) {
	for _, m := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingAsymmetric, gqf.MappingHalfStep} {
		s := Scheme{Bits: 2, Group: 32, Mapping: m, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}
		x := testrows.Gaussian(5, 32)
		r := mustQuantizeRow(t, s, x)
		s.Algorithm = gqf.AlgorithmSearch
		limit := floats.Abs(mustQuantizeRow(t, s, x).scales[0]) * 1.01
		rq, err := NewRowQuantizer(s, 32)
		if err != nil {
			t.Fatal(err)
		}
		rq.LimitScales(limit)
		scales := make([]float32, 1)
		if err := rq.Quantize(make([]int8, 32), scales, make([]int8, 1), x, nil); err != nil || floats.Abs(scales[0]) < limit && scales[0] != r.scales[0] {
			t.Errorf("%s: the scale %g (%v) is below %g", s, scales[0], err, limit)
		}
	}
}

// TestHalfStepZeros checks that a group of zeros, or nearly, gets the smallest scale.
func TestHalfStepZeros(t *testing.T) {
	for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
		s := Scheme{Bits: 2, Group: 16, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleBF16, Algorithm: a}
		x := make([]float32, 48)
		x[16], x[32] = 1e-41, 1
		r := mustQuantizeRow(t, s, x)
		if r.scales[0] != 0x1p-126 || r.scales[1] != 0x1p-126 || r.scales[2] < 0.1 {
			t.Errorf("%s: scales %g", s, r.scales)
		}
	}
}
