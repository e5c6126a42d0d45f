package rounding

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

func TestRowQuantizerReference(t *testing.T) {
	eachScheme(t, []int{0, 16, 32, 48, 128, 4096}, func(t *testing.T, s Scheme) {
		for i, k := range []int{16, 17, 172, 512} {
			x := oddRow(uint64(i), k)
			if s.ScaleDtype == packing.ScaleF16 { // keep the scales of 8 bits normal
				for i := range x {
					x[i] *= 1024
				}
			}
			got, want := mustQuantizeRow(t, s, x), referenceRow(s, x)
			sameBits(t, "scale", got.scales, want.scales)
			sameCodes(t, "zero point", got.zeros, want.zeros)
			sameCodes(t, "code", got.codes, want.codes)

			var noise, signal float64
			for i, w := range x {
				g := i / s.size(k)
				e := float64(w) - float64(float32((float32(got.codes[i])-got.zero(g))*got.scales[g]))
				noise, signal = noise+e*e, signal+float64(w)*float64(w)
			}
			gotNoise, gotSignal := got.sum.Total()
			if math.Abs(gotNoise-noise) > 1e-5*noise || math.Abs(gotSignal-signal) > 1e-5*signal {
				t.Errorf("k %d: noise %g, signal %g, want %g and %g", k, gotNoise, gotSignal, noise, signal)
			}
		}
	})
}

// TestRowQuantizerBounds checks what users may rely on: codes in range, no error above half a step
// except for clipped weights, no negative scale where they are forbidden, and no clipping of the
// largest weight by full-range.
func TestRowQuantizerBounds(t *testing.T) {
	eachScheme(t, []int{0, 16, 48}, func(t *testing.T, s Scheme) {
		x := testrows.Gaussian(5, 172)
		r := mustQuantizeRow(t, s, x)
		qmin, qmax := codeRange(s.Bits)
		for i, w := range x {
			g := i / s.size(len(x))
			q, scale, zero := float64(r.codes[i]), float64(r.scales[g]), float64(r.zero(g))
			if q < float64(qmin) || q > float64(qmax) {
				t.Fatalf("code %d is %g, out of range", i, q)
			}
			if s.PositiveScales && scale <= 0 {
				t.Fatalf("scale %d is %g", g, scale)
			}
			// 1e-4: w*(1/s) is off by 2^-23 of at most 256.
			exact := float64(w)/scale + zero
			if e := math.Abs(exact - q); e > 0.5+1e-4 && exact > float64(qmin) && exact < float64(qmax) {
				t.Fatalf("weight %d is %g steps from its code %g", i, e, q)
			}
		}
		if s.Mapping != gqf.MappingFullRange || s.PositiveScales {
			return
		}
		for g, scale := range r.scales {
			group := x[g*s.size(len(x)) : min((g+1)*s.size(len(x)), len(x))]
			largest := 0
			for i, w := range group {
				if floats.Abs(w) > floats.Abs(group[largest]) {
					largest = i
				}
			}
			q := r.codes[g*s.size(len(x))+largest]
			if int(q) != qmin {
				t.Errorf("group %d: the largest weight has the code %d, want %d", g, q, qmin)
			}
			if e := math.Abs(float64(group[largest]) - float64(q)*float64(scale)); e > 0.5*math.Abs(float64(scale)) {
				t.Errorf("group %d: the largest weight is off by %g of a step", g, e/math.Abs(float64(scale)))
			}
		}
	})
}

func TestPositiveScalesAreNoClip(t *testing.T) {
	x := oddRow(9, 512)
	for bits := 2; bits <= 8; bits++ {
		s := Scheme{Bits: bits, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, PositiveScales: true}
		got := mustQuantizeRow(t, s, x)
		s.Mapping = gqf.MappingSymmetricNoClip
		want := mustQuantizeRow(t, s, x)
		sameBits(t, "scale", got.scales, want.scales)
		sameCodes(t, "code", got.codes, want.codes)
	}
}

func TestRowQuantizerZeros(t *testing.T) {
	x := make([]float32, 80)
	for i := range x[:32] {
		x[i] = float32(math.Copysign(0, -1))
	}
	x[40] = 0.5 // the second group is not all zero; the third is short
	for _, m := range allMappings {
		r := mustQuantizeRow(t, Scheme{Bits: 4, Group: 32, Mapping: m, ScaleDtype: packing.ScaleF16}, x)
		for _, g := range []int{0, 2} {
			if r.scales[g] != 1 || r.zero(g) != 0 {
				t.Errorf("%s: group %d of zeros has scale %g and zero point %g", m, g, r.scales[g], r.zero(g))
			}
		}
		for i, q := range r.codes {
			if (i < 32 || i >= 64) && q != 0 {
				t.Errorf("%s: a zero has the code %d", m, q)
			}
		}
	}
}

