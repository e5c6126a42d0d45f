//go:build unix

package include_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// scaleFile is a file with a tensor of codes whose first scale is the given one, and the others 1.
func scaleFile(t *testing.T, h packing.Header, scale float32) []byte {
	t.Helper()
	x, rows, groups := newFixture(), int(h.Rows), int(h.Groups())
	specs := []gqf.PayloadSpec{{Header: h}}
	if h.Layout == packing.LayoutCodes {
		dtype := map[packing.ScaleDtype]packing.Dtype{packing.ScaleBF16: packing.BF16, packing.ScaleF16: packing.F16, packing.ScaleF32: packing.F32}[h.ScaleDtype]
		specs = append(specs, gqf.PayloadSpec{Kind: gqf.KindScales, Header: packing.PlainHeader(dtype, h.Rows, h.Groups())})
	}
	x.tensor(gqf.TensorSpec{Name: "w", Shape: []int64{int64(h.Rows), int64(h.Cols)}, Dtype: packing.F32}, specs...)
	file := x.build(t)
	f, err := gqf.OpenBytes(file, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pk, err := layouts.New(h)
	if err != nil {
		t.Fatal(err)
	}
	nr := max(1, int(h.Tile.NR))
	scales := make([]float32, max(rows, nr)*groups)
	for i := range scales {
		scales[i] = 1
	}
	scales[0] = scale
	codes := make([]int8, max(rows, nr)*pk.PackedCols())
	for i := range codes {
		if i%pk.PackedCols() < int(h.Cols) {
			codes[i] = int8(i*5%16) - 8
		}
	}
	data := file[f.Payload(0).Offset+packing.HeaderSize:]
	if h.Layout == packing.LayoutCodes {
		for i := range rows * int(h.Cols) {
			data[i] = byte(codes[i])
		}
		data = file[f.Payload(1).Offset+packing.HeaderSize:]
		for i, s := range scales[:rows*groups] {
			switch h.ScaleDtype {
			case packing.ScaleF16:
				le.PutUint16(data[2*i:], floats.F16FromF32(s))
			case packing.ScaleBF16:
				le.PutUint16(data[2*i:], uint16(math.Float32bits(s)>>16))
			default:
				le.PutUint32(data[4*i:], math.Float32bits(s))
			}
		}
	} else {
		pk.PackPanel(data[:pk.PanelBytes()], &packing.Panel{Rows: rows, Codes: codes, Scales: scales})
	}
	sealAll(file)
	return file
}

// A scaleCase is a file with one scale at a boundary of its dtype.
type scaleCase struct {
	header  packing.Header
	scale   float32
	file    []byte
	verdict string // "." or "p", as driver.c prints them
	sum     bool   // it is a sum that is wrong
}

// scaleCases gives every boundary value of a scale's dtype, of both signs, to each layout that has
// such scales.
func scaleCases(t *testing.T) (all []scaleCase) {
	own := []packing.Layout{packing.LayoutLowbit, packing.LayoutCodes}
	for _, c := range []struct {
		dtype   packing.ScaleDtype
		layouts []packing.Layout
		scales  []float32 // the last three are no numbers
		least   float32
		zero    bool // is a scale
	}{
		{packing.ScaleF16, append(own, packing.LayoutQSI4C32PF16), f16(0, 1, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0x7c01, 0x7e00), 0x1p-24, true},
		{packing.ScaleF32, own, f32(0, 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000), 0x1p-126, true},
		{packing.ScaleF32, []packing.Layout{packing.LayoutQSI4CXP}, f32(0, 0x02000000, 0x02800000, 0x7f000000, 0x7f800000, 0x7f800001, 0x7fc00000), 0x1p-122, false},
		{packing.ScaleBF16, own, f32(0, 0x10000, 0x7f0000, 0x00800000, 0x7f7f0000, 0x7f800000, 0x7f810000, 0x7fc00000), 0x1p-126, false},
	} {
		for _, l := range c.layouts {
			for _, flags := range []packing.Flags{0, packing.FlagPositiveScales} {
				h := layout(l, 5, 64, 32, 4)
				if l == packing.LayoutQSI4CXP {
					h.Group = 0
				}
				h.ScaleDtype, h.Flags = c.dtype, flags
				h = h.Canonical()
				for i := range 2 * len(c.scales) {
					size := c.scales[i/2]
					s := []float32{size, -size}[i%2]
					verdict := "p"
					if i/2 < len(c.scales)-3 && (size >= c.least || size == 0 && c.zero) && !(s < 0 && flags != 0) {
						verdict = "."
					}
					sum := l == packing.LayoutLowbit && verdict == "." && size > 65504
					if sum {
						verdict = "p"
					}
					all = append(all, scaleCase{h, s, scaleFile(t, h, s), verdict, sum})
				}
			}
		}
	}
	return all
}

// TestScales demands that gqf.h, the Python reader and gq verify accept exactly the scales that
// docs/FORMAT.md does.
func TestScales(t *testing.T) {
	cases := scaleCases(t)
	path := filepath.Join(t.TempDir(), "base.gqf")
	check := func(who string, run func([]byte, ...string) (string, error), cases []scaleCase) {
		var changes []byte
		for _, c := range cases {
			changes = append(changes, edits(nil, cases[0].file, c.file)...)
		}
		if err := os.WriteFile(path, cases[0].file, 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := run(changes, "panels", path)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range strings.Fields(out) {
			c := cases[i]
			if c.sum && who == "python" {
				c.verdict = "." // it compares no sums
			}
			if got != c.verdict {
				t.Errorf("layout %s, flags %q, %s scale %v: %s says %q, want %q", c.header.Layout, c.header.Flags, c.header.ScaleDtype, c.scale, who, got, c.verdict)
			}
		}
	}
	for from, to := 0, 0; from < len(cases); from = to { // driver.c takes files of one size
		for to = from; to < len(cases) && cases[to].header == cases[from].header; to++ {
			if got := panelVerdict(t, cases[to].file); got != cases[to].verdict {
				t.Errorf("%+v, scale %v: gq verify says %q, want %q", cases[to].header, cases[to].scale, got, cases[to].verdict)
			}
		}
		check("gqf.h", optimized.compile(t, driver), cases[from:to])
	}
	check("python", python{}.driver(t), cases)
}

func f16(bits ...uint16) (list []float32) {
	for _, b := range bits {
		list = append(list, floats.F16ToF32(b))
	}
	return list
}

func f32(bits ...uint32) (list []float32) {
	for _, b := range bits {
		list = append(list, math.Float32frombits(b))
	}
	return list
}
