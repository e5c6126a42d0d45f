package rounding

import (
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/internal/testrows"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// floatScheme is a scheme that qai4c32p stores.
func floatScheme(bits, group int, a gqf.Algorithm) Scheme {
	return Scheme{Bits: bits, Group: group, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: a}
}

// floatSQNR is the SQNR of all rows of k weights of x with floating-point zero points.
func floatSQNR(t testing.TB, s Scheme, x []float32, k int) float64 {
	t.Helper()
	rq, err := NewRowQuantizer(s, k)
	if err != nil {
		t.Fatal(err)
	}
	rq.Weigh(nil, true)
	codes, scales, zeros := make([]int8, k), make([]float32, s.Groups(k)), make([]float32, s.Groups(k))
	var acc vec.ErrorSum
	for r := 0; r < len(x); r += k {
		if err := rq.QuantizeFloatZeros(codes, scales, zeros, x[r:r+k], &acc); err != nil {
			t.Fatal(err)
		}
	}
	noise, signal := acc.Total()
	return 10 * math.Log10(signal/noise)
}

// TestRounderFloatZeros: a Rounder's weights are the ones that codes with floating-point zero points
// stand for.
func TestRounderFloatZeros(t *testing.T) {
	const k = 200
	s := floatScheme(4, 32, gqf.AlgorithmSearch)
	x, y := testrows.Gaussian(5, k), make([]float32, k)
	r, err := NewRounder(s, k)
	if err != nil {
		t.Fatal(err)
	}
	r.UseFloatZeros()
	if err := r.Round(y, x); err != nil {
		t.Fatal(err)
	}
	rq, err := NewRowQuantizer(s, k)
	if err != nil {
		t.Fatal(err)
	}
	codes, scales, zeros := make([]int8, k), make([]float32, s.Groups(k)), make([]float32, s.Groups(k))
	if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
		t.Fatal(err)
	}
	for i, q := range codes {
		if want := float32(float32(q)*scales[i/32]) + zeros[i/32]; y[i] != want {
			t.Fatalf("weight %d is %v, the codes stand for %v", i, y[i], want)
		}
	}
}

// TestFloatZerosSQNR compares with float32 prototypes on other random numbers: HQQ as published,
// and alternating least squares from a grid of 12 x 12 ranges. At 2 bits the shrunk errors of the
// original HQQ depend on the magnitude of weights, and at 8 bits its BF16 scales matter: these
// widths are not compared.
func TestFloatZerosSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "TestFloatZerosBits has the bits")
	const k = 1024
	rows, fewer, near := 512, 128, 0.1 // search takes fewer of the rows
	if testing.Short() {
		rows, fewer, near = 64, 64, 0.15
	}
	for _, d := range []struct {
		name        string
		x           []float32
		hqq, search map[int][2]float64 // dB by bits: groups of 32 and of 128
	}{
		{"gauss", testrows.Gaussian(2026, rows*k),
			map[int][2]float64{3: {16.00, 13.65}, 4: {22.61, 20.26}},
			map[int][2]float64{3: {16.82, 15.04}, 4: {23.10, 20.85}}},
		{"t5", studentT5(2027, rows*k),
			map[int][2]float64{3: {14.78, 11.20}, 4: {21.39, 17.80}},
			map[int][2]float64{3: {15.56, 12.66}, 4: {21.84, 18.36}}},
	} {
		for _, a := range []struct {
			algorithm gqf.Algorithm
			rows      int
			want      map[int][2]float64
		}{{gqf.AlgorithmHQQ, rows, d.hqq}, {gqf.AlgorithmSearch, fewer, d.search}} {
			for bits, want := range a.want {
				for i, group := range []int{32, 128} {
					s := floatScheme(bits, group, a.algorithm)
					got := floatSQNR(t, s, d.x[:a.rows*k], k)
					t.Logf("%s %s: %.2f dB, the prototype %.2f", d.name, s, got, want[i])
					if low, high := got < want[i]-near, got > want[i]+near; low || bits == 4 && high {
						t.Errorf("%s %s: %.2f dB, want %.2f", d.name, s, got, want[i])
					}
				}
			}
		}
	}
}

