package packing

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/crc32c"
)

func TestDtype(t *testing.T) {
	sizes := map[Dtype]int{F64: 64, F32: 32, F16: 16, BF16: 16, I64: 64, I32: 32, I16: 16, I8: 8, U64: 64, U32: 32, U16: 16, U8: 8, Bool: 8,
		F8E4M3: 8, F8E5M2: 8, f8E8M0: 8, f8E4M3FNUZ: 8, f8E5M2FNUZ: 8, f4: 4, f6E2M3: 6, f6E3M2: 6, c64: 64}
	for d := range dtypeLimit {
		back, ok := ParseDtype(d.String())
		if d == DtypeNone {
			if ok {
				t.Error("none was parsed")
			}
			continue
		}
		if !ok || back != d || d.Bits() != sizes[d] {
			t.Errorf("%d: %s parsed as %v, %v; %d bits, want %d", d, d, back, ok, d.Bits(), sizes[d])
		}
	}
	for s, want := range map[string]Dtype{"BF16": BF16, "BOOL": Bool, "F8_E4M3": F8E4M3, "F6_E2M3": f6E2M3, "bf16": DtypeNone, "": DtypeNone, "unknown(23)": DtypeNone} {
		if got, ok := ParseDtype(s); got != want || ok != (want != DtypeNone) {
			t.Errorf("%q parsed as %v, %v", s, got, ok)
		}
	}
	if s := Dtype(200).String(); s != "unknown(200)" || Dtype(200).Bits() != 0 || Dtype(200).IsFloat() {
		t.Errorf("200 is %s of %d bits", s, Dtype(200).Bits())
	}
	if !F8E5M2.IsFloat() || !BF16.IsFloat() || f8E8M0.IsFloat() || I8.IsFloat() || DtypeNone.IsFloat() {
		t.Error("IsFloat is wrong")
	}
}

func TestScaleDtype(t *testing.T) {
	for _, c := range []struct {
		s     ScaleDtype
		x, r  float32
		scale bool // r can be one
	}{
		{ScaleBF16, 1, 1, true},
		{ScaleBF16, 1 + 0x1p-8, 1, true}, // a tie, to even
		{ScaleBF16, 1 + 0x3p-8, 1 + 0x2p-7, true},
		{ScaleBF16, 1 + 0x1.01p-8, 1 + 0x1p-7, true},
		{ScaleBF16, -0x1p-126, -0x1p-126, true},
		{ScaleBF16, 0x1p-127, 0x1p-127, false},
		{ScaleBF16, math.MaxFloat32, float32(math.Inf(1)), false},
		{ScaleF16, 65504, 65504, true},
		{ScaleF16, -65520, float32(math.Inf(-1)), false},
		{ScaleF16, 0x1p-14, 0x1p-14, true},
		{ScaleF16, 0x1p-15, 0x1p-15, true},
		{ScaleF16, -0x1p-24, -0x1p-24, true},
		{ScaleF16, 0x1p-25, 0, true},
		{ScaleF16, float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1)), true},
		{ScaleF16, 1 + 0x1p-11, 1, true},
		{ScaleF32, 1 + 0x1p-23, 1 + 0x1p-23, true},
		{ScaleF32, 0x1p-127, 0x1p-127, false},
		{ScaleF32, 0, 0, false},
	} {
		if r := c.s.Round(c.x); r != c.r || c.s.IsScale(r) != c.scale {
			t.Errorf("%s: %v rounds to %v (a scale: %v), want %v, %v", c.s, c.x, r, c.s.IsScale(r), c.r, c.scale)
		}
	}
	if ScaleF32.IsScale(float32(math.NaN())) {
		t.Error("NaN is a scale")
	}
	for s := ScaleBF16; s < scaleDtypeLimit; s++ {
		if back, ok := ParseScaleDtype(s.String()); !ok || back != s || s.Round(s.Max()) != s.Max() || s.Round(s.Smallest()) != s.Smallest() || !s.IsScale(-s.Smallest()) || s.IsScale(s.Round(s.Smallest()/2)) != s.HoldsZero() || s.SmallestNormal() < s.Smallest() {
			t.Errorf("%s: wrong name or limits", s)
		}
		var b [4]byte
		s.put(b[:], -s.Max())
		if got := s.get(b[:]); got != -s.Max() {
			t.Errorf("%s: stored %v, read %v", s, -s.Max(), got)
		}
	}
	if _, ok := ParseScaleDtype("none"); ok || ScaleNone.Bytes() != 0 || ScaleDtype(9).Bytes() != 0 || ScaleDtype(9).String() != "unknown(9)" {
		t.Error("none or an unknown dtype has a size")
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		LayoutLowbit.String(): "lowbit", LayoutPlain.String(): "plain", Layout(16).String(): "unknown(16)",
		ZeroNone.String() + ZeroInt8.String() + ZeroF32.String() + ZeroFraction.String(): "noneint8f32fraction", ZeroKind(7).String(): "unknown(7)",
		GridInteger.String(): "integer", GridHalfStep.String(): "half-step", Grid(5).String(): "unknown(5)",
		Flags(0).String(): "", (FlagBias | FlagQSI4C32P | FlagPositiveScales | 0x40).String(): "bias,qsi4c32p,positive-scales,unknown(0x40)",
		DefaultTile.String(): "8x16x2", Tile{}.String(): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, l := range Layouts {
		if back, ok := ParseLayout(l.String()); !ok || back != l {
			t.Errorf("%s parsed as %s", l, back)
		}
	}
	if _, ok := ParseLayout("unknown(9)"); ok {
		t.Error("an unknown layout was parsed")
	}
	for _, l := range Layouts {
		for _, tile := range l.Tiles() {
			if back, err := ParseTile(tile.String()); err != nil || back != tile {
				t.Errorf("%s parsed as %s, %v", tile, back, err)
			}
		}
	}
	if _, err := ParseTile("8x32x2"); err == nil || err.Error() != `unknown tile "8x32x2": use one of 4x8x2, 4x16x2, 8x8x2, 8x16x2, 4x4x1, 4x8x1` {
		t.Errorf("error %v", err)
	}
}

