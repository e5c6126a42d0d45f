package gqf

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// companioned describes two tensors whose weights have companions with scales and zero points:
// codes of experts, and a TorchAO embedding as the second variant of a tensor whose first variant
// has no companions.
func companioned() *Builder {
	b := NewBuilder()
	plain := packing.PlainHeader
	ti := b.AddTensor(TensorSpec{Name: "experts", Shape: []int64{2, 9, 40}, Dtype: packing.BF16, Role: RoleExpert, Experts: 2})
	b.AddName(NameSpec{Name: "experts", Tensor: ti, SourceFile: -1})
	for e := range 2 { // payloads 0 to 5
		b.AddPayload(PayloadSpec{Tensor: ti, Slice: e, Header: codes(9, 40, 16, 3)})
		b.AddPayload(PayloadSpec{Tensor: ti, Slice: e, Kind: KindScales, Header: plain(packing.F32, 9, 3)})
		b.AddPayload(PayloadSpec{Tensor: ti, Slice: e, Kind: KindZeros, Header: plain(packing.I8, 9, 3)})
	}
	ti = b.AddTensor(TensorSpec{Name: "table", Shape: []int64{7, 64}, Dtype: packing.F16, Role: RoleEmbedding})
	b.AddName(NameSpec{Name: "table", Tensor: ti, SourceFile: -1})
	b.AddPayload(PayloadSpec{Tensor: ti, Header: lowbit(7, 64, 32, 5)}) // 6 to 9
	table := packing.Header{Layout: packing.LayoutTorchAOEmbedding, Flags: packing.FlagPositiveScales, Bits: 5, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 7, Cols: 64, Group: 32}
	b.AddPayload(PayloadSpec{Tensor: ti, Variant: 1, Header: table})
	b.AddPayload(PayloadSpec{Tensor: ti, Variant: 1, Kind: KindScales, Header: plain(packing.F32, 7, 2)})
	b.AddPayload(PayloadSpec{Tensor: ti, Variant: 1, Kind: KindZeros, Header: plain(packing.I8, 7, 2)})
	return b
}

