package gguf

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// vector is a block with float32 numbers of ggml, see testdata/README.md.
type vector struct {
	kind    TensorType
	fromRow bool // block is what ggml made of numbers; else numbers are the block's weights
	block   []byte
	numbers []float32
}

func readVectors(t *testing.T) (list []vector) {
	t.Helper()
	f, err := os.Open("testdata/blocks.bin.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		v := vector{kind: TensorType(le.Uint32(b)), fromRow: le.Uint32(b[4:]) == 1}
		size, n := v.kind.BlockBytes(), v.kind.BlockWeights()
		v.block, b = b[8:][:size], b[8+size:]
		v.numbers = make([]float32, n)
		for i := range v.numbers {
			v.numbers[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
		b = b[4*n:]
		list = append(list, v)
	}
	return list
}

// TestDecodeVectors compares Decode with ggml's weights, bit by bit.
func TestDecodeVectors(t *testing.T) {
	seen := make(map[TensorType]int)
	for i, v := range readVectors(t) {
		if v.fromRow {
			continue
		}
		seen[v.kind]++
		got := make([]float32, len(v.numbers))
		if err := v.kind.Decode(got, v.block); err != nil {
			t.Fatal(err)
		}
		for j := range got {
			if math.Float32bits(got[j]) != math.Float32bits(v.numbers[j]) {
				t.Errorf("block %d (%s), weight %d: %v, want %v", i, v.kind, j, got[j], v.numbers[j])
				break
			}
		}
	}
	for _, kind := range allTypes(func(k TensorType) bool { return k.BlockWeights() > 1 && k != q8_1 }) {
		if seen[kind] != 16 { // ggml does not decode Q8_1
			t.Errorf("%s has %d blocks, want 16", kind, seen[kind])
		}
	}
}

// TestEncodeVectors takes ggml's blocks apart and puts them together again. Of blocks that ggml
// made of a row, the weights must be near the row: fields with the same weights in another order
// would not be.
func TestEncodeVectors(t *testing.T) {
	seen := make(map[TensorType]int)
	for i, v := range readVectors(t) {
		if !v.kind.Encodable() {
			continue
		}
		var f Fields
		if err := v.kind.Unpack(&f, v.block); err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, len(v.block))
		if err := v.kind.Encode(dst, f); err != nil || !sameBlocks(v.kind, dst, v.block) || v.fromRow && !bytes.Equal(dst, v.block) {
			t.Errorf("block %d (%s): error %v; same bytes: %v", i, v.kind, err, bytes.Equal(dst, v.block))
		}
		weights := fieldWeights(v.kind, f)
		want := v.numbers
		seen[v.kind]++
		if v.fromRow {
			want = make([]float32, len(weights))
			if err := v.kind.Decode(want, v.block); err != nil {
				t.Fatal(err)
			}
			var signal, noise float64
			for j, x := range v.numbers {
				signal += float64(x) * float64(x)
				noise += (float64(x) - float64(want[j])) * (float64(x) - float64(want[j]))
			}
			// Weights in another order would have twice the row's energy, a bit per weight leaves half. ggml
			// does not quantize the rows of very small numbers well.
			if signal > 1e-9 && noise > 0.7*signal {
				t.Errorf("block %d (%s): error energy %g of %g", i, v.kind, noise, signal)
			}
		}
		for j, w := range weights {
			if w != want[j] { // equal numbers: fields with a negative scale have -0 for 0
				t.Errorf("block %d (%s), weight %d: %v from the fields, want %v", i, v.kind, j, w, want[j])
				break
			}
		}
	}
	for _, kind := range allTypes(TensorType.Encodable) {
		want := 20
		if kind == iq2_XXS || kind == iq2_XS { // ggml makes these of a row with importances alone
			want = 16
		}
		if seen[kind] != want {
			t.Errorf("%s has %d blocks, want %d", kind, seen[kind], want)
		}
	}
}

// fieldWeights computes weights by the formulas of Fields.
func fieldWeights(kind TensorType, f Fields) []float32 {
	n := kind.BlockWeights()
	weights := make([]float32, len(f.Codes))
	for i, q := range f.Codes {
		code, scale := float32(q), f.Scales[i/n]
		if kind == Q1_0 {
			code += 0.5
		}
		parts := map[TensorType]float32{iq2_XXS: 1. / 8, iq2_XS: 1. / 8, iq2_S: 1. / 8, iq3_XXS: 1. / 4}
		sub := i * len(f.SubScales) / len(f.Codes)
		if len(f.SubScales) > 0 {
			scale = float32(scale * float32(f.SubScales[sub]) * cmp.Or(parts[kind], 1))
		}
		weights[i] = float32(code * scale)
		switch {
		case len(f.SubMins) > 0:
			weights[i] -= float32(f.Mins[i/n] * float32(f.SubMins[sub]))
		case len(f.Mins) > 0:
			weights[i] += f.Mins[i/n]
		}
	}
	return weights
}

// TestDecodeNaN decodes scales and minima that are no finite numbers: the bits must not depend on
// the CPU.
func TestDecodeNaN(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for kind, offsets := range map[TensorType][]int{
		Q1_0: {0}, Q2_0: {0}, Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, Q2_K: {80, 82}, Q3_K: {108},
		Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208}, iq4_NL: {0}, iq4_XS: {0}, tq1_0: {52}, tq2_0: {64},
		iq2_XXS: {0}, iq2_XS: {0}, iq2_S: {0}, iq3_XXS: {0}, iq3_S: {0},
	} {
		for _, at := range offsets {
			for _, h := range []uint16{0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7d00} {
				src := make([]byte, kind.BlockBytes())
				if kind.Encodable() {
					src = randomBlocks(kind, 1, r)
				}
				le.PutUint16(src[at:], h)
				weights := make([]float32, kind.BlockWeights())
				if err := kind.Decode(weights, src); err != nil {
					t.Fatal(err)
				}
				for i, w := range weights {
					if math.Float32bits(w) != 0x7fc00000 {
						t.Fatalf("%s, F16 %#x at %d: weight %d is %#x", kind, h, at, i, math.Float32bits(w))
					}
				}
				var f Fields
				if err := kind.Unpack(&f, src); err == nil {
					t.Errorf("%s, F16 %#x at %d: Unpack has no error", kind, h, at)
				}
			}
		}
	}
}
