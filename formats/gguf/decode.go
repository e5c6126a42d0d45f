package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// Decodable reports whether Decode knows the type: all but integers and F64.
func (t TensorType) Decodable() bool { return t.codec() != nil }

// Decode sets dst to the weights of src, whole blocks of the type. The weights have the bits of
// ggml's dequantize_row functions. A scale of a quantized type that is infinite or NaN gives NaN
// for the whole block. Decode fails if the type is not Decodable, and if dst and src do not have
// lengths of the same number of blocks.
func (t TensorType) Decode(dst []float32, src []byte) error {
	if _, err := t.blocks(len(dst), len(src)); err != nil {
		return err
	}
	if !t.Decodable() {
		return fmt.Errorf("weights of type %s cannot be read: this program has no decoder for it", t)
	}
	t.codec().decode(dst, src, t.BlockWeights(), t.BlockBytes())
	return nil
}

func (t TensorType) blocks(n, size int) (int, error) {
	info, ok := t.info()
	if !ok {
		return 0, errors.New(t.unknown())
	}
	count := n / info.block
	if n%info.block != 0 || size/info.bytes != count || size%info.bytes != 0 {
		return 0, fmt.Errorf("%d bytes for %d weights of %s: want blocks of %d bytes for %d weights", size, n, t, info.bytes, info.block)
	}
	return count, nil
}

// decode decodes blocks of weights weights in size bytes. All products of types with minima are
// exact, so fusing with the addition in ggml's compiler makes no difference.
func (c *codec) decode(dst []float32, src []byte, weights, size int) {
	if c.whole != nil {
		c.whole(dst, src)
		return
	}
	var b block
	group := cmp.Or(c.group, weights)
	for ; len(src) >= size; src, dst = src[size:], dst[weights:] {
		c.read(&b, src[:size])
		d, m := floats.FiniteOrNaN(b.d*cmp.Or(c.part, 1)), floats.FiniteOrNaN(b.m)
		for g := range weights / group {
			scale := d
			if c.group > 0 {
				scale = float32(d * float32(b.subs[g]))
			}
			codes, out := b.codes[g*group:][:group], dst[g*group:][:group]
			switch c.mins {
			case noMins:
				for i, q := range codes {
					out[i] = float32(scale * float32(q))
				}
			case addsMin:
				for i, q := range codes {
					out[i] = float32(scale*float32(q)) + m
				}
			case subsMins:
				sub := float32(m * float32(b.subMins[g]))
				for i, q := range codes {
					out[i] = float32(scale*float32(q)) - sub
				}
			}
		}
	}
}

// block holds a block's numbers in ggml's sense: weight = (d part sub) code + m, or with -m subMin.
type block struct {
	d, m    float32
	codes   [256]int8
	subs    [16]int8
	subMins [16]uint8
}

// minima says how a type's weights depend on block.m.
type minima int

const (
	noMins   minima = iota
	addsMin         // + m
	subsMins        // - m subMin
)

type codec struct {
	d, m   int                             // offsets of an F16 scale and minimum; m 0: no minimum
	unpack func(b *block, src []byte)      // the rest, and scales in other formats
	pack   func(dst []byte, b *block)      // nil: this package does not write the type
	whole  func(dst []float32, src []byte) // decodes blocks in place of unpack and products; nil: none
	group  int                             // weights per sub-scale; 0: no sub-scales
	mins   minima

	lo, hi       int   // range of Fields.Codes
	subLo, subHi int   // range of Fields.SubScales
	subMinHi     uint8 // largest value of Fields.SubMins

	// ggml's code is mul code + add, its scale is Fields' times factor, if mul is not 0.
	mul, add int8
	factor   float32

	// known has 1 + the stored index of each code, by the code's byte, and 0 for other bytes, where
	// the codes are no range of integers; nil elsewhere.
	known *[256]uint8
	// power says that the scale is a power of two with an E8M0 byte, not an F16 number.
	power bool
	// part is the part of the scale that sub-scales multiply, a power of two; 0: all.
	part    float32
	lattice *lattice // nil: any codes in range
}

