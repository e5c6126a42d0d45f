package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// payload is a random matrix, packed.
type payload struct {
	h    packing.Header
	data []byte
}

func (p *payload) String() string {
	h := p.h
	return fmt.Sprintf("%s %s, %d bits, %s scales, zeros %s, grid %s, group %d, flags %q, %d x %d",
		h.Layout, h.Tile, h.Bits, h.ScaleDtype, h.ZeroKind, h.Grid, h.Group, h.Flags, h.Rows, h.Cols)
}

// contents is the choice of random numbers in a payload.
type contents uint8

const (
	ordinary contents = iota
	extreme           // codes and zero points at their limits
	nasty             // scales and biases of any size
	noise             // any bytes, as a damaged file has them
)

func newPayload(t testing.TB, rng *rand.Rand, h packing.Header, c contents) *payload {
	t.Helper()
	packer, err := layouts.New(h)
	if err != nil {
		t.Fatalf("%+v: %v", h, err)
	}
	p := &payload{h, append([]byte(nil), packer.Prefix()...)}
	prefix, size := len(p.data), packer.PanelBytes()
	p.data = append(p.data, make([]byte, packer.Panels()*size)...)
	if c == noise && h.Layout != packing.LayoutTorchAOLinear { // its sums must match the codes
		for i := range p.data[prefix:] {
			p.data[prefix+i] = byte(rng.Uint32())
		}
		return p
	}
	panel, k := packer.NewPanel(), packer.PackedCols()
	low := -(1 << (h.Bits - 1))
	for i := range packer.Panels() {
		panel.Rows = packer.PanelRows(i)
		for j := range panel.Codes {
			q := low + rng.IntN(1<<h.Bits)
			if c == extreme {
				q = low + (1<<h.Bits-1)*(j/k%2)
			}
			if panel.Codes[j] = int8(q); j%k >= int(h.Cols) {
				panel.Codes[j] = 0
			}
		}
		for j := range panel.Scales {
			panel.Scales[j] = randomScale(rng, h, c)
		}
		for j := range panel.Zeros {
			panel.Zeros[j] = int8(rng.Uint32())
			if c == extreme {
				panel.Zeros[j] = int8(-128 + 255*(j%2))
			}
		}
		for j := range panel.FloatZeros {
			panel.FloatZeros[j] = float32(0.1 * rng.NormFloat64())
			switch c {
			case extreme:
				panel.FloatZeros[j] = packing.FloatZero(float32(-128+255*(j%2)), panel.Scales[j])
			case nasty:
				panel.FloatZeros[j] = nastyFloat(rng)
			}
		}
		for j := range panel.Bias {
			panel.Bias[j] = float32(rng.NormFloat64())
			if c == nasty {
				panel.Bias[j] = nastyFloat(rng)
			}
		}
		packer.PackPanel(p.data[prefix+i*size:][:size], panel)
	}
	return p
}

func randomScale(rng *rand.Rand, h packing.Header, c contents) float32 {
	s := float32(0.001+0.02*rng.Float64()) * float32(1-2*rng.IntN(2))
	if c == nasty {
		// The smallest scales cannot be halved, or multiplied by the unit of fractional zero points,
		// without losing a bit.
		size := []float32{h.SmallestScale(), 1.999 * h.SmallestScale(), h.ScaleDtype.Max() / 16, 1}[rng.IntN(4)]
		s = size * float32(1-2*rng.IntN(2))
	}
	return h.ScaleDtype.Round(s)
}

// nastyFloat is any float32, often one at a limit.
func nastyFloat(rng *rand.Rand) float32 {
	special := []uint32{0, 1, 0x007fffff, 0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001}
	u := rng.Uint32()
	if u%4 == 0 {
		u = special[rng.IntN(len(special))] | u&(1<<31)
	}
	return math.Float32frombits(u)
}

// someRows are m rows of activations of all sorts.
func someRows(rng *rand.Rand, m, k int) []float32 {
	x := make([]float32, m*k)
	for i := range m {
		row := x[i*k:][:k]
		sort := rng.IntN(14)
		for j := range row {
			v := float32(rng.NormFloat64())
			switch sort {
			case 0: // one-sided
				v = v*v + 1
			case 1:
				v = -v*v - 0.01
			case 2:
				v = 0
			case 3: // constant
				v = 3.25
			case 4:
				v *= 1e38
			case 5: // subnormal
				v = float32(v * 1e-40)
			case 6: // ties when quantized
				v = float32(rng.IntN(511)-255) / 2
			case 7:
				v = nastyFloat(rng)
			case 8: // a spike
				v = float32(v * 1e-3)
				if j == k/2 {
					v = -100
				}
			case 9: // the negative zero
				v = float32(math.Copysign(0, -1))
			}
			row[j] = v
		}
		switch sort {
		case 10:
			row[rng.IntN(k)] = float32(math.NaN())
		case 11:
			row[rng.IntN(k)] = float32(math.Inf(1 - 2*rng.IntN(2)))
		}
	}
	return x
}

// expected is the reference's product with x.
func expected(t testing.TB, p *payload, x []float32, m int) []float32 {
	t.Helper()
	o, err := reference.New(p.h, p.data)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	dst := make([]float32, m*o.Rows())
	o.Multiply(dst, x, m)
	return dst
}

// allHeaders calls f with a header of every combination that matters, and a number.
func allHeaders(rng *rand.Rand, f func(n int, h packing.Header)) {
	n := 0
	emit := func(h packing.Header) {
		n++
		f(n, shaped(rng, h))
	}
	dtypes := []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
	for bits := uint8(1); bits <= 8; bits++ {
		for i, group := range []uint64{0, 16, 32, 48, 64, 128} {
			for _, tile := range packing.LayoutLowbit.Tiles() {
				for j, dtype := range dtypes {
					h := packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: dtype, Tile: tile, Group: group, Flags: packing.Flags(i+j) & packing.FlagBias}
					emit(h)
					h.ZeroKind = packing.ZeroInt8
					emit(h)
					if bits < 8 {
						h.ZeroKind = packing.ZeroFraction
						emit(h)
					}
					if bits <= 2 {
						h.ZeroKind, h.Grid = packing.ZeroNone, packing.GridHalfStep
						emit(h)
					}
				}
			}
			h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: bits, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Group: group, Flags: packing.Flags(i) & packing.FlagBias}
			emit(h)
			h.ZeroKind = packing.ZeroInt8
			emit(h)
		}
	}
	for _, h := range []packing.Header{
		{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
		{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32},
		{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
		{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32},
		{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 32},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 64},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 96},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 32, Flags: packing.FlagBias},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 96},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Group: 32, Flags: packing.FlagBias},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Group: 64},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16},
	} {
		for range 3 {
			for _, tile := range h.Layout.Tiles() {
				h.Tile = tile
				emit(h)
			}
		}
	}
}

// shaped gives h rows and columns, ragged where the layout allows.
func shaped(rng *rand.Rand, h packing.Header) packing.Header {
	h.Rows = uint64(1 + rng.IntN(37))
	k, multiple := uint64(1+rng.IntN(260)), uint64(1)
	switch h.Layout {
	case packing.LayoutTorchAOLinear, packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P, packing.LayoutTorchAOKleidiAI:
		if multiple = h.Group; multiple == 0 {
			multiple = 32
		}
	case packing.LayoutQSU2CXP:
		multiple = 32
	}
	if rng.IntN(3) == 0 {
		multiple = max(multiple, 32)
	}
	h.Cols = (k + multiple - 1) / multiple * multiple
	return h.Canonical()
}
