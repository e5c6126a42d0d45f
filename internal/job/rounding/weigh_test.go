package rounding

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/packing"
)

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