var codecs = [len(typeTable)]*codec{
	Q1_0: {unpack: unpackQ1_0, pack: packQ1_0, lo: -1, hi: 0, mul: 2, add: 1, factor: 0.5},
	Q2_0: {unpack: unpackQ2_0, pack: packQ2_0, lo: -2, hi: 1, mul: -1, factor: -1},
	Q4_0: {unpack: fourBits(2, -8), pack: putFourBits(2, -8), whole: vec.DecodeNibbles, lo: -8, hi: 7},
	Q4_1: {m: 2, unpack: fourBits(4, 0), pack: putFourBits(4, 0), lo: 0, hi: 15, mins: addsMin},
	Q5_0: {unpack: fiveBits(2, -16), pack: putFiveBits(2, -16), lo: -16, hi: 15},
	Q5_1: {m: 2, unpack: fiveBits(4, 0), pack: putFiveBits(4, 0), lo: 0, hi: 31, mins: addsMin},
	Q8_0: {unpack: eightBits(2, 32), pack: packQ8_0, whole: vec.DecodeBytes, lo: -128, hi: 127},
	Q2_K: {d: 80, m: 82, unpack: unpackQ2_K, pack: packQ2_K, lo: 0, hi: 3, mins: subsMins, group: 16, subHi: 15, subMinHi: 15},
	Q3_K: {d: 108, unpack: unpackQ3_K, pack: packQ3_K, lo: -4, hi: 3, group: 16, subLo: -32, subHi: 31},
	Q4_K: {m: 2, unpack: unpackQ4_K, pack: packQ4_K, lo: 0, hi: 15, mins: subsMins, group: 32, subHi: 63, subMinHi: 63},
	Q5_K: {m: 2, unpack: unpackQ5_K, pack: packQ5_K, lo: 0, hi: 31, mins: subsMins, group: 32, subHi: 63, subMinHi: 63},
	Q6_K: {d: 208, unpack: unpackQ6_K, pack: packQ6_K, lo: -32, hi: 31, group: 16, subLo: -128, subHi: 127},

	iq4_NL: {unpack: unpackIQ4_NL, pack: packIQ4_NL, known: &nonLinearIndex},
	iq4_XS: {unpack: unpackIQ4_XS, pack: packIQ4_XS, known: &nonLinearIndex, group: 32, subLo: -32, subHi: 31},
	tq1_0:  {d: 52, unpack: unpackTQ1_0, pack: packTQ1_0, known: &ternaryIndex},
	tq2_0:  {d: 64, unpack: unpackTQ2_0, pack: packTQ2_0, lo: -1, hi: 2},
	mxfp4:  {unpack: unpackMXFP4, pack: packMXFP4, known: &fp4Index, power: true},

	q8_1: {unpack: eightBits(4, 32)}, q8_K: {unpack: unpackQ8_K}, nvfp4: {whole: decodeNVFP4}, F32: {whole: vec.WidenF32}, F16: {whole: vec.WidenF16}, BF16: {whole: vec.WidenBF16},
	iq1_S: {unpack: unpackIQ1_S, group: 32, part: 1. / 8}, iq1_M: {unpack: unpackIQ1_M, group: 16},
	iq2_XXS: {unpack: unpackIQ2_XXS, pack: packIQ2_XXS, group: 32, part: 1. / 8, subHi: 31, lattice: &pointsIQ2_XXS},
	iq2_XS:  {unpack: unpackIQ2_XS, pack: packIQ2_XS, group: 16, part: 1. / 8, subHi: 31, lattice: &pointsIQ2_XS},
	iq2_S:   {unpack: unpackIQ2_S, pack: packIQ2_S, group: 16, part: 1. / 8, subHi: 31, lattice: &pointsIQ2_S},
	iq3_XXS: {unpack: unpackIQ3_XXS, pack: packIQ3_XXS, group: 32, part: 1. / 4, subHi: 31, lattice: &pointsIQ3_XXS},
	iq3_S:   {unpack: unpackIQ3_S, pack: packIQ3_S, group: 32, subHi: 31, lattice: &pointsIQ3_S},
}

func (c *codec) read(b *block, src []byte) {
	b.d = half(src[c.d:])
	if c.m > 0 {
		b.m = half(src[c.m:])
	}
	c.unpack(b, src)
}

func (c *codec) write(dst []byte, b *block) {
	if !c.power {
		putHalf(dst[c.d:], b.d)
	}
	if c.m > 0 {
		putHalf(dst[c.m:], b.m)
	}
	c.pack(dst, b)
}

func (t TensorType) codec() *codec {
	if int64(t) >= int64(len(codecs)) {
		return nil
	}
	return codecs[t]
}

// This file has the types that gq reads and does not write.

func unpackQ8_K(b *block, src []byte) { // a float32 scale, codes, sums of codes
	eightBits(4, 256)(b, src)
	b.d = math.Float32frombits(le.Uint32(src))
}

// decodeNVFP4 decodes blocks: a scale for each of 4 groups of 16, then their codes.
func decodeNVFP4(dst []float32, src []byte) {
	var codes [16]int8
	for ; len(src) > 0; dst, src = dst[64:], src[36:] {
		for g := range 4 {
			scale := nvScale(src[g])
			lookUp(codes[:], src[4+8*g:][:8], &fp4)
			for i, q := range codes {
				dst[16*g+i] = float32(scale * float32(q))
			}
		}
	}
}

// nvScale gives half of an E4M3 scale, because the values in fp4 are doubled. ggml ignores the
// sign, takes the NaN 0x7f for 0, and 0xff for the number that would follow the largest, 448.
func nvScale(v byte) float32 {
	switch v {
	case 0x7f:
		return 0
	case 0xff:
		return 480 / 2
	}
	return floats.F8E4M3ToF32(v&0x7f) / 2
}
