package embedding

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
	"github.com/lowbit-go/gq/packing/torchao"
)

// example is a table with the codes, scales and zero points that it was packed from.
type example struct {
	name string
	h    packing.Header
	// Row-major and unpacked: codes rows x cols, the others rows x groups.
	codes  []int8
	scales []float32
	zeros  []int8 // nil if there are none
	parts  Parts
}

// headers of rows x cols in every layout of codes, width, tile and kind of zero
// points, with every grid and dtype of scales.
func headers(rows uint64) []packing.Header {
	var list []packing.Header
	add := func(h packing.Header, cols, group uint64) {
		h.Rows, h.Cols, h.Group = rows, cols, group
		list = append(list, h)
	}
	zeroKinds := []packing.ZeroKind{packing.ZeroNone, packing.ZeroInt8, packing.ZeroFraction}
	for bits := uint8(1); bits <= 8; bits++ {
		for _, zeros := range zeroKinds {
			if zeros == packing.ZeroFraction && bits == 8 {
				continue
			}
			for _, tile := range packing.LayoutLowbit.Tiles() {
				h := packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, ZeroKind: zeros, Tile: tile, Flags: packing.FlagBias}
				add(h, 96, 32)
				h.ScaleDtype = packing.ScaleF16
				add(h, 96, 16) // several groups end in one block
				h.ScaleDtype = packing.ScaleF32
				add(h, 90, 48)
				add(h, 75, 0)
				if bits <= 2 && zeros == packing.ZeroNone {
					h.Grid = packing.GridHalfStep
					add(h, 64, 32)
				}
			}
			h := packing.Header{Layout: packing.LayoutCodes, Bits: bits, ScaleDtype: packing.ScaleF16, ZeroKind: zeros}
			add(h, 90, 48)
			if zeros == packing.ZeroFraction {
				continue
			}
			h = packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: bits, ScaleDtype: packing.ScaleF32, ZeroKind: zeros, Tile: packing.DefaultTile, Flags: packing.FlagBias}
			add(h, 96, 32)
			add(h, 80, 16)
			add(h, 48, 0)
		}
		h := packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: bits, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8}
		add(h, 128+64+32, 32)
		add(h, 96, 0)
	}
	for _, tile := range packing.LayoutLowbit.Tiles() {
		add(packing.Header{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: tile, Flags: packing.FlagBias}, 75, 0)
		add(packing.Header{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: tile}, 96, 32)
		add(packing.Header{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: tile}, 128, 64)
	}
	for _, tile := range packing.LayoutQSI8CXP.Tiles() {
		add(packing.Header{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: tile, Flags: packing.FlagBias}, 75, 0)
	}
	for _, tile := range packing.LayoutQAI4C32P.Tiles() {
		add(packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: tile, Flags: packing.FlagBias}, 96, 32)
		add(packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: tile}, 128, 64)
	}
	for _, tile := range packing.LayoutQSU2CXP.Tiles() {
		add(packing.Header{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32, Tile: tile, Flags: packing.FlagBias}, 96, 0)
	}
	for _, tile := range packing.LayoutTorchAOKleidiAI.Tiles() {
		add(packing.Header{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: tile, Flags: packing.FlagBias}, 96, 32)
	}
	for i := range list {
		list[i] = list[i].Canonical()
	}
	return list
}

