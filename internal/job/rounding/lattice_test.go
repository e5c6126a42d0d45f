package rounding

import (
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// latticeCodes are the ways in which latticeRow draws the codes of a group, from r, within qmin ..
// qmax.
var latticeCodes = []struct {
	name string
	draw func(r *detmath.Source, i, qmin, qmax, zero int) int
}{
	{"any", func(r *detmath.Source, _, qmin, qmax, _ int) int { return qmin + int(r.Next()%uint64(qmax-qmin+1)) }},
	{"near zero", func(r *detmath.Source, _, qmin, qmax, zero int) int {
		q := zero
		for range 6 {
			q += int(r.Next()%3) - 1
		}
		return min(max(q, qmin), qmax)
	}},
	{"even", func(r *detmath.Source, _, qmin, qmax, zero int) int {
		q := qmin + int(r.Next()%uint64(qmax-qmin+1))
		return q - (q-zero)%2
	}},
	{"multiples of 3", func(r *detmath.Source, _, qmin, qmax, zero int) int {
		q := qmin + int(r.Next()%uint64(qmax-qmin+1))
		return q - (q-zero)%3
	}},
	{"large", func(r *detmath.Source, _, qmin, qmax, _ int) int { return qmax - int(r.Next()%uint64(qmax-qmin+1))/4 }},
	{"one weight", func(r *detmath.Source, i, qmin, qmax, zero int) int {
		if i == 3 {
			return qmin + int(r.Next()%uint64(qmax-qmin+1))
		}
		return zero
	}},
	{"two values", func(r *detmath.Source, i, qmin, qmax, _ int) int {
		if r.Next()%2 == 0 {
			return qmin
		}
		return qmax
	}},
}

// latticeRow returns n weights on a lattice of the scheme, as a checkpoint of a precision holds
// them. Every group has codes of another kind, and a scale around size.
func latticeRow(s Scheme, precision packing.ScaleDtype, seed uint64, n int, size float32) []float32 {
	r := detmath.Source(seed)
	x := make([]float32, n)
	qmin, qmax := codeRange(s.Bits)
	width := s.GroupWidth(n)
	for g := 0; g*width < n; g++ {
		scale := s.ScaleDtype.Round(size * (1 + float32(r.Next()%4096)/1024))
		if !s.Positive() && r.Next()%2 == 0 {
			scale = -scale
		}
		zero, half := 0, float32(0)
		switch s.Mapping {
		case gqf.MappingAsymmetric:
			zero = qmin + int(r.Next()%uint64(qmax-qmin+1))
			if s.Fractions {
				half = -float32(r.Next()%(1<<s.ZeroShift())) * s.ZeroUnit()
			}
		case gqf.MappingHalfStep:
			half = 0.5
		}
		kind := latticeCodes[(g+int(seed))%len(latticeCodes)]
		for i := range x[g*width : min(n, (g+1)*width)] {
			q := min(max(kind.draw(&r, i, qmin, qmax, zero), qmin), qmax)
			x[g*width+i] = precision.Round(float32((float32(q-zero) + half) * scale))
		}
	}
	return x
}

// recovered quantizes a row and reports of each group whether all weights come back, with the signs
// of zeros if scales have signs, and whether the quantizer said so. Groups of zeros have scale 1.
func recovered(t *testing.T, s Scheme, precision packing.ScaleDtype, x []float32) (exact, said []bool) {
	t.Helper()
	q, err := NewRounder(s, len(x))
	if err != nil {
		t.Fatal(err)
	}
	q.Recover(precision)
	y := make([]float32, len(x))
	if err := q.Round(y, x); err != nil {
		t.Fatal(err)
	}
	for g := range s.Groups(len(x)) {
		same, signs := true, !s.Positive() && !allZero(q.GroupOf(x, g))
		for i, w := range q.GroupOf(x, g) {
			v := precision.Round(q.GroupOf(y, g)[i])
			same = same && v == w && (w != 0 || !signs || math.Signbit(float64(v)) == math.Signbit(float64(w)))
		}
		exact, said = append(exact, same), append(said, q.Recovered(g))
	}
	return exact, said
}

func allZero(x []float32) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

// TestRecover quantizes lattices of every scheme: every group comes back bit for bit.
func TestRecover(t *testing.T) {
	testshared.SlowEmulated(t, "TestRecoverSubnormal runs there")
	for _, precision := range allScaleDtypes {
		t.Run(precision.String(), func(t *testing.T) {
			eachScheme(t, []int{0, 32}, func(t *testing.T, s Scheme) {
				for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
					s.Algorithm = a
					s.Fractions = s.FractionalZeroPoints()
					for seed := range uint64(len(latticeCodes)) {
						const n = 32*9 + 5
						size := []float32{0.001, 0.0173, 0.25}[seed%3]
						x := latticeRow(s, precision, seed, n, size)
						exact, said := recovered(t, s, precision, x)
						for g := range exact {
							group := x[g*s.GroupWidth(n) : min(n, (g+1)*s.GroupWidth(n))]
							if !exact[g] || said[g] == allZero(group) {
								t.Fatalf("%s seed %d group %d (%s): exact %v, recovered %v: %v", s, seed, g, latticeCodes[(g+int(seed))%len(latticeCodes)].name, exact[g], said[g], group)
							}
						}
					}
				}
			})
		})
	}
}