func TestRowQuantizerScaleError(t *testing.T) {
	const (
		bf16 = packing.ScaleBF16
		f16  = packing.ScaleF16
		f32  = packing.ScaleF32
	)
	inf := float32(math.Inf(1))
	tests := []struct {
		name   string
		bits   int
		m      gqf.Mapping
		d      packing.ScaleDtype
		weight float32 // a weight of group 1
		want   float32 // the error's scale; 0: no error
	}{
		{"largest", 4, gqf.MappingFullRange, bf16, math.MaxFloat32, 0},
		{"rounds to infinity", 1, gqf.MappingFullRange, bf16, math.MaxFloat32, -math.MaxFloat32},
		{"largest in f32", 1, gqf.MappingFullRange, f32, math.MaxFloat32, 0},
		{"infinite", 1, gqf.MappingSymmetric, f32, math.MaxFloat32, inf},
		{"divided by zero", 1, gqf.MappingSymmetricNoClip, bf16, 1, inf},
		{"overflow of f16", 2, gqf.MappingSymmetricNoClip, f16, 65520, 65520},
		{"largest in f16", 2, gqf.MappingSymmetricNoClip, f16, 65519, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := testrows.Gaussian(1, 80)
			clear(x[:32])
			x[20] = tt.weight
			_, err := quantizeRow(Scheme{Bits: tt.bits, Group: 16, Mapping: tt.m, ScaleDtype: tt.d}, x)
			if tt.want == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var se *ScaleError
			if !errors.As(err, &se) {
				t.Fatalf("got %v, want a ScaleError", err)
			}
			if se.Group != 1 || se.Scale != tt.want || se.Dtype != tt.d {
				t.Errorf("got %+v, want group 1, scale %g, dtype %s", se, tt.want, tt.d)
			}
			if msg := se.Error(); !containsAll(msg, "group 1", tt.d.String(), "unquantized") {
				t.Error(msg)
			}
		})
	}
}

func TestRowQuantizerNonFinite(t *testing.T) {
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, col := range []int{0, 37, 64, 171} {
			x := testrows.Gaussian(2, 172)
			x[col] = v
			if col < 100 {
				x[120] = float32(math.NaN()) // the first one is named
			}
			_, err := quantizeRow(Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}, x)
			var ne *NonFiniteError
			if !errors.As(err, &ne) {
				t.Fatalf("got %v, want a NonFiniteError", err)
			}
			if ne.Column != col || math.Float32bits(ne.Value) != math.Float32bits(v) {
				t.Errorf("got %+v, want column %d, value %g", ne, col, v)
			}
			if msg := ne.Error(); !containsAll(msg, fmt.Sprint("column ", col), fmt.Sprint(v)) {
				t.Error(msg)
			}
		}
	}
}

// TestSymmetricOneBit checks that the library supports what the command refuses.
func TestSymmetricOneBit(t *testing.T) {
	r := mustQuantizeRow(t, Scheme{Bits: 1, Group: 32, Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleF32}, testrows.Gaussian(3, 64))
	for i, q := range r.codes {
		if q != 0 {
			t.Fatalf("code %d is %d", i, q)
		}
	}
}

// TestRowQuantizerTorchAO checks that with float32 scales gq's arithmetic is TorchAO's.
func TestRowQuantizerTorchAO(t *testing.T) {
	n := 0
	for i, c := range readQparams(t) {
		if c.WeightDtype != "f32" || c.ScaleDtype != "f32" || c.Kind == "zeros" {
			continue
		}
		n++
		t.Run(c.name(i), func(t *testing.T) {
			s := Scheme{Bits: c.Bits, Group: c.GroupSize, Mapping: c.options().Mapping, ScaleDtype: packing.ScaleF32}
			w, scales := floatsOf(t, "f32", c.Weights), floatsOf(t, "f32", c.Scales)
			groups := s.Groups(c.K)
			for i := range c.N {
				got := mustQuantizeRow(t, s, w[i*c.K:(i+1)*c.K])
				sameBits(t, "scale", got.scales, scales[i*groups:(i+1)*groups])
				sameCodes(t, "code", got.codes, c.Codes[i*c.K:(i+1)*c.K])
				if got.zeros != nil {
					sameCodes(t, "zero point", got.zeros, c.ZeroPoints[i*groups:(i+1)*groups])
				}
			}
		})
	}
	if n < 100 {
		t.Errorf("only %d cases", n)
	}
}

// TestRowQuantizerImplementations checks that assembly and portable code give the same bits.
func TestRowQuantizerImplementations(t *testing.T) {
	x := oddRow(4, 1004)
	eachScheme(t, []int{0, 16, 32, 48}, func(t *testing.T, s Scheme) {
		if s.ScaleDtype == packing.ScaleF16 {
			s.ScaleDtype = packing.ScaleF32
		}
		var rows [2]*quantizedRow
		for i, cpu := range []string{"generic", ""} {
			asmtest.Restrict(t, cpu)
			rows[i] = mustQuantizeRow(t, s, x)
		}
		sameBits(t, "scale", rows[1].scales, rows[0].scales)
		sameCodes(t, "zero point", rows[1].zeros, rows[0].zeros)
		sameCodes(t, "code", rows[1].codes, rows[0].codes)
		if rows[1].sum != rows[0].sum {
			t.Errorf("error sums differ: %v and %v", rows[1].sum, rows[0].sum)
		}
	})
}

func TestRowQuantizerNoAllocation(t *testing.T) {
	x := testrows.Gaussian(6, 2048)
	for _, m := range allMappings {
		s := Scheme{Bits: 4, Group: 32, Mapping: m, ScaleDtype: packing.ScaleBF16}
		rq, err := NewRowQuantizer(s, len(x))
		if err != nil {
			t.Fatal(err)
		}
		codes, scales, zeros := make([]int8, len(x)), make([]float32, 64), make([]int8, 64)
		var acc vec.ErrorSum
		if n := testing.AllocsPerRun(10, func() {
			if err := rq.Quantize(codes, scales, zeros, x, &acc); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %g allocations a row", m, n)
		}
		if err := rq.Quantize(codes, scales, zeros, x, nil); err != nil { // no sum wanted
			t.Error(err)
		}
	}
}