// newExample packs a random table.
func newExample(t testing.TB, h packing.Header) *example {
	t.Helper()
	rng := rand.New(rand.NewPCG(h.Cols, uint64(h.Bits)))
	rows, cols, groups := int(h.Rows), int(h.Cols), int(h.Groups())
	e := &example{
		name: fmt.Sprintf("%s %d bits %s scales %s zeros %s grid %s group %d of %d", h.Layout, h.Bits, h.Tile, h.ScaleDtype, h.ZeroKind, h.Grid, h.Group, h.Cols),
		h:    h, codes: make([]int8, rows*cols), scales: make([]float32, rows*groups),
	}
	half := 1 << (h.Bits - 1)
	for i := range e.codes {
		e.codes[i] = int8(rng.IntN(2*half) - half)
	}
	for i := range e.scales {
		e.scales[i] = h.ScaleDtype.Round(float32(math.Ldexp(1+rng.Float64(), rng.IntN(8)-9)))
		if rng.IntN(2) == 0 {
			e.scales[i] = -e.scales[i]
		}
	}
	if h.ZeroKind != packing.ZeroNone {
		e.zeros = make([]int8, rows*groups)
		for i := range e.zeros {
			e.zeros[i] = int8(rng.IntN(2*half) - half)
		}
	}
	if h.ZeroKind == packing.ZeroF32 { // all of a float32 zero point shows in a weight of code 0
		for i := 0; i < len(e.codes); i += cols / groups {
			e.codes[i] = 0
		}
	}
	e.pack(t, rng)
	return e
}

// pack fills in e.parts.
func (e *example) pack(t testing.TB, rng *rand.Rand) {
	t.Helper()
	pk, err := layouts.New(e.h)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	cols, groups, nr := int(e.h.Cols), pk.Groups(), max(int(e.h.Tile.NR), 1)
	e.parts.Data = append(e.parts.Data, pk.Prefix()...)
	p, dst := pk.NewPanel(), make([]byte, pk.PanelBytes())
	for i := range pk.Panels() {
		p.Rows = pk.PanelRows(i)
		for r := range p.Rows {
			row := i*nr + r
			copy(p.Codes[r*pk.PackedCols():], e.codes[row*cols:][:cols])
			copy(p.Scales[r*groups:][:groups], e.scales[row*groups:])
			switch {
			case p.FloatZeros != nil:
				for g, z := range e.zeros[row*groups:][:groups] {
					p.FloatZeros[r*groups+g] = packing.FloatZero(float32(z), e.scales[row*groups+g])
				}
			case e.zeros != nil:
				copy(p.Zeros[r*groups:][:groups], e.zeros[row*groups:])
			}
			if p.Bias != nil {
				p.Bias[r] = float32(rng.NormFloat64())
			}
		}
		pk.PackPanel(dst, p)
		e.parts.Data = append(e.parts.Data, dst...)
	}
	switch pk.(type) {
	case *torchao.Embedding:
		for _, s := range e.scales {
			e.parts.Scales = binary.LittleEndian.AppendUint32(e.parts.Scales, math.Float32bits(s))
		}
		for _, z := range e.zeros {
			e.parts.Zeros = append(e.parts.Zeros, byte(z))
		}
	case *packing.Codes:
		for _, s := range e.scales {
			e.parts.Scales = binary.LittleEndian.AppendUint16(e.parts.Scales, floats.F16FromF32(s))
		}
		for _, z := range e.zeros {
			e.parts.Zeros = append(e.parts.Zeros, byte(z))
		}
	}
}

// weights are row id by the definition of the header's fields.
func (e *example) weights(id int) []float32 {
	cols, groups := int(e.h.Cols), int(e.h.Groups())
	row := make([]float32, cols)
	for k := range row {
		g := 0
		if e.h.Group != 0 {
			g = k / int(e.h.Group)
		}
		q, s, z := int(e.codes[id*cols+k]), e.scales[id*groups+g], 0
		if e.zeros != nil {
			z = int(e.zeros[id*groups+g])
		}
		switch {
		case e.h.Grid == packing.GridHalfStep:
			row[k] = float32((float32(q) + 0.5) * s)
		case e.h.ZeroKind == packing.ZeroF32:
			row[k] = float32(float32(q)*s) + float32(float32(-z)*s)
		default:
			row[k] = float32((float32(q) - float32(z)*e.h.ZeroUnit()) * s)
		}
	}
	return row
}

func (e *example) table(t testing.TB) *Table {
	t.Helper()
	table, err := New(e.h, e.parts)
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	return table
}

// sameBits says whether two slices hold the same numbers, -0 and 0 differing.
func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}