// TestRecoverFewCodes quantizes small groups with few codes and any float32 scale: such weights
// have many scales, and most of them need codes that do not exist.
func TestRecoverFewCodes(t *testing.T) {
	r := detmath.Source(5)
	s := Scheme{Bits: 8, Group: 16, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}
	qmin, qmax := codeRange(s.Bits)
	for range 20_000 {
		scale := math.Float32frombits(115<<23 | uint32(r.Next())&(1<<23-1))
		zero := qmin + int(r.Next()%256)
		pool := []int{qmin, qmax, zero + 1, zero - 2, qmin + int(r.Next()%256)}
		x := make([]float32, 16)
		for i := range x {
			q := min(max(pool[r.Next()%uint64(len(pool))], qmin), qmax)
			x[i] = packing.ScaleBF16.Round(float32(float32(q-zero) * scale))
		}
		if exact, said := recovered(t, s, packing.ScaleBF16, x); !allZero(x) && !(exact[0] && said[0]) {
			t.Fatalf("scale %g, zero point %d: exact %v, recovered %v: %g", scale, zero, exact[0], said[0], x)
		}
	}
}

// TestRecoverSubnormal has weights of F16 so small that their neighbours are as far apart as they
// are large.
func TestRecoverSubnormal(t *testing.T) {
	for _, size := range []float32{0x1p-24, 0x1p-22, 0x1p-20, 0x1p-18, 0x1p-15} {
		for _, d := range allScaleDtypes {
			for _, m := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingAsymmetric} {
				for bits := 2; bits <= 8; bits++ {
					s := Scheme{Bits: bits, Group: 32, Mapping: m, ScaleDtype: d}
					for seed := range uint64(20) {
						x := latticeRow(s, packing.ScaleF16, seed, 320, size)
						exact, _ := recovered(t, s, packing.ScaleF16, x)
						for g, ok := range exact {
							if !ok {
								t.Fatalf("%s of %g, seed %d group %d: %v", s, size, seed, g, x[g*32:][:32])
							}
						}
					}
				}
			}
		}
	}
}

// TestRecoverNothing quantizes weights that are on no lattice: the result is the one without
// recovery, to the bit.
func TestRecoverNothing(t *testing.T) {
	for _, precision := range allScaleDtypes {
		eachScheme(t, []int{0, 32}, func(t *testing.T, s Scheme) {
			x := testrows.Gaussian(uint64(s.Bits), 512)
			for i := range x {
				x[i] = precision.Round(x[i])
			}
			plain := mustQuantizeRow(t, s, x)
			q, err := NewRowQuantizer(s, len(x))
			if err != nil {
				t.Fatal(err)
			}
			q.Recover(precision)
			row := NewCodes(s.Shape(1, len(x))).Row(0)
			if err := q.Quantize(row.Codes, row.Scales, row.Zeros, x, nil); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(row.Codes, row.Scales) != fmt.Sprint(plain.codes, plain.scales) {
				t.Errorf("%s, %s weights: recovery changes the row", s, precision)
			}
		})
	}
}

// TestRecoverOneWeight spoils one weight of a lattice by the least amount: the group is on no
// lattice of 4 bits any more, and its neighbours are.
func TestRecoverOneWeight(t *testing.T) {
	s := Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
	r := detmath.Source(1)
	x := make([]float32, 96)
	for i := range x {
		x[i] = packing.ScaleBF16.Round(float32(float32(int(r.Next()%16)-8) * 0.01171875))
	}
	x[32+7] = nth(packing.ScaleBF16, 0.01171875, 1)
	for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
		s.Algorithm = a
		if _, said := recovered(t, s, packing.ScaleBF16, x); fmt.Sprint(said) != "[true false true]" {
			t.Errorf("%s: recovered %v", s, said)
		}
	}
}

