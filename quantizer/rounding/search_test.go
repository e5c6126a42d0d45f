package rounding

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/asmtest"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/internal/testrows"
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

// TestAlgorithmSQNR compares the other algorithms and mappings with prototypes: a grid of 12 x 12
// ranges with integer zero points, and HQQ with zero points rounded at the end.
func TestAlgorithmSQNR(t *testing.T) {
	const rows, k = 64, 1024
	x := testrows.Gaussian(2028, rows*k)
	for _, tt := range []struct {
		m    gqf.Mapping
		a    gqf.Algorithm
		want map[int]float64 // dB by bits, groups of 32
	}{
		{gqf.MappingAsymmetric, gqf.AlgorithmSearch, map[int]float64{2: 9.59, 3: 15.89, 4: 22.16}},
		{gqf.MappingAsymmetric, gqf.AlgorithmHQQ, map[int]float64{2: 7.79, 3: 15.21, 4: 21.84, 8: 46.37}},
		{gqf.MappingSymmetric, gqf.AlgorithmSearch, map[int]float64{2: 8.64, 3: 14.96, 4: 21.33}},
		{gqf.MappingFullRange, gqf.AlgorithmHQQ, map[int]float64{2: 8.60, 3: 14.82, 4: 21.05, 8: 45.31}},
	} {
		for bits, want := range tt.want {
			s := Scheme{Bits: bits, Group: 32, Mapping: tt.m, ScaleDtype: packing.ScaleBF16, Algorithm: tt.a}
			if got := searchSQNR(t, s, x, k, true); got < want-0.1 {
				t.Errorf("%s: %.2f dB, want %.2f", s, got, want)
			}
		}
	}
}

// loss is the objective of an algorithm: a sum over one group's weights, their errors and the
// weights of the errors.
var loss = map[gqf.Algorithm]func(x, e, w float64) float64{
	gqf.AlgorithmSearch: func(_, e, w float64) float64 { return w * e * e },
	gqf.AlgorithmHQQ:    func(_, e, _ float64) float64 { return math.Abs(e) },
}

// weigh returns the weights of the errors of a row in a search without calibration.
func weigh(x []float32) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = math.Sqrt(sum/float64(len(x)) + float64(v)*float64(v))
	}
	return w
}

// losses are the losses of a row's groups.
func (r *quantizedRow) losses(s Scheme, x []float32, a gqf.Algorithm) []float64 {
	w, sums := weigh(x), make([]float64, len(r.scales))
	for i, v := range x {
		g := i / s.size(len(x))
		sums[g] += loss[a](float64(v), r.errorOf(x, i, g), w[i])
	}
	return sums
}

// errorOf is weight i of x, in group g, minus the dequantized weight.
func (r *quantizedRow) errorOf(x []float32, i, g int) float64 {
	return float64(x[i]) - float64(float32((float32(r.codes[i])-r.zero(g))*r.scales[g]))
}

// TestAlgorithms checks what users may rely on, for every scheme: by the algorithm's own loss, no
// group is worse than by rounding to nearest, by more than 2^-18 of its loss if all weights become 0; codes are the nearest for the stored scale and zero
// point; scales are numbers of their dtype that the layouts can store.
func TestAlgorithms(t *testing.T) {
	groups, lengths := []int{0, 16, 32, 48, 128}, []int{16, 17, 172, 400}
	if testing.Short() {
		groups, lengths = []int{0, 48}, []int{172}
	}
	for _, a := range []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmHQQ} {
		eachScheme(t, groups, func(t *testing.T, s Scheme) {
			rtn := s
			if s.Algorithm = a; s.Validate() != nil {
				t.Skip("not with this mapping")
			}
			for i, k := range lengths {
				x := oddRow(uint64(i), k)
				if s.ScaleDtype == packing.ScaleF16 {
					for i := range x {
						x[i] *= 1024
					}
				}
				got, was := mustQuantizeRow(t, s, x), mustQuantizeRow(t, rtn, x)
				checkRow(t, s, got, x)
				zeroed := &quantizedRow{codes: make([]int8, k), scales: make([]float32, len(got.scales))}
				before, signal := was.losses(s, x, a), zeroed.losses(s, x, a)
				for g, after := range got.losses(s, x, a) {
					if after > before[g]*(1+1e-4)+1e-40+0x1p-18*signal[g] {
						t.Errorf("k %d group %d: the loss %g of %v is more than the %g of %v", k, g, after, got.scales[g], before[g], was.scales[g])
					}
				}
			}
		})
	}
}

