package gguf

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// allTypes returns the types that ok accepts.
func allTypes(ok func(TensorType) bool) (list []TensorType) {
	for t := range TensorType(len(typeTable)) {
		if ok(t) {
			list = append(list, t)
		}
	}
	return list
}

// randomBlocks returns n blocks of random bytes. Their F16 scales are finite, as Unpack demands.
func randomBlocks(t TensorType, n int, r *rand.Rand) []byte {
	src := make([]byte, n*t.BlockBytes())
	for i := range n {
		b := src[i*t.BlockBytes():][:t.BlockBytes()]
		for f := (&Fields{}); ; {
			for j := range b {
				b[j] = byte(r.Uint32())
			}
			if t.Unpack(f, b) == nil {
				break
			}
		}
	}
	return src
}

func TestEncodeUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := allTypes(TensorType.Encodable)
	if len(list) != 22 {
		t.Errorf("%v can be written, want 22 types", list)
	}
	for _, kind := range list {
		src := randomBlocks(kind, 200, r)
		var f Fields
		if err := kind.Unpack(&f, src); err != nil {
			t.Fatal(kind, err)
		}
		dst := make([]byte, len(src))
		if err := kind.Encode(dst, f); err != nil || !sameBlocks(kind, dst, src) {
			t.Errorf("%s: error %v; the bytes change: %v", kind, err, !bytes.Equal(dst, src))
		}
	}
}

// sameBlocks compares bytes, and weights where several bytes mean the same: five digits of TQ1_0
// have 243 of 256 bytes, and MXFP4 has two zeros.
func sameBlocks(t TensorType, a, b []byte) bool {
	if t != tq1_0 && t != mxfp4 {
		return bytes.Equal(a, b)
	}
	n := len(a) / t.BlockBytes() * t.BlockWeights()
	x, y := make([]float32, n), make([]float32, n)
	return t.Decode(x, a) == nil && t.Decode(y, b) == nil && slices.Equal(x, y)
}

