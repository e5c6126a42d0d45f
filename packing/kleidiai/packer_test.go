package kleidiai

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// layoutHeaders has a header of every layout. Tests set the tile, rows, columns, group and flags.
var layoutHeaders = []packing.Header{
	{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32},
	{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 32},
	{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32},
	{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 32},
	{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32},
}

// eachHeader calls f with valid headers of every layout and tile, of many shapes and groups.
func eachHeader(f func(h packing.Header)) {
	n := 0
	for _, h := range layoutHeaders {
		for _, h.Tile = range h.Layout.Tiles() {
			for _, h.Rows = range []uint64{1, 3, 4, 7, 17} {
				for _, h.Cols = range []uint64{1, 15, 32, 45, 96, 256} {
					for _, h.Group = range []uint64{0, 32, 64, 128} {
						n++
						h.Flags = packing.Flags(n) & (packing.FlagBias | packing.FlagPositiveScales)
						if h.Layout == packing.LayoutQSI4C32PF16 {
							h.Flags &^= packing.FlagBias
						}
						if h.Validate() == nil {
							f(h)
						}
					}
				}
			}
		}
	}
}

// randomPanel fills a panel of l with random values that its header allows.
func randomPanel(rng *rand.Rand, l packing.Packer) *packing.Panel {
	h, p := l.Header(), l.NewPanel()
	half := 1 << (h.Bits - 1)
	for r := range int(h.Tile.NR) {
		row := p.Codes[r*l.PackedCols():][:h.Cols]
		for i := range row {
			row[i] = int8(rng.IntN(2*half) - half)
		}
	}
	for i := range p.Scales {
		p.Scales[i] = h.ScaleDtype.Round(float32(math.Ldexp(1+rng.Float64(), rng.IntN(14)-12)))
		if h.Flags&packing.FlagPositiveScales == 0 && rng.IntN(2) == 0 {
			p.Scales[i] = -p.Scales[i]
		}
	}
	for i := range p.FloatZeros {
		p.FloatZeros[i] = float32(rng.NormFloat64())
		if rng.IntN(4) == 0 {
			p.FloatZeros[i] = packing.FloatZero(float32(rng.IntN(256)-128), p.Scales[i])
		}
	}
	for i := range p.Bias {
		p.Bias[i] = float32(rng.NormFloat64())
	}
	return p
}

// packRandom packs random panels of a payload with header h and returns the panels and the packed
// data.
func packRandom(t testing.TB, rng *rand.Rand, h packing.Header) (l *Packer, data []byte, panels []*packing.Panel) {
	t.Helper()
	l, err := NewPacker(h)
	if err != nil {
		t.Fatalf("%+v: %v", h, err)
	}
	size, _ := h.DataSize()
	data = slices.Repeat([]byte{0xa5}, int(size))
	if want := l.Panels() * l.PanelBytes(); want != len(data) || len(l.Prefix()) != 0 {
		t.Fatalf("%+v: %d bytes of data, %d of panels", h, len(data), want)
	}
	for i := range l.Panels() {
		p := randomPanel(rng, l)
		p.Rows = l.PanelRows(i)
		for r := p.Rows; r < int(h.Tile.NR); r++ { // PackPanel must not read these
			p.Codes[r*l.PackedCols()] = 77
			p.Scales[r*l.Groups()] = float32(math.NaN())
		}
		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
		panels = append(panels, p)
	}
	return l, data, panels
}

