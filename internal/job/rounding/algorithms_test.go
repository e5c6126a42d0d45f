package rounding

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/packing"
)

// TestAlgorithmSQNR compares the search of other mappings with prototypes: a grid of 12 x 12 ranges
// with integer zero points, and positive scales.
func TestAlgorithmSQNR(t *testing.T) {
	const rows, k = 64, 1024
	x := testrows.Gaussian(2028, rows*k)
	for _, tt := range []struct {
		m    gqf.Mapping
		want map[int]float64 // dB by bits, groups of 32
	}{
		{gqf.MappingAsymmetric, map[int]float64{2: 9.59, 3: 15.89, 4: 22.16}},
		{gqf.MappingSymmetric, map[int]float64{2: 8.64, 3: 14.96, 4: 21.33}},
	} {
		for bits, want := range tt.want {
			s := Scheme{Bits: bits, Group: 32, Mapping: tt.m, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}
			if got := searchSQNR(t, s, x, k, true); got < want-0.1 {
				t.Errorf("%s: %.2f dB, want %.2f", s, got, want)
			}
		}
	}
}

// losses are the weighted squared errors of a row's groups.
func (r *quantizedRow) losses(s Scheme, x []float32) []float64 {
	w, sums := weigh(x), make([]float64, len(r.scales))
	for i := range x {
		g := i / s.size(len(x))
		e := r.errorOf(x, i, g)
		sums[g] += w[i] * e * e
	}
	return sums
}

// errorOf is weight i of x, in group g, minus the dequantized weight.
func (r *quantizedRow) errorOf(x []float32, i, g int) float64 {
	return float64(x[i]) - float64(float32((float32(r.codes[i])-r.zero(g))*r.scales[g]))
}

// TestSearch checks what users may rely on, for every scheme: by the search's own loss, no group is
// worse than by rounding to nearest, by more than 2^-18 of its loss if all weights become 0; codes
// are the nearest for the stored scale and zero point; scales are numbers of their dtype that the
// layouts can store.
func TestSearch(t *testing.T) {
	groups, lengths := []int{0, 16, 32, 48, 128}, []int{16, 17, 172, 400}
	if testing.Short() {
		groups, lengths = []int{0, 48}, []int{172}
	}
	eachScheme(t, groups, func(t *testing.T, s Scheme) {
		rtn := s
		s.Algorithm = gqf.AlgorithmSearch
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
			before, signal := was.losses(s, x), zeroed.losses(s, x)
			for g, after := range got.losses(s, x) {
				if after > before[g]*(1+1e-4)+1e-40+0x1p-18*signal[g] {
					t.Errorf("k %d group %d: the loss %g of %v is more than the %g of %v", k, g, after, got.scales[g], before[g], was.scales[g])
				}
			}
		}
	})
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

var allAlgorithms = []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT, gqf.AlgorithmImatrix, gqf.AlgorithmAWQ}

func FuzzAlgorithms(f *testing.F) {
	f.Add(uint64(1), uint8(4), uint8(2), uint8(0), uint16(172), []byte{0, 0, 128, 63})
	f.Add(uint64(2), uint8(1), uint8(0), uint8(4), uint16(300), []byte{1, 0, 0, 0, 255, 255, 127, 127})
	f.Fuzz(func(t *testing.T, seed uint64, bits, group, kind uint8, k uint16, special []byte) {
		s := Scheme{
			Bits: 1 + int(bits%8), Group: 16 * int(group%12), Mapping: 1 + gqf.Mapping(kind%5), ScaleDtype: allScaleDtypes[kind/5%3],
			PositiveScales: kind&128 != 0, Algorithm: allAlgorithms[kind/16%3],
		}
		if s.ValidateCommand() != nil {
			return
		}
		x := testrows.Gaussian(seed, 1+int(k%700))
		r := detmath.Source(seed)
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
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
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