// TestEncodeErrors has fields that the blocks cannot hold: nothing is cut off silently.
func TestEncodeErrors(t *testing.T) {
	// fields returns the edited fields of a block of zero bytes.
	fields := func(kind TensorType, edit func(f *Fields)) Fields {
		var f Fields
		if err := kind.Unpack(&f, make([]byte, kind.BlockBytes())); err != nil {
			t.Fatal(err)
		}
		edit(&f)
		return f
	}
	for _, c := range []struct {
		kind TensorType
		edit func(f *Fields)
		want string
	}{
		{Q1_0, func(f *Fields) { f.Codes[127] = 1 }, "block 0: it has codes -1 .. 1: the type has -1 .. 0"},
		{Q1_0, func(f *Fields) { f.Scales[0] = 0x1p-24 }, "2.9802322e-08 is not an F16 value"},
		{Q2_0, func(f *Fields) { f.Codes[0] = 2 }, "the type has -2 .. 1"},
		{Q4_0, func(f *Fields) { f.Codes[31] = -9 }, "the type has -8 .. 7"},
		{Q4_0, func(f *Fields) { f.Scales[0] = 1 + 0x1p-11 }, "1.0004883 is not an F16 value"},
		{Q4_0, func(f *Fields) { f.Scales[0] = 65536 }, "65536 is not an F16 value"},
		{Q4_0, func(f *Fields) { f.Scales[0] = float32(math.NaN()) }, "NaN is not an F16 value"},
		{Q4_0, func(f *Fields) { f.Mins = []float32{1} }, "1 scales, 1 minima, 0 sub-scales and 0 sub-minima for 1 blocks of Q4_0: want 1, 0, 0 and 0"},
		{Q4_0, func(f *Fields) { f.Codes = f.Codes[:31] }, "18 bytes for 31 weights of Q4_0: want blocks of 18 bytes for 32 weights"},
		{Q4_1, func(f *Fields) { f.Mins[0] = 0x1p-25 }, "2.9802322e-08 is not an F16 value"},
		{Q5_1, func(f *Fields) { f.Codes[3] = 32 }, "the type has 0 .. 31"},
		{Q3_K, func(f *Fields) { f.SubScales[15] = 32 }, "it has sub-scales -32 .. 32: the type has -32 .. 31"},
		{Q4_K, func(f *Fields) { f.SubScales[0] = -1 }, "it has sub-scales -1 .. 0: the type has 0 .. 63"},
		{Q5_K, func(f *Fields) { f.SubMins[7] = 64 }, "it has the sub-minimum 64: the type has 0 .. 63"},
		{iq4_NL, func(f *Fields) { f.Codes[5] = 12 }, "it has the code 12, a number that is not in the type's table"},
		{iq4_XS, func(f *Fields) { f.SubScales[7] = -33 }, "the type has -32 .. 31"},
		{tq1_0, func(f *Fields) { f.Codes[255] = 2 }, "the code 2"},
		{tq2_0, func(f *Fields) { f.Codes[0] = 3 }, "the type has -1 .. 2"},
		{mxfp4, func(f *Fields) { f.Scales[0] = 3 }, "3 is not half of an E8M0 scale"},
		{mxfp4, func(f *Fields) { f.Scales[0] = -2 }, "-2 is not half of an E8M0 scale"},
		{iq2_XXS, func(f *Fields) { f.Codes[17] = 9 }, "it has the codes [8 9 8 8 8 8 8 8], which are no point of the type's lattice"},
		{iq2_S, func(f *Fields) { f.Codes[255] = -128 }, "which are no point"},
		{iq2_XS, func(f *Fields) { copy(f.Codes, []int8{43, 25}) }, "it has the codes [43 25 8 8 8 8 8 8], which are no point"},
		{iq3_XXS, func(f *Fields) { f.Codes[12] = -4 }, "it has an odd number of negative codes in [4 4 4 4 -4 4 4 4]: the type stores 7 of 8 signs"},
		{iq3_S, func(f *Fields) { f.SubScales[7] = 2 }, "it has the sub-scale 2: the type has odd numbers from 1 to 31"},
		{iq3_S, func(f *Fields) { f.SubScales[7] = 33 }, "it has the sub-scale 33: the type has odd numbers from 1 to 31"},
		{iq2_S, func(f *Fields) { f.Scales[0] = 1 + 0x1p-11 }, "1.0004883 is not an F16 value"},
		{Q2_K, func(f *Fields) { f.SubMins = nil }, "16 sub-scales and 0 sub-minima for 1 blocks of Q2_K: want 1, 1, 16 and 16"},
	} {
		err := c.kind.Encode(make([]byte, c.kind.BlockBytes()), fields(c.kind, c.edit))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.kind, err, c.want)
		}
	}
	if err := iq1_S.Encode(nil, Fields{}); err == nil {
		t.Error("IQ1_S was encoded")
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		kind TensorType
		n    int
		size int
		want string
	}{
		{Q4_0, 32, 17, "17 bytes for 32 weights of Q4_0: want blocks of 18 bytes for 32 weights"},
		{Q4_0, 31, 18, "18 bytes for 31 weights"},
		{Q4_0, 64, 18, "18 bytes for 64 weights"},
		{F32, 1, 5, "5 bytes for 1 weights of F32"},
		{i32, 1, 4, "weights of type I32 cannot be read"},
		{5, 32, 18, "type 5 was Q4_3, which llama.cpp has removed"},
		{99, 32, 18, "type 99 is not a type that this program knows"},
	} {
		if err := c.kind.Decode(make([]float32, c.n), make([]byte, c.size)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.kind, err, c.want)
		}
	}
}

func TestParseType(t *testing.T) {
	for kind := range TensorType(len(typeTable)) {
		if got, ok := ParseType(kind.String()); ok != kind.Known() || ok && got != kind {
			t.Errorf("%s is type %d, %v", kind, got, ok)
		}
	}
	if got, ok := ParseType(""); ok {
		t.Errorf("no name is %s", got)
	}
}