// TestPacker compares everything that reads a payload with the packed panels.
func TestPacker(t *testing.T) {
	n := 0
	eachHeader(func(h packing.Header) {
		n++
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		l, data, panels := packRandom(t, rng, h)
		nr, k, g, stride := int(h.Tile.NR), int(h.Cols), l.Groups(), l.PackedCols()
		if l.Header() != h || g != int(h.Groups()) {
			t.Fatalf("%+v: header %+v, %d groups", h, l.Header(), g)
		}
		unpacked := l.NewPanel()
		codes, scales, whole, weights := make([]int8, k), make([]float32, g), make([]int8, g), make([]float32, k)
		zeros := make([]float32, g)
		for i, p := range panels {
			panel := data[i*l.PanelBytes():][:l.PanelBytes()]
			if err := l.CheckPanel(i, panel); err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			l.UnpackPanel(unpacked, panel)
			if unpacked.Rows != nr {
				t.Fatalf("%+v: %d rows unpacked", h, unpacked.Rows)
			}
			for r := range p.Rows {
				want := p.Codes[r*stride:][:stride]
				if !slices.Equal(unpacked.Codes[r*stride:][:stride], want) || !slices.Equal(unpacked.Scales[r*g:][:g], p.Scales[r*g:][:g]) ||
					p.FloatZeros != nil && !sameBits(unpacked.FloatZeros[r*g:][:g], p.FloatZeros[r*g:][:g]) || p.Bias != nil && unpacked.Bias[r] != p.Bias[r] {
					t.Fatalf("%+v: panel %d row %d unpacked is not what was packed", h, i, r)
				}
				row := i*nr + r
				l.Row(codes, scales, whole, data, row)
				l.FloatZeros(zeros, data, row)
				if !slices.Equal(codes, want[:k]) || !slices.Equal(scales, p.Scales[r*g:][:g]) {
					t.Fatalf("%+v: row %d is not what was packed", h, row)
				}
				for i, zero := range zeros {
					packed := float32(0)
					if p.FloatZeros != nil {
						packed = p.FloatZeros[r*g+i]
					}
					if z, _ := packing.IntegerZero(zero, scales[i]); math.Float32bits(zero) != math.Float32bits(packed) || whole[i] != z {
						t.Fatalf("%+v: row %d has zero point %v (%d) in group %d, want %v (%d)", h, row, zero, whole[i], i, packed, z)
					}
				}
				bias := float32(0)
				if p.Bias != nil {
					bias = p.Bias[r]
				}
				if l.Bias(data, row) != bias {
					t.Fatalf("%+v: row %d has bias %v, want %v", h, row, l.Bias(data, row), bias)
				}
				l.DequantizeRow(weights, data, row)
				for c, w := range weights {
					if want := weight(p, g, stride, k, r, c); w != want {
						t.Fatalf("%+v: row %d column %d dequantized is %v, want %v", h, row, c, w, want)
					}
				}
			}
		}
	})
	if n < 200 {
		t.Errorf("only %d headers", n)
	}
}

// weight is the weight at row r, column c of p, computed in float64 up to its roundings.
func weight(p *packing.Panel, groups, stride, k, r, c int) float32 {
	i := r*groups + c*groups/k
	w := float32(float64(p.Codes[r*stride+c]) * float64(p.Scales[i]))
	if p.FloatZeros != nil {
		w = float32(float64(w) + float64(p.FloatZeros[i]))
	}
	return w
}

// TestPackerVectors compares PackPanel with KleidiAI's bytes, for the vectors that a payload's
// layout can hold.
func TestPackerVectors(t *testing.T) {
	seen := map[string]int{}
	for _, v := range vectors(t, "rhs_pack") {
		layout, ok := vectorLayouts[v.Func]
		if !ok || layout == packing.LayoutQSI8CXP && v.LHSZeroPoint != 1 || v.LUT == "-3,-1,1,3" {
			continue
		}
		h := layoutHeaders[slices.IndexFunc(layoutHeaders, func(h packing.Header) bool { return h.Layout == layout })]
		h.Tile = packing.Tile{NR: uint8(v.NR), KR: uint8(v.KR), SR: uint8(v.SR)}
		h.Rows, h.Cols, h.Group = uint64(v.N), uint64(v.K), uint64(v.BL)
		if v.Bias != nil && layout != packing.LayoutQSI4C32PF16 {
			h.Flags = packing.FlagBias
		}
		l, err := NewPacker(h)
		if err != nil {
			if slices.Contains(layout.Tiles(), h.Tile) {
				t.Errorf("%s: %v", v.ID, err)
			}
			continue
		}
		seen[fmt.Sprint(layout, h.Tile)]++
		t.Run(v.ID, func(t *testing.T) {
			if !slices.Equal(packWeights(l, v.weights(t, layout)), v.Packed.bytes(t)) {
				t.Error("other bytes than KleidiAI's")
			}
		})
	}
	for _, h := range layoutHeaders {
		for _, tile := range h.Layout.Tiles() {
			if seen[fmt.Sprint(h.Layout, tile)] < 2 {
				t.Errorf("%d vectors of %s with tile %s", seen[fmt.Sprint(h.Layout, tile)], h.Layout, tile)
			}
		}
	}
}