// TestRecoverScaleDtype: a scale that the scheme's dtype cannot store is not rounded.
func TestRecoverScaleDtype(t *testing.T) {
	s := Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmSearch}
	x := make([]float32, 32)
	scale := float32(0.0123456789)
	for i := range x {
		x[i] = float32(float32(i%16-8) * scale)
	}
	for _, c := range []struct {
		dtype packing.ScaleDtype
		want  bool
	}{{packing.ScaleF32, true}, {packing.ScaleF16, false}, {packing.ScaleBF16, false}} {
		s.ScaleDtype = c.dtype
		if exact, said := recovered(t, s, packing.ScaleF32, x); exact[0] != c.want || said[0] != c.want {
			t.Errorf("%s: exact %v, recovered %v, want %v", s, exact[0], said[0], c.want)
		}
	}
}

// TestRecoverSmallestScale: a layout that cannot hold the scale gets another one.
func TestRecoverSmallestScale(t *testing.T) {
	s := Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
	q, err := NewRounder(s, 32)
	if err != nil {
		t.Fatal(err)
	}
	q.Recover(packing.ScaleBF16)
	q.LimitScales(0x1p-10)
	x := make([]float32, 32)
	for i := range x {
		x[i] = float32(i%8) * 0x1p-11
	}
	if err := q.Round(x, x); err != nil || q.Recovered(0) {
		t.Errorf("recovered %v, error %v", q.Recovered(0), err)
	}
}

// TestRecoverFloatZeros: layouts with floating-point zero points keep lattices too.
func TestRecoverFloatZeros(t *testing.T) {
	for bits := 2; bits <= 8; bits++ {
		s := Scheme{Bits: bits, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16}
		x := latticeRow(s, packing.ScaleBF16, uint64(bits), 32*14, 0.01)
		s.ScaleDtype, s.Algorithm = packing.ScaleF32, gqf.AlgorithmSearch
		q, err := NewRowQuantizer(s, len(x))
		if err != nil {
			t.Fatal(err)
		}
		q.Recover(packing.ScaleBF16)
		codes, scales, zeros := make([]int8, len(x)), make([]float32, 14), make([]float32, 14)
		if err := q.QuantizeFloatZeros(codes, scales, zeros, x, nil); err != nil {
			t.Fatal(err)
		}
		for i, w := range x {
			g := i / 32
			if v := float32(float32(codes[i])*scales[g]) + zeros[g]; packing.ScaleBF16.Round(v) != w {
				t.Fatalf("%s: weight %d of group %d is %g, not %g", s, i%32, g, v, w)
			}
		}
	}
}

func TestLatticeFinder(t *testing.T) {
	for _, c := range []struct {
		name                string
		steps               []int
		symmetric, zero, hs int
	}{
		{"4 bits", []int{-8, -3, 0, 1, 5, 7, 2}, 4, 4, 0},
		{"4 bits, negative scale", []int{-7, -3, 0, 1, 5, 8, 2}, 4, 4, 0},
		{"both ends", []int{-8, -3, 0, 1, 5, 8, 2}, 5, 5, 0},
		{"zero point", []int{-1, 0, 1, 5, 14, 9, 2}, 5, 4, 0},
		{"ternary", []int{-1, 0, 1, 1, 0, -1}, 2, 2, 0},
		{"one bit", []int{-1, 1, 1, -1}, 2, 1, 1},
		{"half-step", []int{-1, 1, 3, -3}, 3, 2, 2},
		{"8 bits", []int{-127, 2, 3, -3}, 8, 8, 0},
		{"fraction", []int{-121, -25, 7, 23, 71, 119}, 8, 4, 0},
		{"fraction, no negative weight", []int{7, 23, 71, 231}, 0, 4, 0},
		{"fraction, no positive weight", []int{-255, -31, -15}, 0, 4, 0},
		{"none", []int{-1000, 1, 3, 999}, 0, 0, 0},
	} {
		x := make([]float32, len(c.steps))
		for i, p := range c.steps {
			x[i] = float32(float32(p) * 0.013)
		}
		l, ok := NewLatticeFinder(packing.ScaleF32).Find(x)
		if ok != (c.zero > 0) {
			t.Errorf("%s: found %v", c.name, ok)
			continue
		}
		if symmetric, zero, hs := l.Bits(); ok && (symmetric != c.symmetric || zero != c.zero || hs != c.hs) {
			t.Errorf("%s: %d, %d and %d bits, want %d, %d and %d", c.name, symmetric, zero, hs, c.symmetric, c.zero, c.hs)
		}
	}
}

