package reference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// matrix is a random matrix of weights and its packed form.
type matrix struct {
	h             packing.Header
	data          []byte
	rows, cols    int
	group, groups int
	codes         []int8    // [row][col]
	scales        []float32 // [row][group]
	zeros         []float32 // [row][group]: zero points, -1/2 on the half-step grid
	bias          []float32 // [row]
}

func (m *matrix) String() string {
	h := m.h
	return fmt.Sprintf("%s %d bits %s %s zeros %s group %d tile %s, %d x %d", h.Layout, h.Bits, h.Grid, h.ScaleDtype, h.ZeroKind, h.Group, h.Tile, h.Rows, h.Cols)
}

// newMatrix packs random weights for h, which needs no flags. scale gives the scales.
func newMatrix(t *testing.T, rng *rand.Rand, h packing.Header, scale func() float32) *matrix {
	t.Helper()
	if h.Layout != packing.LayoutQSI4C32PF16 {
		h.Flags |= packing.FlagBias
	}
	h = h.Canonical()
	p, err := layouts.New(h)
	if err != nil {
		t.Fatal(err)
	}
	m := &matrix{h: h, rows: int(h.Rows), cols: int(h.Cols), groups: p.Groups(), group: int(h.Cols)}
	if m.groups > 1 {
		m.group = int(h.Group)
	}
	m.codes, m.scales = make([]int8, m.rows*m.cols), make([]float32, m.rows*m.groups)
	m.zeros, m.bias = make([]float32, m.rows*m.groups), make([]float32, m.rows)
	for i := range m.codes {
		m.codes[i] = int8(rng.IntN(1<<h.Bits) - 1<<(h.Bits-1))
	}
	for i := range m.scales {
		m.scales[i] = h.ScaleDtype.Round(scale())
		switch {
		case h.Grid == packing.GridHalfStep:
			m.zeros[i] = -0.5
		case h.ZeroKind != packing.ZeroNone:
			m.zeros[i] = float32(rng.IntN(256)-128) * h.ZeroUnit()
			if h.ZeroKind == packing.ZeroF32 {
				m.zeros[i] += rng.Float32()
			}
		}
	}
	if h.Flags&packing.FlagBias != 0 {
		for i := range m.bias {
			m.bias[i] = float32(rng.NormFloat64())
		}
	}
	m.pack(p)
	return m
}

// pack packs m into data.
func (m *matrix) pack(p packing.Packer) {
	prefix, size, k, row := p.Prefix(), p.PanelBytes(), p.PackedCols(), 0
	m.data = append(m.data[:0], prefix...)
	m.data = append(m.data, make([]byte, p.Panels()*size)...)
	for i := range p.Panels() {
		panel := p.NewPanel()
		panel.Rows = p.PanelRows(i)
		for r := range panel.Rows {
			copy(panel.Codes[r*k:], m.codes[row*m.cols:][:m.cols])
			copy(panel.Scales[r*m.groups:], m.scales[row*m.groups:][:m.groups])
			for g := range m.groups {
				at := row*m.groups + g
				if panel.Zeros != nil {
					panel.Zeros[r*m.groups+g] = int8(m.zeros[at] / m.h.ZeroUnit())
				}
				if panel.FloatZeros != nil {
					panel.FloatZeros[r*m.groups+g] = float32(-m.zeros[at] * m.scales[at])
				}
			}
			if panel.Bias != nil {
				panel.Bias[r] = m.bias[row]
			}
			row++
		}
		p.PackPanel(m.data[len(prefix)+i*size:][:size], panel)
	}
}

func (m *matrix) operator(t *testing.T) *Operator {
	t.Helper()
	o, err := New(m.h, m.data)
	if err != nil {
		t.Fatalf("%v: %v", m, err)
	}
	return o
}

// exact computes one output in float64 from dequantized weights and dequantized activations, and
// bounds the error of rounding to float32.
func (m *matrix) exact(a *Activations, i, row int) (out, bound float64) {
	stride := (m.cols + 31) / 32 * 32
	size := 0.0
	for k := range m.cols {
		g := k / m.group
		s, z := float64(m.scales[row*m.groups+g]), float64(m.zeros[row*m.groups+g])
		code, q, zero := float64(m.codes[row*m.cols+k]), float64(a.Q[i*stride+k]), 0.0
		scale := 0.0
		if a.BlockScale != nil {
			scale = float64(a.BlockScale[i*m.groups+g])
		} else {
			zero, scale = float64(a.Zero[i]), float64(a.Rec[i])
		}
		out += (code - z) * s * (q - zero) * scale
		size += math.Abs(s*scale) * (math.Abs(code) + math.Abs(z)) * (math.Abs(q) + math.Abs(zero))
	}
	bias := float64(m.bias[row])
	// An operation errs by 2^-24 of its result at most. There are a few for each group, and one
	// addition for each 8 or 16 columns in the stored sums.
	return out + bias, 0x1p-24 * (size + math.Abs(bias)) * float64(4*m.groups+m.cols/8+8)
}

// headers are one header of every sort that has a product, each with a shape of its own.
func headers(rng *rand.Rand) []packing.Header {
	var list []packing.Header
	for bits := uint8(1); bits <= 8; bits++ {
		for _, group := range []uint64{16, 32, 48, 0} {
			for _, tile := range packing.LayoutLowbit.Tiles() {
				for _, dtype := range []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32} {
					h := packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: dtype, Tile: tile, Group: group}
					list = append(list, h)
					if bits <= 2 {
						h.Grid = packing.GridHalfStep
						list = append(list, h)
						h.Grid = packing.GridInteger
					}
					h.ZeroKind = packing.ZeroInt8
					list = append(list, h)
					if bits < 8 {
						h.ZeroKind = packing.ZeroFraction
						list = append(list, h)
					}
				}
			}
		}
		for _, group := range []uint64{16, 32, 48, 0} {
			h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: bits, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Group: group}
			list = append(list, h)
			h.ZeroKind = packing.ZeroInt8
			list = append(list, h)
		}
	}
	for _, h := range []packing.Header{
		{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32},
		{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32},
		{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 32},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 96},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 32},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 96},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Group: 64},
	} {
		for _, tile := range h.Layout.Tiles() {
			h.Tile = tile
			list = append(list, h)
		}
	}
	for i := range list {
		shape(rng, &list[i])
	}
	return list
}

// shape gives h rows and columns, ragged where the layout allows.
func shape(rng *rand.Rand, h *packing.Header) {
	h.Rows = uint64([]int{1, 3, 4, 5, 8, 13, 17}[rng.IntN(7)])
	k := uint64(1 + rng.IntN(150))
	multiple := uint64(1)
	switch {
	case h.Layout.IsTorchAO() || h.Layout == packing.LayoutQSI4C32PF16 || h.Layout == packing.LayoutQAI4C32P:
		if multiple = h.Group; multiple == 0 {
			multiple = 32
		}
	case h.Layout == packing.LayoutQSU2CXP:
		multiple = 32
	}
	h.Cols = (k + multiple - 1) / multiple * multiple
}
