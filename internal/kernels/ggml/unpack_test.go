package ggml

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// unpacked has the numbers of a row of blocks.
type unpacked struct {
	codes         []byte
	scales, mins  []float32
	subs, subMins []int32
}

// run unpacks a row as the only row of panels of nr rows, and leaves other rows as they are.
func (u Unpack) run(f *Format, data []byte, offset uint8, nr int) unpacked {
	blocks := len(data) / f.Bytes
	groups := blocks * f.Groups()
	terms := groups / f.Terms()
	x := unpacked{bytes.Repeat([]byte{99}, blocks*f.Block*nr), make([]float32, terms*nr), make([]float32, terms*nr), make([]int32, groups*nr), make([]int32, groups*nr)}
	row := nr - 1
	a := UnpackArgs{
		Data: &data[0], Blocks: blocks, Codes: &x.codes[8*row], Stride: 8 * nr, Offset: offset, Step: 4 * nr,
		Scales: &x.scales[row], Mins: &x.mins[row], Subs: &x.subs[row], SubMins: &x.subMins[row],
	}
	u(&a)
	return x
}

// TestUnpack checks that unpacked numbers give the weights that the format's decoder gives, and
// that every implementation gives the portable numbers, out of memory that ends behind the row.
func TestUnpack(t *testing.T) {
	for _, f := range Formats {
		r := rand.New(rand.NewPCG(uint64(f.Type), 1))
		for blocks := 1; blocks < 4; blocks++ {
			data := make([]byte, blocks*f.Bytes)
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			data = asmtest.AtPageEnd(t, data)
			for _, nr := range []int{1, 8, 16} {
				offset := uint8(1) << (f.Bits - 1)
				want := Unpack(f.unpack).run(f, data, offset, nr)
				what := fmt.Sprintf("%s: %d blocks, panels of %d rows", f.Type, blocks, nr)
				compareWeights(t, what, f, data, want, offset, nr)
				if unpacks[f.Type] == nil {
					continue
				}
				for _, i := range unpacks[f.Type].All() {
					if cpu.Check(i.Feature) == nil {
						if got := i.Code.run(f, data, offset, nr); !got.equal(want) {
							t.Errorf("%s: %s differs from the portable function", what, i.Feature)
						}
					}
				}
			}
		}
	}
}

func (x unpacked) equal(y unpacked) bool {
	same := func(a, b []float32) bool {
		return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
	}
	return bytes.Equal(x.codes, y.codes) && same(x.scales, y.scales) && same(x.mins, y.mins) && slices.Equal(x.subs, y.subs) && slices.Equal(x.subMins, y.subMins)
}

// compareWeights computes weights as ggml does, of finite scales.
func compareWeights(t *testing.T, what string, f *Format, data []byte, x unpacked, offset uint8, nr int) {
	t.Helper()
	row, cols := nr-1, len(data)/f.Bytes*f.Block
	want := make([]float32, cols)
	if err := f.Type.Decode(want, data); err != nil {
		t.Fatal(err)
	}
	for k, w := range want {
		g := k / f.Group
		q := float32(int8(x.codes[k/8*8*nr+8*row+k%8] - offset))
		term := g/f.Terms()*nr + row
		scale, minimum := x.scales[term], x.mins[term]
		if f.Subs {
			scale = float32(scale * float32(x.subs[g*nr+row]))
			minimum = -float32(minimum * float32(x.subMins[g*nr+row]))
		}
		v := float32(scale*q) + minimum
		if floats.Finite(v) && floats.Finite(w) && v != w || floats.Finite(v) != floats.Finite(w) && floats.Finite(minimum) && floats.Finite(scale) {
			t.Fatalf("%s: weight %d is %v, want %v", what, k, v, w)
		}
	}
}

// TestFormats checks that every type has a Format with which sums stay exact.
func TestFormats(t *testing.T) {
	count := 0
	for n := range gguf.TensorType(64) {
		if size := n.GroupWeights(); size == 0 || n.String() == "Q8_1" || n.String() == "Q8_K" {
			if For(n) != nil {
				t.Errorf("%s has a format", n)
			}
			continue
		}
		count++
		f := For(n)
		if f == nil {
			t.Errorf("%s has no format", n)
			continue
		}
		low, high := int8(math.MaxInt8), int8(math.MinInt8)
		r := rand.New(rand.NewPCG(uint64(n), 1))
		var b gguf.Block
		src, most := make([]byte, f.Bytes), int64(0)
		for range 2000 {
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			n.ReadBlock(&b, src)
			low, high = min(low, slices.Min(b.Codes[:f.Block])), max(high, slices.Max(b.Codes[:f.Block]))
			if f.Subs {
				for _, s := range b.Subs[:f.Groups()] {
					most = max(most, int64(s), -int64(s))
				}
			}
		}
		if limit := int8(1<<(f.Bits-1) - 1); low < -limit-1 || high > limit || f.Unsigned != (low >= 0) {
			t.Errorf("%s has codes %d .. %d: want codes of %d bits (unsigned: %v)", n, low, high, f.Bits, f.Unsigned)
		}
		if sum := 256 * 128 * most * max(int64(high), -int64(low)); sum >= 1<<31 {
			t.Errorf("%s: a sum of products may be %d", n, sum)
		}
	}
	if count != len(Formats) {
		t.Errorf("%d formats for %d types", len(Formats), count)
	}
}