// checkRow checks the result of any algorithm for a row.
func checkRow(t *testing.T, s Scheme, r *quantizedRow, x []float32) {
	t.Helper()
	qmin, qmax := codeRange(s.Bits)
	for g, scale := range r.scales {
		first, end := g*s.size(len(x)), min((g+1)*s.size(len(x)), len(x))
		group := x[first:end]
		want := &quantizedRow{codes: make([]int8, len(x)), half: r.half, unit: r.unit}
		zero := r.zero(g)
		if r.half {
			zero = 0
		}
		want.roundGroup(first, group, scale, zero, float32(qmin), float32(qmax))
		sameCodes(t, "code", r.codes[first:end], want.codes[first:end])
		if !s.ScaleDtype.IsScale(scale) || s.ScaleDtype.Round(scale) != scale {
			t.Errorf("scale %d is %g, no scale of %s", g, scale, s.ScaleDtype)
		}
		if s.Positive() && scale < 0 {
			t.Errorf("scale %d is %g", g, scale)
		}
		if r.zeros != nil && (r.zero(g) < float32(qmin) || r.zero(g) >= float32(qmax+1)) {
			t.Errorf("zero point %d is %d", g, r.zeros[g])
		}
		if !r.half && !slices.ContainsFunc(group, func(v float32) bool { return v != 0 }) && (scale != 1 || r.zero(g) != 0) {
			t.Errorf("group %d of zeros has scale %g and zero point %g", g, scale, r.zero(g))
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
				f, b := mustQuantizeRow(t, s, x).losses(s, x, gqf.AlgorithmSearch)[0], exhaustive(s, x)
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
	w, of := weigh(x), loss[gqf.AlgorithmSearch]
	try := func(scale float32) {
		r.scales[0] = scale
		for _, z := range zeros {
			if r.zeros != nil {
				r.zeros[0] = z
			}
			r.roundGroup(0, x, scale, float32(z)*r.unit, float32(qmin), float32(qmax))
			sum := 0.0
			for i := 0; i < len(x) && sum < least; i++ { // no term is negative
				sum += of(float64(x[i]), r.errorOf(x, i, 0), w[i])
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

var allAlgorithms = []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmHQQ, gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT, gqf.AlgorithmImatrix, gqf.AlgorithmAWQ}

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

// TestWeigh checks that a column's weight reduces the column's error.
func TestWeigh(t *testing.T) {
	const k = 64
	s := Scheme{Bits: 3, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmSearch}
	for _, kind := range []Scheme{{Mapping: gqf.MappingFullRange}, {Mapping: gqf.MappingAsymmetric}, {Mapping: gqf.MappingAsymmetric, Fractions: true}} {
		m := kind.Mapping
		s.Mapping, s.Fractions = m, kind.Fractions
		x := testrows.Gaussian(11, k)
		x[3], x[40] = 30, -30
		d := make([]float32, k)
		for i := range d {
			d[i] = 1
		}
		d[3], d[40] = 0, 0
		rq, err := NewRowQuantizer(s, k)
		if err != nil {
			t.Fatal(err)
		}
		noise := func(d []float32, flat bool) (sum float64) {
			rq.Weigh(d, flat)
			r := &quantizedRow{codes: make([]int8, k), scales: make([]float32, 2), unit: s.ZeroUnit()}
			if m == gqf.MappingAsymmetric {
				r.zeros = make([]int8, 2)
			}
			if err := rq.Quantize(r.codes, r.scales, r.zeros, x, nil); err != nil {
				t.Fatal(err)
			}
			for i, v := range x {
				e := float64(v) - float64((float32(r.codes[i])-r.zero(i/32))*r.scales[i/32])
				if i != 3 && i != 40 {
					sum += e * e
				}
			}
			return sum
		}
		all := noise(nil, true)
		if without := noise(d, true); without > all/2 {
			t.Errorf("%s: the others' noise is %g without the large weights, %g with them", s, without, all)
		}
		if without := noise(d, false); without > all/2 {
			t.Errorf("%s: the others' noise is %g without the large weights, if not flat, %g with them", s, without, all)
		}
		// All weights are zero: the scales are the range's.
		clear(d)
		got := noise(d, true)
		r := s
		r.Algorithm = gqf.AlgorithmRTN
		was := mustQuantizeRow(t, r, x)
		sum := 0.0
		for i, v := range x {
			e := float64(v) - float64((float32(was.codes[i])-was.zero(i/32))*was.scales[i/32])
			if i != 3 && i != 40 {
				sum += e * e
			}
		}
		if got != sum {
			t.Errorf("%s: noise %g where nothing counts, %g by rounding to nearest", s, got, sum)
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

// TestShrunk has errors on both sides of HQQ's limit for outliers.
func TestShrunk(t *testing.T) {
	for _, beta := range []float64{10, 10 * math.Pow(1.01, 19)} {
		for e := -0.5; e < 0.5; e += 1.0 / 512 {
			want := math.Copysign(max(0, math.Abs(e)-math.Pow(math.Abs(e), -0.3)/beta), e)
			if got := shrunk(e, beta); math.Abs(got-want) > 1e-12 {
				t.Errorf("%g with beta %g: %g, want %g", e, beta, got, want)
			}
		}
	}
}

func FuzzAlgorithms(f *testing.F) {
	f.Add(uint64(1), uint8(4), uint8(2), uint8(0), uint16(172), []byte{0, 0, 128, 63})
	f.Add(uint64(2), uint8(1), uint8(0), uint8(4), uint16(300), []byte{1, 0, 0, 0, 255, 255, 127, 127})
	f.Fuzz(func(t *testing.T, seed uint64, bits, group, kind uint8, k uint16, special []byte) {
		s := Scheme{
			Bits: 1 + int(bits%8), Group: 16 * int(group%12), Mapping: 1 + gqf.Mapping(kind%5), ScaleDtype: allScaleDtypes[kind/5%3],
			PositiveScales: kind&128 != 0, Algorithm: allAlgorithms[kind/16%4],
		}
		if s.ValidateCommand() != nil {
			return
		}
		x := testrows.Gaussian(seed, 1+int(k%700))
		r := splitmix.Source(seed)
		for ; len(special) >= 4; special = special[4:] {
			x[r.Next()%uint64(len(x))] = math.Float32frombits(binary.LittleEndian.Uint32(special))
		}
		got, err := quantizeRow(s, x)
		if err != nil {
			return
		}
		checkRow(t, s, got, x)
	})
}

// BenchmarkAlgorithms measures rows of 2048 weights.
func BenchmarkAlgorithms(b *testing.B) {
	const k = 2048
	x := testrows.Gaussian(7, k)
	for _, s := range []Scheme{
		{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange},
		{Bits: 4, Group: 128, Mapping: gqf.MappingFullRange},
		{Bits: 4, Group: 0, Mapping: gqf.MappingFullRange},
		{Bits: 4, Group: 32, Mapping: gqf.MappingAsymmetric},
		{Bits: 4, Group: 32, Mapping: gqf.MappingAsymmetric, Fractions: true},
		{Bits: 2, Group: 32, Mapping: gqf.MappingHalfStep},
		{Bits: 8, Group: 32, Mapping: gqf.MappingFullRange},
	} {
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch, gqf.AlgorithmHQQ} {
			s.ScaleDtype, s.Algorithm = packing.ScaleBF16, a
			if s.Validate() != nil {
				continue
			}
			name := s.String()
			if s.Fractions {
				name += " fractions"
			}
			b.Run(name, func(b *testing.B) {
				rq, err := NewRowQuantizer(s, k)
				if err != nil {
					b.Fatal(err)
				}
				codes, scales, zeros := make([]int8, k), make([]float32, s.Groups(k)), make([]int8, s.Groups(k))
				for b.Loop() {
					if err := rq.Quantize(codes, scales, zeros, x, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/k, "ns/weight")
			})
		}
	}
}

// TestWeighAlgorithm checks how much the size of a weight counts beside the importance of its
// column: 1 + x^2/m to the power 1/2 with search (and so with gptq), 1/4 with imatrix and awq, 3/8
// at 2 bits.
func TestWeighAlgorithm(t *testing.T) {
	x, d := []float32{0, 3, 0, 0}, []float32{1, 2, 1, 1} // 1 + x^2/m is 5
	for _, tt := range []struct {
		algorithm gqf.Algorithm
		bits      int
		power     float64
	}{
		{gqf.AlgorithmSearch, 2, 1. / 2}, {gqf.AlgorithmGPTQ, 4, 1. / 2},
		{gqf.AlgorithmImatrix, 4, 1. / 4}, {gqf.AlgorithmAWQ, 3, 1. / 4}, {gqf.AlgorithmImatrix, 2, 3. / 8}, {gqf.AlgorithmAWQ, 1, 3. / 8},
	} {
		s := Scheme{Bits: tt.bits, Group: 16, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: tt.algorithm}
		r, err := NewRowQuantizer(s, len(x))
		if err != nil {
			t.Fatal(err)
		}
		r.Weigh(d, false)
		w := r.rowWeights(x)
		if want := 2 * math.Pow(5, tt.power); math.Abs(float64(w[1])-want) > 1e-5 || w[0] != 1 {
			t.Errorf("%s: weights %v, want %g for the large one and 1", s, w, want)
		}
		r.Weigh(nil, false)
		if w := r.rowWeights(x); math.Abs(float64(w[1])-math.Sqrt(5)) > 1e-5 {
			t.Errorf("%s: without importance %v, want the square root of 5", s, w)
		}
	}
}
