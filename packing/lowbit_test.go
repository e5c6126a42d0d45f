package packing

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// lowbitHeaders calls f with headers of all relevant combinations.
func lowbitHeaders(f func(h Header)) {
	for bits := uint8(1); bits <= 8; bits++ {
		for _, tile := range lowbitTiles {
			for _, cols := range []uint64{1, 12, 31, 32, 33, 96, 172, 341, 2048} {
				for i, group := range []uint64{16, 32, 48, 64, 128, 0} {
					for _, kind := range []ZeroKind{ZeroNone, ZeroInt8, ZeroFraction} {
						if kind == ZeroFraction && bits == 8 {
							continue
						}
						// The number of rows and the flags vary along.
						rows := uint64(tile.NR)*uint64(i%2) + uint64(i+int(bits))%uint64(tile.NR) + 1
						if cols == 2048 {
							rows = uint64(i + 1)
						}
						for j, dtype := range []ScaleDtype{ScaleBF16, ScaleF16, ScaleF32} {
							if cols == 2048 && (i+j+int(bits))%3 != 0 {
								continue // one of three, to save time
							}
							f(Header{Layout: LayoutLowbit, Flags: Flags(rows) & FlagBias, Bits: bits, ScaleDtype: dtype,
								ZeroKind: kind, Tile: tile, Rows: rows, Cols: cols, Group: group}.Canonical())
						}
						if bits <= 2 && kind == ZeroNone {
							f(Header{Layout: LayoutLowbit, Flags: Flags(rows) & FlagBias, Bits: bits, Grid: GridHalfStep, ScaleDtype: ScaleBF16,
								Tile: tile, Rows: rows, Cols: cols, Group: group})
						}
					}
				}
			}
		}
	}
}