// packWeights packs w panel by panel.
func packWeights(l *Packer, w *weights) []byte {
	k, g, nr := int(l.Header().Cols), l.Groups(), int(l.Header().Tile.NR)
	data, p := make([]byte, l.Panels()*l.PanelBytes()), l.NewPanel()
	for i := range l.Panels() {
		p.Rows = l.PanelRows(i)
		for r := range p.Rows {
			row := i*nr + r
			copy(p.Codes[r*l.PackedCols():], w.codes[row*k:][:k])
			copy(p.Scales[r*g:], w.scales[row*g:][:g])
			if p.FloatZeros != nil {
				copy(p.FloatZeros[r*g:], w.zeros[row*g:][:g])
			}
			if p.Bias != nil {
				p.Bias[r] = w.bias[row]
			}
		}
		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
	}
	return data
}

// TestCodecs compares the codecs that work on words with one that works code by code.
func TestCodecs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	eachHeader(func(h packing.Header) {
		l, data, panels := packRandom(t, rng, h)
		f, again := l.f, l.NewPanel()
		for i, p := range panels {
			panel := data[i*l.PanelBytes():][:l.PanelBytes()]
			l.UnpackPanel(again, panel)
			for r := range p.Rows {
				for k := range f.cols {
					o, place := f.place(k % f.group)
					code := f.data(panel, k/f.group)[f.offset(r, o)] >> (f.bits * place)
					if f.bits == 2 {
						code ^= 2
					}
					code <<= 8 - f.bits // the sign goes to the top
					if q := int8(code) >> (8 - f.bits); q != p.Codes[r*f.cols+k] || q != again.Codes[r*f.cols+k] {
						t.Fatalf("%+v: row %d has code %d at column %d, packed was %d and unpacked %d", h, r, q, k, p.Codes[r*f.cols+k], again.Codes[r*f.cols+k])
					}
				}
			}
		}
	})
}

