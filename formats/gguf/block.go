package gguf

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/lowbit-go/gq/packing"
)

// Block holds the numbers of a block of a quantized type, in ggml's sense. With n weights to a
// group and g = i/n, weight i is
//
//	Scales[0] Codes[i]                                          types without sub-scales
//	Scales[0] Codes[i] + Min                                    Q4_1, Q5_1
//	(Scales[0] Subs[g]) Codes[i]                                Q3_K, Q6_K, IQ types of 256 weights
//	(Scales[0] Subs[g]) Codes[i] - Min SubMins[g]               Q2_K, Q4_K, Q5_K
//	Scales[g] Codes[i]                                          NVFP4, groups of 16
//
// Unlike Fields, a Block has the numbers of every type, codes of Q1_0 and Q2_0 as ggml has them,
// and scales that are not finite as stored.
type Block struct {
	Codes   [256]int8
	Scales  [4]float32
	Min     float32
	Subs    [16]int8
	SubMins [16]uint8

	raw block // memory for ReadBlock
}

// ReadBlock sets b to the numbers of src, a block of a quantized type that is Decodable. Elements
// that the type does not have keep their values.
func (t TensorType) ReadBlock(b *Block, src []byte) {
	c, info := t.codec(), &typeTable[t]
	if c == nil || info.block == 1 || len(src) != info.bytes {
		panic(fmt.Sprintf("gguf: %d bytes are no block of %s", len(src), t))
	}
	if t == nvfp4 {
		for g := range b.Scales {
			b.Scales[g] = nvScale(src[g])
			lookUp(b.Codes[16*g:], src[4+8*g:][:8], &fp4)
		}
		return
	}
	raw := &b.raw
	c.read(raw, src)
	copy(b.Codes[:info.block], raw.codes[:])
	b.Scales[0], b.Min = raw.d*cmp.Or(c.part, 1), raw.m
	if c.group > 0 {
		b.Subs, b.SubMins = raw.subs, raw.subMins
	}
}

// GroupWeights is the number of weights that share a scale, or a sub-scale if the type has
// sub-scales. It is 0 for types that are not quantized or not Decodable.
func (t TensorType) GroupWeights() int {
	switch c := t.codec(); {
	case c == nil || t.BlockWeights() == 1:
		return 0
	case t == nvfp4:
		return 16
	case c.group > 0:
		return c.group
	}
	return t.BlockWeights()
}

// Header describes rows x cols weights of a quantized type in blocks. Bits is 8 for types with
// codes that do not fill the range of two's complement.
func (t TensorType) Header(rows, cols uint64) packing.Header {
	h := packing.Header{Layout: packing.LayoutBlocks, Bits: 8, Dtype: packing.Dtype(t), Rows: rows, Cols: cols, Group: uint64(t.GroupWeights())}
	if c := t.codec(); c != nil && c.hi > 0 && c.lo == ^c.hi && c.mul == 0 {
		h.Bits = uint8(bits.Len(uint(c.hi))) + 1
	}
	return h
}

// GroupScale returns the scale of group g of a block of type t, times the sub-scale.
func (b *Block) GroupScale(t TensorType, g int) float32 {
	switch {
	case t == nvfp4:
		return b.Scales[g]
	case t.GroupWeights() < t.BlockWeights():
		return float32(b.Scales[0] * float32(b.Subs[g]))
	}
	return b.Scales[0]
}