// unitBitmaps returns TorchAO's bitmaps of units of 128 codes, by number of bits: byte*8+bit where
// stored bit j of code i lands.
func unitBitmaps(t *testing.T) map[int][][]int {
	var cases []struct {
		Bits   int `json:"nbit"`
		Unit   int
		Bitmap [][]int
	}
	if err := json.Unmarshal(testshared.VectorsZst(t, "../testdata/vectors/torchao/bitpack.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	bitmaps := map[int][][]int{}
	for _, c := range cases {
		if c.Unit == 128 {
			bitmaps[c.Bits] = c.Bitmap
		}
	}
	return bitmaps
}

// TestLowbit compares PackPanel with the reference, and everything that reads with the matrix, for
// every width, tile, grid, zero point kind and scale dtype.
func TestLowbit(t *testing.T) {
	bitmaps, n := unitBitmaps(t), 0
	lowbitHeaders(func(h Header) {
		n++
		if testing.Short() && n%17 != 0 {
			return
		}
		l, err := NewLowbit(h)
		if err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		m := randomMatrix(rng, h)
		data := m.pack(t, l)
		if want := m.reference(bitmaps[int(h.Bits)]); !slices.Equal(data, want) {
			t.Fatalf("%+v: packed bytes differ from the reference's", h)
		}
		m.checkRead(t, l, data, rng)
	})
	t.Log(n, "headers")
}

// checkRead compares the rows that l reads from data with m.
func (m *matrix) checkRead(t *testing.T, l *Lowbit, data []byte, rng *rand.Rand) {
	t.Helper()
	n, k, g, nr := int(m.h.Rows), int(m.h.Cols), int(m.h.Groups()), int(m.h.Tile.NR)
	p := l.NewPanel()
	for i := range l.Panels() {
		panel := data[i*l.PanelBytes():][:l.PanelBytes()]
		if err := l.CheckPanel(i, panel); err != nil {
			t.Fatalf("%+v: %v", m.h, err)
		}
		l.UnpackPanel(p, panel)
		for r := range nr {
			row := min(i*nr+r, n-1)
			codes := p.Codes[r*l.PackedCols():][:l.PackedCols()]
			if !slices.Equal(codes[:k], m.codes[row*k:][:k]) || slices.ContainsFunc(codes[k:], func(q int8) bool { return q != 0 }) ||
				!slices.Equal(p.Scales[r*g:][:g], m.scales[row*g:][:g]) ||
				m.zeros != nil && !slices.Equal(p.Zeros[r*g:][:g], m.zeros[row*g:][:g]) ||
				m.bias != nil && p.Bias[r] != m.bias[row] {
				t.Fatalf("%+v: panel %d row %d unpacked is not what was packed", m.h, i, r)
			}
		}
	}
	codes, scales, zeros, weights := make([]int8, k), make([]float32, g), make([]int8, g), make([]float32, k)
	for range 2 {
		row := rng.IntN(n)
		l.Row(codes, scales, zeros, data, row)
		l.DequantizeRow(weights, data, row)
		if !slices.Equal(codes, m.codes[row*k:][:k]) || !slices.Equal(scales, m.scales[row*g:][:g]) ||
			m.zeros != nil && !slices.Equal(zeros, m.zeros[row*g:][:g]) {
			t.Fatalf("%+v: row %d is not what was packed", m.h, row)
		}
		for col, w := range weights {
			if want := m.weight(row, col); w != want {
				t.Fatalf("%+v: row %d column %d dequantized is %v, want %v", m.h, row, col, w, want)
			}
		}
		bias := float32(0)
		if m.bias != nil {
			bias = m.bias[row]
		}
		group := int(m.h.Group)
		if group == 0 {
			group = k
		}
		if l.Bias(data, row) != bias || l.Sum(data, row) != m.sum(row, int(m.h.Tile.KR)/2, group) {
			t.Fatalf("%+v: row %d: bias %v, sum %v", m.h, row, l.Bias(data, row), l.Sum(data, row))
		}
	}
}

// TestDequantizeRoundsOnce tests that the product of a code and an F32 scale, which is not exact,
// is rounded once.
func TestDequantizeRoundsOnce(t *testing.T) {
	h := Header{Layout: LayoutLowbit, Bits: 8, ScaleDtype: ScaleF32, ZeroKind: ZeroInt8, Tile: DefaultTile, Rows: 3, Cols: 341, Group: 48}
	l, err := NewLowbit(h)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	m := randomMatrix(rng, h)
	for i := range m.scales {
		m.scales[i] = float32(rng.NormFloat64() + 3)
	}
	m.checkRead(t, l, m.pack(t, l), rng)
}

func TestNewLowbitRefuses(t *testing.T) {
	var u *UnsupportedError
	if _, err := NewLowbit(PlainHeader(F32, 2, 2)); !errors.As(err, &u) {
		t.Errorf("plain: error %v, want an UnsupportedError", err)
	}
	var h *HeaderError
	if _, err := NewLowbit(Header{Layout: LayoutLowbit, Tile: DefaultTile}); !errors.As(err, &h) {
		t.Errorf("empty: error %v, want a HeaderError", err)
	}
	// The payload fits the format's 2^62 bytes, but 8 times its size does not fit an int.
	big := Header{Layout: LayoutLowbit, Bits: 8, ScaleDtype: ScaleBF16, Tile: DefaultTile, Rows: 8, Cols: 1 << 58}
	if _, err := NewLowbit(big); !errors.As(err, &u) {
		t.Errorf("2^61 bytes: error %v, want an UnsupportedError", err)
	}
}

func TestLowbitPanics(t *testing.T) {
	h := Header{Layout: LayoutLowbit, Bits: 2, ScaleDtype: ScaleBF16, ZeroKind: ZeroInt8, Tile: DefaultTile, Rows: 9, Cols: 40, Group: 16}
	l, err := NewLowbit(h)
	if err != nil {
		t.Fatal(err)
	}
	dst, data := make([]byte, l.PanelBytes()), make([]byte, 2*l.PanelBytes())
	for name, f := range map[string]func(p *Panel){
		"rows":          func(p *Panel) { p.Rows = 9; l.PackPanel(dst, p) },
		"codes":         func(p *Panel) { p.Codes = p.Codes[1:]; l.PackPanel(dst, p) },
		"scales":        func(p *Panel) { p.Scales = nil; l.PackPanel(dst, p) },
		"zeros":         func(p *Panel) { p.Zeros = nil; l.PackPanel(dst, p) },
		"bias":          func(p *Panel) { p.Bias = make([]float32, 1); l.PackPanel(dst, p) },
		"dst":           func(p *Panel) { l.PackPanel(dst[1:], p) },
		"row":           func(p *Panel) { l.Row(nil, nil, nil, data, 9) },
		"negative row":  func(p *Panel) { l.DequantizeRow(make([]float32, 40), data, -1) },
		"data":          func(p *Panel) { l.Sum(dst, 8) },
		"short data":    func(p *Panel) { l.Sum(data[:len(data)-1], 8) },
		"panel number":  func(p *Panel) { l.CheckPanel(2, dst) },
		"unpack target": func(p *Panel) { p.Codes = p.Codes[1:]; l.UnpackPanel(p, dst) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(l.NewPanel())
		}()
	}
}

func TestLowbitDoesNotAllocate(t *testing.T) {
	h := Header{Layout: LayoutLowbit, Bits: 3, ScaleDtype: ScaleBF16, ZeroKind: ZeroInt8, Tile: DefaultTile, Rows: 9, Cols: 172, Group: 48}
	l, err := NewLowbit(h)
	if err != nil {
		t.Fatal(err)
	}
	data := randomMatrix(rand.New(rand.NewPCG(1, 1)), h).pack(t, l)
	p, dst, row := l.NewPanel(), make([]byte, l.PanelBytes()), make([]float32, 172)
	for name, f := range map[string]func(){
		"unpack":     func() { l.UnpackPanel(p, data[:l.PanelBytes()]) },
		"pack":       func() { l.PackPanel(dst, p) },
		"dequantize": func() { l.DequantizeRow(row, data, 8) },
	} {
		if n := testing.AllocsPerRun(10, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzPanel tests that UnpackPanel reads any bytes as a panel, and that packing an unpacked panel
// that CheckPanel accepts gives the same bytes.
func FuzzPanel(f *testing.F) {
	for i, h := range []Header{
		{Bits: 4, Cols: 64, Group: 32, Tile: DefaultTile, Rows: 8},
		{Bits: 3, Cols: 12, Group: 16, Tile: Tile{4, 8, 2}, Rows: 3, ScaleDtype: ScaleF32, ZeroKind: ZeroInt8},
		{Bits: 1, Cols: 50, Group: 48, Tile: Tile{8, 8, 2}, Rows: 5, ScaleDtype: ScaleF16, Grid: GridHalfStep},
	} {
		h.Layout, h.ScaleDtype = LayoutLowbit, max(h.ScaleDtype, ScaleBF16)
		h = h.Canonical()
		l, err := NewLowbit(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(h.Append(nil), randomMatrix(rand.New(rand.NewPCG(uint64(i), 1)), h).pack(f, l))
	}
	f.Fuzz(func(t *testing.T, header, data []byte) {
		h, err := ParseHeader(withChecksum(header))
		if err != nil {
			return
		}
		if size, err := h.DataSize(); err != nil || size > 1<<16 || h.Layout != LayoutLowbit {
			return
		}
		l, err := NewLowbit(h)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) < l.PanelBytes() {
			return
		}
		panel, p, again := data[:l.PanelBytes()], l.NewPanel(), make([]byte, l.PanelBytes())
		l.UnpackPanel(p, panel)
		p.Rows = l.PanelRows(0)
		l.PackPanel(again, p)
		if same, err := slices.Equal(panel, again), l.CheckPanel(0, panel); err == nil && !same {
			t.Fatal("accepted a panel that PackPanel does not make")
		}
		// Packing again is idempotent, whatever the bytes were.
		l.UnpackPanel(p, again)
		p.Rows = l.PanelRows(0)
		twice := make([]byte, len(again))
		if l.PackPanel(twice, p); !slices.Equal(again, twice) {
			t.Fatal("packing is not the inverse of unpacking")
		}
		weights := make([]float32, h.Cols)
		full := make([]byte, l.Panels()*l.PanelBytes())
		copy(full, data)
		l.DequantizeRow(weights, full, int(h.Rows)-1)
	})
}

func ExampleLowbit() {
	h := Header{Layout: LayoutLowbit, Bits: 4, ScaleDtype: ScaleBF16, Tile: DefaultTile, Rows: 2, Cols: 3}
	l, err := NewLowbit(h.Canonical())
	if err != nil {
		fmt.Println(err)
		return
	}
	p := l.NewPanel()
	p.Rows = 2
	copy(p.Codes, []int8{-8, 0, 7})
	copy(p.Codes[l.PackedCols():], []int8{1, 2, 3})
	p.Scales[0], p.Scales[1] = 0.5, -2
	data := make([]byte, l.PanelBytes())
	l.PackPanel(data, p)

	row := make([]float32, 3)
	l.DequantizeRow(row, data, 1)
	fmt.Println(len(data), row, l.Sum(data, 1))
	// Output: 208 [-2 -4 -6] -12
}
