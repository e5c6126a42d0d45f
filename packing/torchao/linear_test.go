package torchao

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/packing"
)

// linearHeaders calls f with headers of type 1 of every width.
func linearHeaders(f func(h packing.Header)) {
	for bits := uint8(1); bits <= 8; bits++ {
		for i, shape := range [][3]uint64{{1, 16, 16}, {7, 48, 48}, {8, 96, 16}, {9, 96, 32}, {17, 224, 112}, {5, 2048, 0}, {16, 320, 160}} {
			for _, kind := range []packing.ZeroKind{packing.ZeroNone, packing.ZeroInt8} {
				f(packing.Header{
					Layout: packing.LayoutTorchAOLinear, Flags: packing.Flags(i+int(kind)) & packing.FlagBias, Bits: bits,
					ScaleDtype: packing.ScaleF32, ZeroKind: kind, Tile: packing.DefaultTile, Rows: shape[0], Cols: shape[1], Group: shape[2],
				})
			}
		}
	}
}

// linearReference packs m as TorchAO's documentation says, unit by unit with bitplane.PackUnit. It
// shares no other code with PackPanel.
func linearReference(h packing.Header, m *matrix) []byte {
	n, k, groups := int(h.Rows), int(h.Cols), int(h.Groups())
	group, bits := k/groups, int(h.Bits)
	out := []byte{0x38, 0x1a, 0, 0, 1, 0, 0, 0, h.Bits, 0, 0, 0, byte(h.ZeroKind), 0, 0, 0, byte(h.Flags & packing.FlagBias), 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0, 2}
	out = append(out, make([]byte, headerSize-len(out))...)
	put := func(x uint32) { out = binary.LittleEndian.AppendUint32(out, x) }
	for n0 := 0; n0 < n; n0 += 8 {
		rows := min(8, n-n0)
		for g := range groups {
			var sums [8]int
			for k0 := g * group; k0 < (g+1)*group; k0 += 16 {
				var codes []int8
				for half := range 2 {
					for j := range 8 {
						for c := range 8 {
							q := int8(0)
							if j < rows {
								q = m.Codes[(n0+j)*k+k0+8*half+c]
							}
							sums[j] += int(q)
							codes = append(codes, q)
						}
					}
				}
				unit := make([]byte, 16*bits)
				bitplane.PackUnit(bits, 128, unit, codes)
				out = append(out, unit...)
			}
			for j := range 8 {
				if put(0); j < rows {
					binary.LittleEndian.PutUint32(out[len(out)-4:], math.Float32bits(m.Scales[(n0+j)*groups+g]))
				}
			}
			for _, s := range sums {
				put(uint32(s))
			}
			for j := range 8 {
				if m.Zeros == nil {
					break
				}
				if put(0); j < rows {
					binary.LittleEndian.PutUint32(out[len(out)-4:], uint32(int32(m.Zeros[(n0+j)*groups+g])))
				}
			}
		}
		for j := range 8 {
			if m.Bias == nil {
				break
			}
			if put(0); j < rows {
				binary.LittleEndian.PutUint32(out[len(out)-4:], math.Float32bits(m.Bias[n0+j]))
			}
		}
	}
	return out
}

// TestLinear compares type 1 with the reference, and everything that reads with the matrix, for
// shapes that the vectors lack.
func TestLinear(t *testing.T) {
	linearHeaders(func(h packing.Header) {
		m := randomMatrix(rand.New(rand.NewPCG(uint64(h.Bits), h.Cols)), h)
		checkMatrix(t, h, m, linearReference(h, m))
		checkReads(t, h, m)
	})
}

// TestKleidiAI reads back shapes that the vectors lack: both tiles, and every number of rows in a
// panel.
func TestKleidiAI(t *testing.T) {
	for _, tile := range testTiles {
		for rows := uint64(1); rows <= 17; rows++ {
			for _, shape := range [][2]uint64{{64, 32}, {192, 96}, {160, 0}} {
				h := packing.Header{
					Layout: packing.LayoutTorchAOKleidiAI, Flags: packing.Flags(rows/2) & packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16,
					Tile: tile, Rows: rows, Cols: shape[0], Group: shape[1],
				}
				m := randomMatrix(rand.New(rand.NewPCG(rows, shape[0])), h)
				data := pack(t, h, m)
				checkMatrix(t, h, m, data)
				checkReads(t, h, m)
			}
		}
	}
}