func TestLatticeSurvey(t *testing.T) {
	testshared.SlowEmulated(t, "it compares figures, which are the same natively")
	for _, s := range []Scheme{
		{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		{Bits: 4, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF16},
		{Bits: 4, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32},
		{Bits: 2, Group: 64, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		{Bits: 2, Group: 128, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleBF16},
		{Bits: 1, Group: 32, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleBF16},
		{Bits: 3, Group: 16, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16},
		{Bits: 8, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		{Bits: 8, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32},
		{Bits: 6, Group: 128, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16},
	} {
		for _, precision := range allScaleDtypes {
			const k = 512
			survey := NewLatticeSurvey(precision, k)
			r := detmath.Source(uint64(s.Bits))
			qmin, qmax := codeRange(s.Bits)
			for range 20 {
				x := make([]float32, k)
				var scale float32
				for i := range x {
					if i%s.GroupWidth(k) == 0 {
						scale = s.ScaleDtype.Round(0.01 * (1 + float32(r.Next()%1000)/1000))
					}
					p := float32(qmin + int(r.Next()%uint64(qmax-qmin+1)))
					switch s.Mapping {
					case gqf.MappingAsymmetric:
						p -= float32(qmin)
					case gqf.MappingHalfStep:
						p += 0.5
					}
					x[i] = precision.Round(float32(p * scale))
				}
				survey.Add(x)
			}
			got, ok := survey.Result()
			if !ok || got.Bits != s.Bits || got.Group != s.Group || got.Mapping != s.Mapping {
				t.Errorf("%s, %s weights: found %+v, %v", s, precision, got, ok)
			}
			if ok && float64(got.Exact) < 0.98*float64(got.Groups) {
				t.Errorf("%s, %s weights: %d of %d groups", s, precision, got.Exact, got.Groups)
			}
		}
	}
	none := NewLatticeSurvey(packing.ScaleBF16, 512)
	for seed := range uint64(20) {
		x := testrows.Gaussian(seed, 512)
		for i := range x {
			x[i] = packing.ScaleBF16.Round(x[i])
		}
		none.Add(x)
	}
	if got, ok := none.Result(); ok {
		t.Errorf("weights on no lattice: %+v", got)
	}
}

// FuzzRecover: whatever the weights, a group that is said to be recovered comes back, and no other
// result than an error is possible for the rest.
func FuzzRecover(f *testing.F) {
	f.Add(uint64(1), byte(4), byte(0), []byte{1, 2, 3, 4, 250, 249, 0, 0, 1})
	f.Add(uint64(7), byte(8), byte(3), []byte{0x80, 0x3f, 0x7f, 0x43, 0x7f, 0xc3, 0x80, 0x43})
	f.Fuzz(func(t *testing.T, seed uint64, bits, kind byte, data []byte) {
		s := Scheme{
			Bits: int(bits)%8 + 1, Group: 16, Mapping: allMappings[kind%4], Algorithm: gqf.AlgorithmRTN,
			ScaleDtype: allScaleDtypes[kind/4%3], PositiveScales: kind/64%2 == 1,
		}
		precision := allScaleDtypes[kind/16%3]
		if s.ValidateCommand() != nil || len(data) < 2 {
			return
		}
		x := make([]float32, 0, len(data)/2)
		for i := 0; i+1 < len(data); i += 2 {
			v := precision.Round(floats.BF16ToF32(uint16(data[i]) | uint16(data[i+1])<<8))
			if !floats.Finite(v) || floats.Abs(v) > 0x1p100 {
				return
			}
			x = append(x, v)
		}
		q, err := NewRounder(s, len(x))
		if err != nil {
			t.Fatal(err)
		}
		q.Recover(precision)
		y := make([]float32, len(x))
		if err := q.Round(y, x); err != nil {
			return // a scale too large
		}
		for g := range s.Groups(len(x)) {
			for i, w := range q.GroupOf(x, g) {
				if v := q.GroupOf(y, g)[i]; q.Recovered(g) && precision.Round(v) != w {
					t.Fatalf("%s, group %d: %g, not %g", s, g, v, w)
				}
			}
		}
	})
}

// BenchmarkRecover measures rows of 2048 weights that are on no lattice, with and without recovery.
func BenchmarkRecover(b *testing.B) {
	const k = 2048
	x := testrows.Gaussian(7, k)
	for i := range x {
		x[i] = packing.ScaleBF16.Round(x[i])
	}
	for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
		for _, bits := range []int{2, 4, 8} {
			for _, m := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingAsymmetric} {
				for _, precision := range []packing.ScaleDtype{packing.ScaleNone, packing.ScaleBF16} {
					s := Scheme{Bits: bits, Group: 32, Mapping: m, ScaleDtype: packing.ScaleBF16, Algorithm: a}
					b.Run(fmt.Sprintf("%s/%d/%s/%s", a, bits, m, precision), func(b *testing.B) {
						rq, err := NewRowQuantizer(s, k)
						if err != nil {
							b.Fatal(err)
						}
						rq.Recover(precision)
						row := NewCodes(s.Shape(1, k)).Row(0)
						for b.Loop() {
							if err := rq.Quantize(row.Codes, row.Scales, row.Zeros, x, nil); err != nil {
								b.Fatal(err)
							}
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(k/32), "ns/group")
					})
				}
			}
		}
	}
}