// plainHQQ transcribes optimize_weights_proximal_legacy of mobiusml/hqq, in float64, for the groups
// of a row. Zero points z and scales are for codes from 0 to most: a weight is (q-z)*scale.
func plainHQQ(x []float32, group, most int) (codes, scales, zeros []float64) {
	groups := len(x) / group
	inverse, z := make([]float64, groups), make([]float64, groups)
	for g := range groups {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, v := range x[g*group:][:group] {
			lo, hi = min(lo, float64(v)), max(hi, float64(v))
		}
		inverse[g] = float64(most) / (hi - lo)
		z[g] = -lo * inverse[g]
	}
	code := func(i int) float64 {
		g := i / group
		return min(max(math.RoundToEven(float64(x[i])*inverse[g]+z[g]), 0), float64(most))
	}
	best, beta := 1e4, 10.0
	for range 20 {
		size, next := 0.0, make([]float64, groups)
		for i, v := range x {
			g, q := i/group, code(i)
			w := (q - z[g]) / inverse[g]
			d := float64(v) - w
			e := math.Copysign(max(0, math.Abs(d)-math.Pow(math.Abs(d), 0.7-1)/beta), d)
			size += math.Abs(d) / float64(len(x))
			next[g] += (q - (float64(v)-e)*inverse[g]) / float64(group)
		}
		copy(z, next)
		beta *= 1.01
		if !(size < best) {
			break
		}
		best = size
	}
	for i := range x {
		codes = append(codes, code(i))
	}
	for g := range groups {
		scales, zeros = append(scales, 1/inverse[g]), append(zeros, z[g])
	}
	return codes, scales, zeros
}

// TestFloatHQQ compares hqq with the plain transcription: equal scales and zero points up to
// rounding to float32, equal codes except for weights halfway between two codes, and every code
// nearest to its weight.
func TestFloatHQQ(t *testing.T) {
	const k, rows = 512, 40
	other := 0
	for row := range rows {
		x := studentT5(uint64(100+row), k)
		for i := range x { // in some rows the errors are large enough to be shrunk
			x[i] = float32(float64(x[i]) * []float64{0.02, 1, 8}[row%3])
		}
		group := []int{32, 64, 128}[row/3%3]
		rq, err := NewRowQuantizer(floatScheme(4, group, gqf.AlgorithmHQQ), k)
		if err != nil {
			t.Fatal(err)
		}
		got, scales, zeros := make([]int8, k), make([]float32, k/group), make([]float32, k/group)
		if err := rq.QuantizeFloatZeros(got, scales, zeros, x, nil); err != nil {
			t.Fatal(err)
		}
		codes, wantScales, z := plainHQQ(x, group, 15)
		for g, s := range scales {
			zero := (-8 + z[g]) * -wantScales[g] // for codes from -8
			if math.Abs(float64(s)-wantScales[g]) > 1e-7*wantScales[g] || math.Abs(float64(zeros[g])-zero) > 1e-5*wantScales[g] {
				t.Fatalf("row %d group %d: scale %v and zero point %v, want %v and %v", row, g, s, zeros[g], wantScales[g], zero)
			}
		}
		for i, q := range got {
			g := i / group
			if float64(q) != codes[i]-8 {
				other++
			}
			off := (float64(x[i]) - float64(zeros[g])) / float64(scales[g])
			if math.Abs(off-float64(q)) > 0.5+1e-9 && !(q == -8 && off < -8) && !(q == 7 && off > 7) {
				t.Errorf("row %d column %d: code %d for %v steps", row, i, q, off)
			}
		}
	}
	if other > 2 {
		t.Errorf("%d codes are not those of the original", other)
	}
}

// TestQuantizeFloatZerosEdges has constant, tiny, huge, and short groups, and groups far from 0.
func TestQuantizeFloatZerosEdges(t *testing.T) {
	for _, a := range []gqf.Algorithm{gqf.AlgorithmHQQ, gqf.AlgorithmSearch} {
		rq, err := NewRowQuantizer(floatScheme(4, 32, a), 6*32+16)
		if err != nil {
			t.Fatal(err)
		}
		rq.LimitScales(0x1p-122)
		x := testrows.Gaussian(3, 6*32+16)
		for i := range x {
			switch i / 32 {
			case 0:
				x[i] = 0
			case 1:
				x[i] = -0.7
			case 2:
				x[i] = float32(float64(x[i]) * 0x1p-140)
			case 3:
				x[i] = []float32{1e38, -2e38, 3.4e38, 5e37}[i%4]
			case 4:
				x[i] = 1000 + x[i]
			}
		}
		codes, scales, zeros := make([]int8, len(x)), make([]float32, 7), make([]float32, 7)
		if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
			t.Fatal(err)
		}
		for i, v := range x {
			g := i / 32
			if scales[g] < 0x1p-122 || !floats.Finite(scales[g]) || !floats.Finite(zeros[g]) {
				t.Fatalf("%s: group %d has scale %v and zero point %v", a, g, scales[g], zeros[g])
			}
			if w := float32(float32(codes[i])*scales[g]) + zeros[g]; !(math.Abs(float64(w)-float64(v)) <= 1.5*float64(scales[g])) {
				t.Errorf("%s: weight %v becomes %v with scale %v", a, v, w, scales[g])
			} else if g < 2 && (w != v || codes[i] != 0 || scales[g] != 1) {
				t.Errorf("%s: constant %v becomes %v, code %d, scale %v", a, v, w, codes[i], scales[g])
			}
		}
		x[40] = float32(math.Inf(-1))
		var bad *NonFiniteError
		if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); !errors.As(err, &bad) || bad.Column != 40 {
			t.Errorf("%s: -Inf in column 40: %v", a, err)
		}
	}
	for _, s := range []Scheme{
		floatScheme(4, 32, gqf.AlgorithmRTN),
		{Bits: 4, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmHQQ},
		{Bits: 4, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmHQQ},
	} {
		rq, err := NewRowQuantizer(s, 32)
		if err != nil {
			t.Fatal(err)
		}
		if err := rq.QuantizeFloatZeros(make([]int8, 32), make([]float32, 1), make([]float32, 1), make([]float32, 32), nil); err == nil {
			t.Errorf("%s: real zero points", s)
		}
	}
}