// lowbitHeader is a valid header to derive invalid ones from.
var lowbitHeader = Header{Layout: LayoutLowbit, Bits: 4, ScaleDtype: ScaleBF16, ZeroKind: ZeroInt8, Tile: DefaultTile, Rows: 9, Cols: 100, Group: 32}

func TestHeaderSizes(t *testing.T) {
	with := func(f func(h *Header)) Header { h := lowbitHeader; f(&h); return h }
	for _, c := range []struct {
		h      Header
		size   int64
		groups uint64
		bpw    float64
	}{
		{PlainHeader(BF16, 3, 5), 30, 0, 16},
		{PlainHeader(f6E2M3, 2, 6), 9, 0, 6},
		{PlainHeader(F32, 0, 5), 0, 0, 0},
		{PlainHeader(U8, 1<<31, 1<<31), 1 << 62, 0, 8},
		{lowbitHeader, 2 * 8 * (4*128/8 + 4*3 + 8), 4, 2 * 8 * 84 * 8 / 900.0},
		{with(func(h *Header) { h.Group = 112 }), 2 * 8 * (64 + 3 + 8), 1, 2 * 8 * 75 * 8 / 900.0},
		{with(func(h *Header) { h.Group, h.ScaleDtype, h.ZeroKind = 0, ScaleF32, ZeroNone }), 2 * 8 * (64 + 4 + 8), 1, 2 * 8 * 76 * 8 / 900.0},
		// The figure of the design: 4 bits, group 32, K 2048.
		{with(func(h *Header) { h.ZeroKind, h.Rows, h.Cols = ZeroNone, 8, 2048 }), 8 * (1024 + 64*2 + 8), 64, 4.53125},
	} {
		size, err := c.h.DataSize()
		if err != nil || size != c.size || c.h.Groups() != c.groups || math.Abs(BitsPerWeight(size, int64(c.h.Rows*c.h.Cols))-c.bpw) > 1e-12 {
			t.Errorf("%+v: %d bytes, %d groups, %v bits per weight (%v), want %d, %d, %v", c.h, size, c.h.Groups(), BitsPerWeight(size, int64(c.h.Rows*c.h.Cols)), err, c.size, c.groups, c.bpw)
		}
	}
}