// checkReads packs m, reads single rows and panels, and compares them with m. It reads each row
// again after changing every byte that holds no part of the row. Rows of a panel past the last one
// hold rubbish when packed.
func checkReads(t *testing.T, h packing.Header, m *matrix) {
	t.Helper()
	p, err := New(h)
	if err != nil {
		t.Fatal(err)
	}
	want := pack(t, h, m)
	data, panel := slices.Clone(want), p.NewPanel()
	for i := range p.Panels() {
		bytes := data[len(p.Prefix())+i*p.PanelBytes():][:p.PanelBytes()]
		p.UnpackPanel(panel, bytes)
		panel.Rows = p.PanelRows(i)
		spoil(panel.Codes[panel.Rows*p.PackedCols():], 77)
		spoil(panel.Scales[panel.Rows*p.Groups():], float32(math.NaN()))
		if panel.Zeros != nil {
			spoil(panel.Zeros[panel.Rows*p.Groups():], 77)
		}
		if panel.Bias != nil {
			spoil(panel.Bias[panel.Rows:], float32(math.NaN()))
		}
		spoil(bytes, 0xaa)
		p.PackPanel(bytes, panel)
	}
	if !slices.Equal(data, want) {
		t.Fatalf("%+v: panels unpacked and packed again differ", h)
	}
	k, g := int(h.Cols), p.Groups()
	for _, r := range []int{0, int(h.Rows) / 2, int(h.Rows) - 1} {
		codes, scales, zeros, row := make([]int8, k), make([]float32, g), make([]int8, g), make([]float32, k)
		p.Row(codes, scales, zeros, data, r)
		p.DequantizeRow(row, data, r)
		if !slices.Equal(codes, m.Codes[r*k:][:k]) || !sameBits(scales, m.Scales[r*g:][:g]) || m.Zeros != nil && !slices.Equal(zeros, m.Zeros[r*g:][:g]) {
			t.Fatalf("%+v: row %d is not what was packed", h, r)
		}
		for i, w := range row {
			z := 0
			if m.Zeros != nil {
				z = int(m.Zeros[r*g+i/(k/g)])
			}
			if want := float32(float64(int(codes[i])-z) * float64(scales[i/(k/g)])); w != want {
				t.Fatalf("%+v: row %d column %d dequantized is %v, want %v", h, r, i, w, want)
			}
		}
		bias := float32(0)
		if m.Bias != nil {
			bias = m.Bias[r]
		}
		if got := p.Bias(data, r); got != bias {
			t.Fatalf("%+v: row %d: bias %v, want %v", h, r, got, bias)
		}
		p.Row(nil, nil, nil, data, r)
	}
}

func spoil[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// TestRowBytes tests that reading a row depends only on the bytes that hold it: changing all other
// bytes leaves the result unchanged.
func TestRowBytes(t *testing.T) {
	for bits := uint8(1); bits <= 8; bits++ {
		h := packing.Header{
			Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagBias, Bits: bits, ScaleDtype: packing.ScaleF32,
			ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 16, Cols: 64, Group: 32,
		}
		rng := rand.New(rand.NewPCG(uint64(bits), 4))
		m := randomMatrix(rng, h)
		data := linearReference(h, m)
		l, err := newLinear(h)
		if err != nil {
			t.Fatal(err)
		}
		row, want := make([]float32, h.Cols), make([]float32, h.Cols)
		for r := range int(h.Rows) {
			// The bytes that hold a row are the bytes that change with the row.
			holds := make([]bool, len(data))
			for range 20 {
				other := *m
				other.Codes, other.Scales, other.Zeros = slices.Clone(m.Codes), slices.Clone(m.Scales), slices.Clone(m.Zeros)
				again := randomMatrix(rng, h)
				copy(other.Codes[r*64:][:64], again.Codes)
				copy(other.Scales[r*2:][:2], again.Scales)
				copy(other.Zeros[r*2:][:2], again.Zeros)
				for i, b := range linearReference(h, &other) {
					holds[i] = holds[i] || b != data[i]
				}
			}
			for i := range holds { // only some bytes of a 4-byte field may change
				if holds[i] && i >= headerSize && (i-headerSize)%l.PanelBytes()%l.groupBytes >= l.codeBytes {
					spoil(holds[i&^3:][:4], true)
				}
			}
			l.DequantizeRow(want, data, r)
			spoiled := slices.Clone(data)
			for i := range spoiled {
				if !holds[i] {
					spoiled[i] ^= byte(1 + rng.IntN(255))
				}
			}
			if l.DequantizeRow(row, spoiled, r); !sameBits(row, want) {
				t.Fatalf("%d bits: row %d depends on bytes of other rows", bits, r)
			}
		}
	}
}

func TestPackersDoNotAllocate(t *testing.T) {
	for _, h := range []packing.Header{
		{Layout: packing.LayoutTorchAOLinear, Bits: 3, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 9, Cols: 96, Group: 48},
		{Layout: packing.LayoutTorchAOEmbedding, Bits: 5, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 9, Cols: 224, Group: 32},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 9, Cols: 96, Group: 32},
	} {
		data := pack(t, h, randomMatrix(rand.New(rand.NewPCG(1, 1)), h))
		p, err := New(h)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := p.(*Embedding); ok {
			p, _ = e.testCompanions(t, 1)
		}
		panel, row := p.NewPanel(), make([]float32, h.Cols)
		last := data[len(data)-p.PanelBytes():]
		for name, f := range map[string]func(){
			"unpack":     func() { p.UnpackPanel(panel, last) },
			"pack":       func() { panel.Rows = 1; p.PackPanel(last, panel) },
			"dequantize": func() { p.DequantizeRow(row, data, 8) },
		} {
			if n := testing.AllocsPerRun(10, f); n != 0 {
				t.Errorf("%s: %s: %v allocations", h.Layout, name, n)
			}
		}
	}
}