// TestFloatFit checks that a search's error never exceeds the error of the group's range, and that
// the weights of columns matter.
func TestFloatFit(t *testing.T) {
	const k = 256
	loss := func(a gqf.Algorithm, x, d []float32) (sum float64) {
		rq, err := NewRowQuantizer(floatScheme(4, 32, a), k)
		if err != nil {
			t.Fatal(err)
		}
		rq.Weigh(d, true)
		codes, scales, zeros := make([]int8, k), make([]float32, k/32), make([]float32, k/32)
		if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
			t.Fatal(err)
		}
		for i, v := range x {
			e := float64(v) - float64(float32(float32(codes[i])*scales[i/32])+zeros[i/32])
			sum += float64(d[i]) * e * e
		}
		return sum
	}
	ones, weights := make([]float32, k), make([]float32, k)
	for i := range ones {
		ones[i], weights[i] = 1, float32(math.Exp(float64(testrows.Gaussian(uint64(i), 1)[0])*1.5))
	}
	var hqq, search, flat float64
	for row := range 30 {
		x := studentT5(uint64(row), k)
		hqq, search = hqq+loss(gqf.AlgorithmHQQ, x, weights), search+loss(gqf.AlgorithmImatrix, x, weights)
		a, b := loss(gqf.AlgorithmSearch, x, ones), loss(gqf.AlgorithmHQQ, x, ones)
		flat += a / b
	}
	if search > 0.7*hqq || flat/30 > 0.92 {
		t.Errorf("weighted errors of search are %.3f of those of hqq, want .7 or less; others %.3f", search/hqq, flat/30)
	}
	t.Logf("errors of search are %.3f of those of hqq with weights, %.3f without", search/hqq, flat/30)
}

// BenchmarkQuantizeFloatZeros measures a row of 2048 weights in groups of 32.
func BenchmarkQuantizeFloatZeros(b *testing.B) {
	x := testrows.Gaussian(7, 2048)
	for _, a := range []gqf.Algorithm{gqf.AlgorithmHQQ, gqf.AlgorithmSearch} {
		b.Run(a.String(), func(b *testing.B) {
			rq, err := NewRowQuantizer(floatScheme(4, 32, a), len(x))
			if err != nil {
				b.Fatal(err)
			}
			codes, scales, zeros := make([]int8, len(x)), make([]float32, 64), make([]float32, 64)
			for b.Loop() {
				if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2048, "ns/weight")
		})
	}
}

// TestFloatZerosBits compares with results from another CPU: they are the same everywhere.
func TestFloatZerosBits(t *testing.T) {
	sum := crc32.NewIEEE()
	for _, a := range []gqf.Algorithm{gqf.AlgorithmHQQ, gqf.AlgorithmSearch} {
		for row := range 8 {
			const k = 320
			x, rng := make([]float32, k), splitmix.Source(row)
			for i := range x { // exact: no logarithms, whose last bit may differ
				x[i] = float32(int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4) / []float32{8192, 3000}[row%2]
			}
			rq, err := NewRowQuantizer(floatScheme(4, []int{32, 96}[row/4], a), k)
			if err != nil {
				t.Fatal(err)
			}
			n := rq.scheme.Groups(k)
			codes, scales, zeros := make([]int8, k), make([]float32, n), make([]float32, n)
			if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
				t.Fatal(err)
			}
			for _, q := range codes {
				sum.Write([]byte{byte(q)})
			}
			for g := range scales {
				for _, v := range []float32{scales[g], zeros[g]} {
					u := math.Float32bits(v)
					sum.Write([]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)})
				}
			}
		}
	}
	if got := sum.Sum32(); got != 0x2d200f81 {
		t.Errorf("codes, scales and zero points have the checksum %#x", got)
	}
}
