package torchao

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// sampleHeaders has one header of each type and of each tile.
var sampleHeaders = []Header{
	{Type: TypeLinear, Bits: 8, Zeros: true, Bias: true, Tile: linearTile},
	{Type: TypeLinear, Bits: 1, Tile: linearTile},
	{Type: TypeEmbedding, Bits: 3},
	{Type: TypeKleidiAI, Bits: 4, Bias: true, Tile: kleidiTiles[0]},
	{Type: TypeKleidiAI, Bits: 4, Tile: kleidiTiles[1]},
	{Type: TypeLUT, Bits: 2, Bias: true, Tile: linearTile},
	{Type: TypeGroupwiseLUT, Bits: 4, Scales: true, Bias: true, ScaleGroup: 32, TableGroup: 512, Tile: groupwiseTile},
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range sampleHeaders {
		b := h.Append([]byte("before"))[6:]
		if len(b) != HeaderSize {
			t.Fatalf("%+v: %d bytes", h, len(b))
		}
		got, err := ParseHeader(append(b, 1, 2, 3))
		if err != nil || got != h {
			t.Errorf("%+v came back as %+v, error %v", h, got, err)
		}
	}
}

// words makes a header of int32.
func headerWords(words ...int32) []byte {
	b := make([]byte, HeaderSize)
	for i, w := range words {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(w))
	}
	return b
}

func TestParseHeaderErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []byte
		offset int64 // of a FormatError, or -1 for an UnsupportedError
		msg    string
	}{
		{"short", headerWords(6712, 1)[:63], 63, "cut off"},
		{"magic", headerWords(6713, 1, 4, 0, 0, 8, 16, 2), 0, "6713, want TorchAO's magic number 6712"},
		{"type 0", headerWords(6712, 0, 4, 0, 0, 8, 16, 2), -1, "type: 0, this program knows 1 to 5"},
		{"type 6", headerWords(6712, 6, 4, 0, 0, 8, 16, 2), -1, "type: 6"},
		{"negative type", headerWords(6712, -1, 4, 0, 0, 8, 16, 2), -1, "type: -1"},
		{"bits 0", headerWords(6712, 1, 0, 0, 0, 8, 16, 2), 8, "bits: 0, linear (type 1) has 1 to 8"},
		{"bits 9", headerWords(6712, 1, 9, 0, 0, 8, 16, 2), 8, "bits: 9"},
		{"bits of an embedding", headerWords(6712, 2, 1, 9, 32, 128), 12, "bits: 9"},
		{"bits of kleidiai", headerWords(6712, 3, 5, 0, 0, 8, 16, 2), 8, "bits: 5, kleidiai (type 3) has 4 to 4"},
		{"bits of a table", headerWords(6712, 4, 5, 0, 0, 8, 16, 2), 8, "bits: 5"},
		{"boolean zeros", headerWords(6712, 1, 4, 2, 0, 8, 16, 2), 12, "2, want 1"},
		{"boolean bias", headerWords(6712, 1, 4, 0, -1, 8, 16, 2), 16, "-1, want 1"},
		{"zeros of kleidiai", headerWords(6712, 3, 4, 1, 0, 8, 16, 2), 12, "zeros: kleidiai (type 3) has no zero points"},
		{"unused", headerWords(6712, 1, 4, 0, 0, 8, 16, 2, 0, 0, 0, 0, 0, 0, 0, 7), 60, "7, want 0"},
		{"tile", headerWords(6712, 1, 4, 0, 0, 4, 16, 2), -1, "tile: 4x16x2 of linear (type 1), TorchAO has kernels for [8x16x2]"},
		{"large tile", headerWords(6712, 1, 4, 0, 0, 8+256, 16, 2), 20, "264, want 8"},
		{"embedding version", headerWords(6712, 2, 2, 4, 32, 128), -1, "version: embedding version 2"},
		{"embedding chunk", headerWords(6712, 2, 1, 4, 64, 128), 16, "64, want 32"},
		{"scale group", headerWords(6712, 5, 4, 16, 512, 1, 1, 4, 32, 8), 12, "scale group: 16, want a multiple of 32"},
		{"table group", headerWords(6712, 5, 4, 32, 80, 1, 1, 4, 32, 8), 16, "table group: 80, want a multiple of the scale group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseHeader(c.header)
			var format *FormatError
			var unsupported *UnsupportedError
			switch {
			case c.offset < 0 && !errors.As(err, &unsupported):
				t.Errorf("error %v, want an UnsupportedError", err)
			case c.offset >= 0 && (!errors.As(err, &format) || format.Offset != c.offset):
				t.Errorf("error %v, want a FormatError at byte %d", err, c.offset)
			case !strings.Contains(err.Error(), c.msg):
				t.Errorf("error %q, want %q in it", err, c.msg)
			}
		})
	}
}

func TestHeaderValidate(t *testing.T) {
	for _, h := range []Header{
		{Type: TypeEmbedding, Bits: 4, Bias: true},
		{Type: TypeEmbedding, Bits: 4, Tile: linearTile},
		{Type: TypeLinear, Bits: 4, Tile: packing.Tile{NR: 8, KR: 8, SR: 2}},
		{Type: TypeLinear, Bits: 4, Tile: linearTile, Scales: true},
		{Type: TypeLUT, Bits: 4, Tile: linearTile, Zeros: true},
		{Type: 9, Bits: 4},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v appended", h)
				}
			}()
			h.Append(nil)
		}()
	}
}

// FuzzHeader holds that what ParseHeader accepts, Append gives back.
func FuzzHeader(f *testing.F) {
	for _, h := range sampleHeaders {
		f.Add(h.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if got := h.Append(nil); string(got) != string(b[:HeaderSize]) {
			t.Fatalf("%x became %x", b[:HeaderSize], got)
		}
	})
}