func TestNewPackerRefuses(t *testing.T) {
	good := layoutHeaders[0]
	good.Tile, good.Rows, good.Cols = packing.DefaultTile, 8, 32
	for _, c := range []struct {
		name        string
		edit        func(h *packing.Header)
		unsupported string // part of the message; "" for a *packing.HeaderError
	}{
		{"lowbit", func(h *packing.Header) { h.Layout = packing.LayoutLowbit }, "layout lowbit, want qsi4cxp, qsi4c32p-f16, qsi8cxp, qai4c32p or qsu2cxp"},
		{"bits", func(h *packing.Header) { h.Bits = 5 }, ""},
		{"too many columns", func(h *packing.Header) { h.Cols = 1 << 31 }, "8 x 2147483648 weights are more than this machine can address"},
		{"too large", func(h *packing.Header) { h.Rows = 1 << 56 }, "2017612633061982208 bytes are more than this machine can address"},
	} {
		h := good
		c.edit(&h)
		_, err := NewPacker(h)
		var malformed *packing.HeaderError
		var unsupported *packing.UnsupportedError
		if c.unsupported == "" && !errors.As(err, &malformed) || c.unsupported != "" && (!errors.As(err, &unsupported) || unsupported.Msg != c.unsupported) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

func TestPackerPanics(t *testing.T) {
	h := layoutHeaders[3]
	h.Tile, h.Rows, h.Cols, h.Flags = packing.Tile{NR: 4, KR: 8, SR: 2}, 5, 64, packing.FlagBias
	l, data, _ := packRandom(t, rand.New(rand.NewPCG(1, 1)), h)
	dst := data[:l.PanelBytes()]
	for name, f := range map[string]func(p *packing.Panel){
		"rows":          func(p *packing.Panel) { p.Rows = 5; l.PackPanel(dst, p) },
		"codes":         func(p *packing.Panel) { p.Codes = p.Codes[1:]; l.PackPanel(dst, p) },
		"scales":        func(p *packing.Panel) { p.Scales = nil; l.PackPanel(dst, p) },
		"zeros":         func(p *packing.Panel) { p.FloatZeros = nil; l.PackPanel(dst, p) },
		"integer zeros": func(p *packing.Panel) { p.Zeros = make([]int8, 4*l.Groups()); l.PackPanel(dst, p) },
		"bias":          func(p *packing.Panel) { p.Bias = make([]float32, 1); l.PackPanel(dst, p) },
		"dst":           func(p *packing.Panel) { l.PackPanel(dst[1:], p) },
		"row":           func(p *packing.Panel) { l.Row(nil, nil, nil, data, 5) },
		"negative row":  func(p *packing.Panel) { l.DequantizeRow(make([]float32, 64), data, -1) },
		"data":          func(p *packing.Panel) { l.Bias(dst, 4) },
		"panel number":  func(p *packing.Panel) { _ = l.CheckPanel(2, dst) },
		"unpack target": func(p *packing.Panel) { p.Codes = p.Codes[1:]; l.UnpackPanel(p, dst) },
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

func TestPackerDoesNotAllocate(t *testing.T) {
	eachHeader(func(h packing.Header) {
		if h.Rows != 3 || h.Cols != 256 {
			return
		}
		l, data, panels := packRandom(t, rand.New(rand.NewPCG(1, 1)), h)
		p, row := l.NewPanel(), make([]float32, h.Cols)
		for name, f := range map[string]func(){
			"pack":       func() { l.PackPanel(data[:l.PanelBytes()], panels[0]) },
			"unpack":     func() { l.UnpackPanel(p, data[:l.PanelBytes()]) },
			"dequantize": func() { l.DequantizeRow(row, data, 2) },
		} {
			if n := testing.AllocsPerRun(5, f); n != 0 {
				t.Errorf("%+v: %s: %v allocations", h, name, n)
			}
		}
	})
}

// FuzzPanel tests that UnpackPanel reads any bytes as a panel, and that packing an unpacked panel
// that CheckPanel accepts gives the same bytes.
func FuzzPanel(f *testing.F) {
	i := 0
	eachHeader(func(h packing.Header) {
		if i++; i%13 == 0 {
			_, data, _ := packRandom(f, rand.New(rand.NewPCG(uint64(i), 1)), h)
			f.Add(uint8(h.Layout), uint8(h.Flags), uint8(slices.Index(h.Layout.Tiles(), h.Tile)), uint8(h.Rows), uint16(h.Cols), uint8(h.Group), data)
		}
	})
	f.Fuzz(func(t *testing.T, layout, flags, tile, rows uint8, cols uint16, group uint8, data []byte) {
		i := slices.IndexFunc(layoutHeaders, func(h packing.Header) bool { return h.Layout == packing.Layout(layout) })
		if i < 0 || int(tile) >= len(layoutHeaders[i].Layout.Tiles()) {
			return
		}
		h := layoutHeaders[i]
		h.Tile, h.Flags, h.Rows, h.Cols, h.Group = h.Layout.Tiles()[tile], packing.Flags(flags), uint64(rows), uint64(cols), uint64(group)
		l, err := NewPacker(h)
		if err != nil {
			if h.Validate() == nil {
				t.Fatalf("%+v: %v", h, err)
			}
			return
		}
		if len(data) < l.PanelBytes() {
			return
		}
		panel, p, again := data[:l.PanelBytes()], l.NewPanel(), make([]byte, l.PanelBytes())
		l.UnpackPanel(p, panel)
		p.Rows = l.PanelRows(0)
		l.PackPanel(again, p)
		if err := l.CheckPanel(0, panel); err == nil && !slices.Equal(panel, again) {
			t.Fatal("accepted a panel that PackPanel does not make")
		}
		// Packing again is idempotent, whatever the bytes were.
		l.UnpackPanel(p, again)
		p.Rows = l.PanelRows(0)
		twice := make([]byte, len(again))
		if l.PackPanel(twice, p); !slices.Equal(again, twice) {
			t.Fatal("packing is not the inverse of unpacking")
		}
		full := make([]byte, l.Panels()*l.PanelBytes())
		copy(full, data)
		l.DequantizeRow(make([]float32, h.Cols), full, int(h.Rows)-1)
	})
}

func ExamplePacker() {
	h := packing.Header{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 1}, Rows: 2, Cols: 3}
	l, err := NewPacker(h)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := l.NewPanel()
	p.Rows = 2
	copy(p.Codes, []int8{-128, 0, 127})
	copy(p.Codes[l.PackedCols():], []int8{1, 2, 3})
	p.Scales[0], p.Scales[1] = 0.5, 2
	data := make([]byte, l.PanelBytes())
	l.PackPanel(data, p)

	row := make([]float32, 3)
	l.DequantizeRow(row, data, 1)
	fmt.Println(len(data), row)
	// Output: 176 [2 4 6]
}