func TestHeaderValidate(t *testing.T) {
	type edit func(h *Header)
	qsi := Header{Layout: LayoutLowbit, Flags: FlagQSI4C32P, Bits: 4, ScaleDtype: ScaleBF16, Tile: DefaultTile, Rows: 3, Cols: 96, Group: 32}
	plain := PlainHeader(f4, 3, 2)
	for _, c := range []struct {
		name        string
		base        Header
		edit        edit
		field       string // "" if valid
		unsupported bool
	}{
		{"lowbit", lowbitHeader, func(h *Header) {}, "", false},
		{"group wider than the row", lowbitHeader, func(h *Header) { h.Group = 4096 }, "", false},
		{"half-step", lowbitHeader, func(h *Header) { h.Grid, h.Bits, h.ZeroKind = GridHalfStep, 2, ZeroNone }, "", false},
		{"layout 0", lowbitHeader, func(h *Header) { h.Layout = 0 }, "layout", false},
		{"layout 16", lowbitHeader, func(h *Header) { h.Layout = 16 }, "layout", true},
		{"flags", lowbitHeader, func(h *Header) { h.Flags = 8 }, "flags", true},
		{"0 bits", lowbitHeader, func(h *Header) { h.Bits = 0 }, "bits", false},
		{"9 bits", lowbitHeader, func(h *Header) { h.Bits = 9 }, "bits", false},
		{"grid", lowbitHeader, func(h *Header) { h.Grid = 2 }, "grid", true},
		{"half-step of 3 bits", lowbitHeader, func(h *Header) { h.Grid, h.Bits, h.ZeroKind = GridHalfStep, 3, ZeroNone }, "grid", false},
		{"half-step with zeros", lowbitHeader, func(h *Header) { h.Grid, h.Bits = GridHalfStep, 2 }, "grid", false},
		{"no scales", lowbitHeader, func(h *Header) { h.ScaleDtype = ScaleNone }, "scale dtype", false},
		{"scale dtype", lowbitHeader, func(h *Header) { h.ScaleDtype = 4 }, "scale dtype", true},
		{"zero kind", lowbitHeader, func(h *Header) { h.ZeroKind = ZeroF32 }, "zero kind", false},
		{"fractions", lowbitHeader, func(h *Header) { h.ZeroKind = ZeroFraction }, "", false},
		{"fractions of 8 bits", lowbitHeader, func(h *Header) { h.ZeroKind, h.Bits = ZeroFraction, 8 }, "zero kind", false},
		{"fractions of torchao", lowbitHeader, func(h *Header) {
			*h = Header{Layout: LayoutTorchAOLinear, Bits: 3, ScaleDtype: ScaleF32, ZeroKind: ZeroFraction, Tile: DefaultTile, Rows: 9, Cols: 96, Group: 32}
		}, "zero kind", false},
		{"newer zero kind", lowbitHeader, func(h *Header) { h.ZeroKind = 4 }, "zero kind", true},
		{"tile", lowbitHeader, func(h *Header) { h.Tile.SR = 1 }, "tile", true},
		{"dtype", lowbitHeader, func(h *Header) { h.Dtype = F32 }, "dtype", false},
		{"no rows", lowbitHeader, func(h *Header) { h.Rows = 0 }, "rows", false},
		{"no columns", lowbitHeader, func(h *Header) { h.Cols = 0 }, "rows", false},
		{"group", lowbitHeader, func(h *Header) { h.Group = 24 }, "group", false},
		{"too large", lowbitHeader, func(h *Header) { h.Rows, h.Cols = 1<<32, 1<<32 }, "rows", false},
		{"overflow", lowbitHeader, func(h *Header) { h.Rows, h.Cols = math.MaxUint64, math.MaxUint64 }, "rows", false},
		{"panel overflow", lowbitHeader, func(h *Header) { h.Cols, h.Group, h.Bits = math.MaxUint64, 16, 8 }, "rows", false},
		{"qsi4c32p", qsi, func(h *Header) {}, "", false},
		{"qsi4c32p per channel", qsi, func(h *Header) { h.Group = 0 }, "", false},
		{"qsi4c32p not flagged", qsi, func(h *Header) { h.Flags = FlagBias }, "flags", false},
		{"qsi4c32p of 3 bits", qsi, func(h *Header) { h.Bits = 3 }, "flags", false},
		{"qsi4c32p with zeros", qsi, func(h *Header) { h.ZeroKind = ZeroInt8 }, "flags", false},
		{"qsi4c32p with f16", qsi, func(h *Header) { h.ScaleDtype = ScaleF16 }, "flags", false},
		{"qsi4c32p short group", qsi, func(h *Header) { h.Group = 64 }, "flags", false},
		{"qsi4c32p group 48", qsi, func(h *Header) { h.Group = 48 }, "flags", false},
		{"qsi4c32p padded", qsi, func(h *Header) { h.Cols, h.Group = 80, 0 }, "flags", false},
		{"plain", plain, func(h *Header) {}, "", false},
		{"plain scalar", plain, func(h *Header) { *h = PlainHeader(I64, 1, 1) }, "", false},
		{"plain empty", plain, func(h *Header) { h.Rows = 0 }, "", false},
		{"plain without dtype", plain, func(h *Header) { h.Dtype = DtypeNone }, "dtype", false},
		{"plain of unknown dtype", plain, func(h *Header) { h.Dtype = dtypeLimit }, "dtype", true},
		{"plain with bits", plain, func(h *Header) { h.Bits = 4 }, "layout", false},
		{"plain with flags", plain, func(h *Header) { h.Flags = FlagBias }, "layout", false},
		{"plain with group", plain, func(h *Header) { h.Group = 32 }, "layout", false},
		{"plain half a byte", plain, func(h *Header) { h.Cols = 1 }, "cols", false},
		{"plain too large", plain, func(h *Header) { h.Rows, h.Cols = 1<<32, 1<<32 }, "rows", false},
		{"plain F64 too large", plain, func(h *Header) { *h = PlainHeader(F64, 1<<60, 1) }, "rows", false},
	} {
		h := c.base
		c.edit(&h)
		err := h.Validate()
		var malformed *HeaderError
		var unsupported *UnsupportedError
		field := ""
		if errors.As(err, &malformed) {
			field = malformed.Field
		} else if errors.As(err, &unsupported) {
			field = unsupported.Field
		}
		if field != c.field || c.unsupported != (unsupported != nil) || (err == nil) != (c.field == "") {
			t.Errorf("%s: error %v, want field %q (unsupported: %v)", c.name, err, c.field, c.unsupported)
		}
		if err == nil {
			checkHeaderRoundTrip(t, c.name, h)
		}
		if back := h.Canonical(); h.Layout == LayoutLowbit && (back.Flags&FlagQSI4C32P != 0) != h.IsQSI4C32P() || back.Flags&FlagBias != h.Flags&FlagBias {
			t.Errorf("%s: canonical flags %s", c.name, back.Flags)
		}
	}
}