// TestCompanionRules breaks each rule about the companions of a layout. A Builder applies the
// reader's checks.
func TestCompanionRules(t *testing.T) {
	plain := packing.PlainHeader
	remove := func(b *Builder, list ...int) { // in descending order
		for _, i := range list {
			b.payloads = append(b.payloads[:i], b.payloads[i+1:]...)
		}
	}
	both := func(b *Builder, kind Kind, h packing.Header) { // in both slices
		b.change(int(kind), func(p *PayloadSpec) { p.Header = h })
		b.change(int(3+kind), func(p *PayloadSpec) { p.Header = h })
	}
	tests := []struct {
		name, want string // empty: no error
		change     func(b *Builder)
	}{
		{"as demanded", "", func(b *Builder) {}},
		{"without zero points", "", func(b *Builder) {
			h := b.payloads[0].header()
			h.ZeroKind = packing.ZeroNone
			both(b, 0, h)
			remove(b, 5, 2)
		}},
		{"scales of codes missing", `tensor "experts", variant 0: codes without a companion of kind scales`, func(b *Builder) { remove(b, 4, 1) }},
		{"zero points of codes missing", `tensor "experts", variant 0: codes without a companion of kind zeros`, func(b *Builder) { remove(b, 5, 2) }},
		{"both of codes missing", "codes without a companion of kind scales", func(b *Builder) { remove(b, 5, 4, 2, 1) }},
		{"scales of the table missing", `tensor "table", variant 1: torchao-embedding without a companion of kind scales`, func(b *Builder) { remove(b, 8) }},
		{"zero points of the table missing", `tensor "table", variant 1: torchao-embedding without a companion of kind zeros`, func(b *Builder) { remove(b, 9) }},
		{"missing before a variant", `variant 1: torchao-embedding without a companion of kind zeros`, func(b *Builder) {
			remove(b, 9)
			b.AddPayload(PayloadSpec{Tensor: 1, Variant: 2, Header: lowbit(7, 64, 64, 5)})
		}},
		{"zero points of none", "a companion of kind zeros, which weights of layout codes and zero points of kind none do not have", func(b *Builder) {
			h := b.payloads[0].header()
			h.ZeroKind = packing.ZeroNone
			both(b, 0, h)
		}},
		{"scales of another dtype", "9 x 3 elements of BF16, the weights need 9 x 3 of F32", func(b *Builder) { both(b, KindScales, plain(packing.BF16, 9, 3)) }},
		{"scales of integers", "9 x 3 elements of I32, the weights need 9 x 3 of F32", func(b *Builder) { both(b, KindScales, plain(packing.I32, 9, 3)) }},
		{"scales by column", "3 x 9 elements of F32, the weights need 9 x 3 of F32", func(b *Builder) { both(b, KindScales, plain(packing.F32, 3, 9)) }},
		{"too few scales", "9 x 2 elements of F32", func(b *Builder) { both(b, KindScales, plain(packing.F32, 9, 2)) }},
		{"another group", "9 x 3 elements of F32, the weights need 9 x 1 of F32", func(b *Builder) { both(b, 0, codes(9, 40, 0, 3)) }},
		{"unsigned zero points", "9 x 3 elements of U8, the weights need 9 x 3 of I8", func(b *Builder) { both(b, KindZeros, plain(packing.U8, 9, 3)) }},
		{"packed scales", "a companion must be plain, this is lowbit", func(b *Builder) { both(b, KindScales, lowbit(9, 40, 0, 3)) }},
		{"table", "a companion of kind table", func(b *Builder) {
			b.AddPayload(PayloadSpec{Tensor: 1, Variant: 1, Kind: KindTable, Header: plain(packing.I8, 1, 16)})
		}},
		{"scales of lowbit", "a companion of kind scales, which weights of layout lowbit", func(b *Builder) {
			b.AddPayload(PayloadSpec{Tensor: 1, Kind: KindScales, Header: plain(packing.BF16, 7, 2)})
		}},
		{"scales of plain", "a companion of kind scales, which weights of layout plain", func(b *Builder) { b.change(7, func(p *PayloadSpec) { p.Header = plain(packing.F16, 7, 64) }) }},
		{"other elements in a slice", "its elements are U16, the tensor's are BF16", func(b *Builder) {
			both(b, 0, plain(packing.U16, 9, 40))
			remove(b, 5, 4, 2, 1)
		}},
		{"other elements in a variant", "its elements are BF16, the tensor's are F16", func(b *Builder) {
			b.AddPayload(PayloadSpec{Tensor: 1, Variant: 2, Header: plain(packing.BF16, 7, 64)})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := companioned()
			test.change(b)
			_, err := built(b)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestCompanionOffsets demands the offsets of errors in a file.
func TestCompanionOffsets(t *testing.T) {
	good := build(t, companioned())
	record := func(b []byte, i int) []byte {
		return b[decodeHeader(b).sections[secPayloads].off:][i*payloadSize:][:payloadSize]
	}
	for _, test := range []struct {
		name    string
		payload int // the payload to change, in all slices
		header  packing.Header
		at      int // the payload that the error points to
		field   int
	}{
		{"zero points where none are due", 0, packing.Header{Layout: packing.LayoutCodes, Bits: 3, ScaleDtype: packing.ScaleF32, Rows: 9, Cols: 40, Group: 16}, 2, payloadHeader},
		{"scales by column", 1, packing.PlainHeader(packing.F32, 3, 9), 1, payloadHeader},
		{"scales of another type", 8, packing.PlainHeader(packing.I32, 7, 2), 8, payloadHeader},
		{"zero points of another type", 9, packing.PlainHeader(packing.Bool, 7, 2), 9, payloadHeader},
	} {
		b := bytes.Clone(good)
		test.header.Append(record(b, test.payload)[payloadHeader:payloadHeader])
		if test.payload < 3 {
			test.header.Append(record(b, test.payload+3)[payloadHeader:payloadHeader])
		}
		reseal(b)
		f, err := OpenBytes(b, Options{})
		want := int64(decodeHeader(b).sections[secPayloads].off) + int64(test.at*payloadSize+test.field)
		if fe, ok := errors.AsType[*FormatError](err); !ok || fe.Section != "payloads" || fe.Offset != want {
			t.Errorf("%s: opened as %v, error %v, want one at byte %d", test.name, f, err, want)
		}
	}
}

// TestVerifyScales damages scales in a way that checksums do not reveal.
func TestVerifyScales(t *testing.T) {
	good := build(t, companioned())
	f := open(t, good)
	o := VerifyOptions{Deep: true}
	if r, err := f.Verify(t.Context(), o); err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, test := range []struct {
		name           string
		payload, scale int
		bits           uint32
		want           string
	}{
		{"zero", 8, 0, 0, "the scale of row 0 group 0 is 0, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"NaN", 4, 26, 0x7FC00000, "the scale of row 8 group 2 is NaN, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"infinite", 4, 4, 0xFF800000, "the scale of row 1 group 1 is -Inf, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"subnormal", 8, 13, 0x007FFFFF, "the scale of row 6 group 1 is 1.1754942e-38, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{"negative", 8, 3, 0xBF800000, "the scale of row 1 group 1 is -1 in a payload of positive scales"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := bytes.Clone(good)
			p := f.Payload(test.payload)
			at := p.Offset + packing.HeaderSize + int64(4*test.scale)
			le.PutUint32(b[at:], test.bits)
			le.PutUint32(b[f.h.sections[secChecksums].off:], crc32c.Checksum(b[f.h.dataOff:]))
			reseal(b)
			damaged := open(t, b)
			if r, err := damaged.Verify(t.Context(), VerifyOptions{}); err != nil || !r.OK() {
				t.Fatalf("not deep: %+v, %v", r, err)
			}
			var done int64
			o := VerifyOptions{Deep: true, Progress: func(n int64) { done += n }}
			r, err := damaged.Verify(t.Context(), o)
			if err != nil || len(r.Damage) != 1 || done != damaged.VerifyBytes(o) {
				t.Fatalf("%+v, %v, told of %d bytes of %d", r, err, done, damaged.VerifyBytes(o))
			}
			share := DamagedShare{f.Tensor(p.Tensor).Name, p.Slice, "scales", p.Variant}
			if d := r.Damage[0]; d.Message != test.want || d.Offset != at || d.End != p.Offset+p.Length || d.Block != 0 || len(d.Payloads) != 1 || d.Payloads[0] != share {
				t.Errorf("%+v, want %q at %d in %+v", d, test.want, at, share)
			}
		})
	}
}
