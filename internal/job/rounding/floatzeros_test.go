package rounding

import (
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
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

// TestRounderFloatZeros: a Rounder's weights are the ones that codes with floating-point zero
// points stand for.
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

// TestFloatZerosSQNR compares with a float32 prototype on other random numbers: alternating least
// squares from a grid of 12 x 12 ranges.
func TestFloatZerosSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "TestFloatZerosBits has the bits")
	const k = 1024
	rows, near := 128, 0.1
	if testing.Short() {
		rows, near = 64, 0.15
	}
	for _, d := range []struct {
		name string
		x    []float32
		want map[int][2]float64 // dB by bits: groups of 32 and of 128
	}{
		{"gauss", testrows.Gaussian(2026, rows*k), map[int][2]float64{3: {16.82, 15.04}, 4: {23.10, 20.85}}},
		{"t5", studentT5(2027, rows*k), map[int][2]float64{3: {15.56, 12.66}, 4: {21.84, 18.36}}},
	} {
		for bits, want := range d.want {
			for i, group := range []int{32, 128} {
				s := floatScheme(bits, group, gqf.AlgorithmSearch)
				got := floatSQNR(t, s, d.x, k)
				t.Logf("%s %s: %.2f dB, the prototype %.2f", d.name, s, got, want[i])
				if low, high := got < want[i]-near, got > want[i]+near; low || bits == 4 && high {
					t.Errorf("%s %s: %.2f dB, want %.2f", d.name, s, got, want[i])
				}
			}
		}
	}
}

// TestQuantizeFloatZerosEdges has constant, tiny, huge, and short groups, and groups far from 0.
func TestQuantizeFloatZerosEdges(t *testing.T) {
	rq, err := NewRowQuantizer(floatScheme(4, 32, gqf.AlgorithmSearch), 6*32+16)
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
			t.Fatalf("group %d has scale %v and zero point %v", g, scales[g], zeros[g])
		}
		if w := float32(float32(codes[i])*scales[g]) + zeros[g]; !(math.Abs(float64(w)-float64(v)) <= 1.5*float64(scales[g])) {
			t.Errorf("weight %v becomes %v with scale %v", v, w, scales[g])
		} else if g < 2 && (w != v || codes[i] != 0 || scales[g] != 1) {
			t.Errorf("constant %v becomes %v, code %d, scale %v", v, w, codes[i], scales[g])
		}
	}
	x[40] = float32(math.Inf(-1))
	var bad *NonFiniteError
	if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); !errors.As(err, &bad) || bad.Column != 40 {
		t.Errorf("-Inf in column 40: %v", err)
	}
	for _, s := range []Scheme{
		floatScheme(4, 32, gqf.AlgorithmRTN),
		{Bits: 4, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmSearch},
		{Bits: 4, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch},
	} {
		rq, err := NewRowQuantizer(s, 32)
		if err != nil {
			t.Fatal(err)
		}
		if err := rq.QuantizeFloatZeros(make([]int8, 32), make([]float32, 1), make([]float32, 1), make([]float32, 32), nil); err == nil {
			t.Errorf("%s: floating-point zero points", s)
		}
	}
}

// TestFloatFit checks that a search's error never exceeds the error of the groups' ranges, and that
// the weights of columns matter.
func TestFloatFit(t *testing.T) {
	const k = 256
	losses := func(a gqf.Algorithm, x, d []float32) (search, ranges float64) {
		rq, err := NewRowQuantizer(floatScheme(4, 32, a), k)
		if err != nil {
			t.Fatal(err)
		}
		rq.Weigh(d, true)
		codes, scales, zeros := make([]int8, k), make([]float32, k/32), make([]float32, k/32)
		loss := func() (sum float64) {
			for i, v := range x {
				e := float64(v) - float64(float32(float32(codes[i])*scales[i/32])+zeros[i/32])
				sum += float64(d[i]) * e * e
			}
			return sum
		}
		if err := rq.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
			t.Fatal(err)
		}
		search = loss()
		for g := range scales {
			scales[g], zeros[g] = floatSearch{&rq.weighing}.rangeGrid(bounds(rq.GroupOf(x, g)))
		}
		floatSearch{&rq.weighing}.floatCodes(codes, scales, zeros, x, new(vec.ErrorSum))
		return search, loss()
	}
	ones, weights := make([]float32, k), make([]float32, k)
	for i := range ones {
		ones[i], weights[i] = 1, float32(math.Exp(float64(testrows.Gaussian(uint64(i), 1)[0])*1.5))
	}
	var weighted, flat float64
	for row := range 30 {
		x := studentT5(uint64(row), k)
		search, ranges := losses(gqf.AlgorithmImatrix, x, weights)
		weighted += search / ranges / 30
		if search, ranges = losses(gqf.AlgorithmSearch, x, ones); search > ranges {
			t.Errorf("row %d: the error is %g, %g with the groups' ranges", row, search, ranges)
		}
		flat += search / ranges / 30
	}
	if weighted > 0.6 || flat > 0.85 {
		t.Errorf("a search has %.3f of the error of ranges with weights, %.3f without", weighted, flat)
	}
	t.Logf("a search has %.3f of the error of ranges with weights, %.3f without", weighted, flat)
}

// BenchmarkQuantizeFloatZeros measures a row of 2048 weights in groups of 32.
func BenchmarkQuantizeFloatZeros(b *testing.B) {
	x := testrows.Gaussian(7, 2048)
	rq, err := NewRowQuantizer(floatScheme(4, 32, gqf.AlgorithmSearch), len(x))
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
}

// TestFloatZerosBits compares with results from another CPU: they are the same everywhere.
func TestFloatZerosBits(t *testing.T) {
	sum := crc32.NewIEEE()
	for row := range 8 {
		const k = 320
		x, rng := make([]float32, k), detmath.Source(row)
		for i := range x { // exact: no logarithms, whose last bit may differ
			x[i] = float32(int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4) / []float32{8192, 3000}[row%2]
		}
		rq, err := NewRowQuantizer(floatScheme(4, []int{32, 96}[row/4], gqf.AlgorithmSearch), k)
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
	if got := sum.Sum32(); got != 0x4c0f7cce {
		t.Errorf("codes, scales and zero points have the checksum %#x", got)
	}
}