func checkHeaderRoundTrip(t *testing.T, name string, h Header) {
	t.Helper()
	b := h.Append([]byte("before"))
	if len(b) != 6+HeaderSize || string(b[:6]) != "before" {
		t.Fatalf("%s: appended %d bytes", name, len(b)-6)
	}
	back, err := ParseHeader(append(b[6:], "behind"...))
	if err != nil || back != h {
		t.Errorf("%s: %+v came back as %+v, %v", name, h, back, err)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	good := lowbitHeader.Append(nil)
	for _, c := range []struct {
		name        string
		edit        func(b []byte) []byte // the checksum is mended afterwards
		field       string
		offset      int
		unsupported bool
	}{
		{"short", func(b []byte) []byte { return b[:63] }, "size", 63, false},
		{"nothing", func(b []byte) []byte { return nil }, "size", 0, false},
		{"magic", func(b []byte) []byte { b[1] = 'q'; return b }, "magic", 0, false},
		{"version 0", func(b []byte) []byte { b[4] = 0; return b }, "version", 4, false},
		{"version 2", func(b []byte) []byte { b[4] = 2; return b }, "version", 4, true},
		{"reserved", func(b []byte) []byte { b[55] = 1; return b }, "reserved", 55, false},
		{"data size", func(b []byte) []byte { b[40]++; return b }, "data size", 40, false},
		{"bits", func(b []byte) []byte { b[8] = 0; return b }, "bits", 8, false},
		{"layout", func(b []byte) []byte { b[6] = 32; return b }, "layout", 6, true},
	} {
		b := c.edit(slices.Clone(good))
		_, err := ParseHeader(withChecksum(b))
		var malformed *HeaderError
		var unsupported *UnsupportedError
		switch {
		case c.unsupported && errors.As(err, &unsupported) && unsupported.Field == c.field && unsupported.Offset == c.offset:
		case !c.unsupported && errors.As(err, &malformed) && malformed.Field == c.field && malformed.Offset == c.offset:
		default:
			t.Errorf("%s: error %v", c.name, err)
		}
	}
	for bit := range 8 * HeaderSize {
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseHeader(b); err == nil {
			t.Errorf("bit %d flipped: no error", bit)
		}
	}
}

func TestAppendPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for an invalid header")
		}
	}()
	Header{}.Append(nil)
}

// withChecksum returns a copy of b with the right checksum, if b is a header.
func withChecksum(b []byte) []byte {
	b = slices.Clone(b)
	if len(b) >= HeaderSize {
		binary.LittleEndian.PutUint32(b[60:], crc32c.Checksum(b[:60]))
	}
	return b
}

// FuzzParseHeader tests that Append reproduces every accepted header byte for byte. It sets the
// checksum, so that the fuzzer does not have to guess it.
func FuzzParseHeader(f *testing.F) {
	for _, h := range append([]Header{lowbitHeader, PlainHeader(BF16, 3, 4), formatExample().h}, foreignHeaders...) {
		f.Add(h.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = withChecksum(b)
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if again := h.Append(nil); !slices.Equal(again, b[:HeaderSize]) {
			t.Fatalf("%x became %x", b[:HeaderSize], again)
		}
		if size, err := h.DataSize(); err != nil || size < 0 || size > 1<<62 {
			t.Fatalf("%+v: %d bytes, %v", h, size, err)
		}
	})
}
