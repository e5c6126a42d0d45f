package gguf

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// Fields are the numbers that consecutive blocks of a quantized type hold. The weights are:
//
//	Q1_0                     (code + 1/2) scale           codes -1, 0
//	Q2_0 Q4_0 Q5_0 Q8_0      code scale                   codes -2^(b-1) .. 2^(b-1)-1
//	Q4_1 Q5_1                code scale + min             codes 0 .. 2^b-1
//	Q3_K Q6_K                code (subscale scale)        codes -2^(b-1) .. 2^(b-1)-1
//	Q2_K Q4_K Q5_K           code (subscale scale) - submin min, codes 0 .. 2^b-1
//
// Codes and scales of the first two lines are those of gq's own grids. ggml stores half of Q1_0's
// scale, and negates the codes and the scale of Q2_0, whose own codes are -1 .. 2. Scales
// may be negative.
type Fields struct {
	Codes  []int8    // BlockWeights per block
	Scales []float32 // one per block; exact in F16 as stored
	Mins   []float32 // one per block, of types with minima; exact in F16

	// SubScales has a value per group of 16 (Q2_K, Q3_K, Q6_K) or 32 weights (Q4_K, Q5_K),
	// SubMins too in types with minima. Q3_K has -32 .. 31, Q6_K -128 .. 127, Q2_K 0 .. 15, and
	// Q4_K and Q5_K 0 .. 63.
	SubScales []int8
	SubMins   []uint8
}

// block holds one block's numbers as ggml defines them: weight = (d sub) code + m, or with -m
// subMin.
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

// codec reads and writes the blocks of a type.
type codec struct {
	unpack func(b *block, src []byte)
	pack   func(dst []byte, b *block) // nil: this package does not write the type
	group  int                        // weights per sub-scale; 0: no sub-scales
	mins   minima

	lo, hi       int   // range of Fields.Codes
	subLo, subHi int   // range of Fields.SubScales
	subMinHi     uint8 // largest value of Fields.SubMins

	// ggml's code is mul code + add, its scale is Fields' times factor, if mul is not 0.
	mul, add int8
	factor   float32
}

var codecs = [len(typeTable)]*codec{
	Q1_0: {unpack: unpackQ1_0, pack: packQ1_0, lo: -1, hi: 0, mul: 2, add: 1, factor: 0.5},
	Q2_0: {unpack: unpackQ2_0, pack: packQ2_0, lo: -2, hi: 1, mul: -1, factor: -1},
	Q4_0: {unpack: unpackQ4_0, pack: packQ4_0, lo: -8, hi: 7},
	Q4_1: {unpack: unpackQ4_1, pack: packQ4_1, lo: 0, hi: 15, mins: addsMin},
	Q5_0: {unpack: unpackQ5_0, pack: packQ5_0, lo: -16, hi: 15},
	Q5_1: {unpack: unpackQ5_1, pack: packQ5_1, lo: 0, hi: 31, mins: addsMin},
	Q8_0: {unpack: unpackQ8_0, pack: packQ8_0, lo: -128, hi: 127},
	Q2_K: {unpack: unpackQ2_K, pack: packQ2_K, lo: 0, hi: 3, mins: subsMins, group: 16, subHi: 15, subMinHi: 15},
	Q3_K: {unpack: unpackQ3_K, pack: packQ3_K, lo: -4, hi: 3, group: 16, subLo: -32, subHi: 31},
	Q4_K: {unpack: unpackQ4_K, pack: packQ4_K, lo: 0, hi: 15, mins: subsMins, group: 32, subHi: 63, subMinHi: 63},
	Q5_K: {unpack: unpackQ5_K, pack: packQ5_K, lo: 0, hi: 31, mins: subsMins, group: 32, subHi: 63, subMinHi: 63},
	Q6_K: {unpack: unpackQ6_K, pack: packQ6_K, lo: -32, hi: 31, group: 16, subLo: -128, subHi: 127},

	Q8_1: {unpack: unpackQ8_1}, Q8_K: {unpack: unpackQ8_K}, IQ4_NL: {unpack: unpackIQ4_NL},
	IQ4_XS: {unpack: unpackIQ4_XS, group: 32}, TQ1_0: {unpack: unpackTQ1_0}, TQ2_0: {unpack: unpackTQ2_0},
	MXFP4: {unpack: unpackMXFP4},
	IQ1_S: {unpack: unpackIQ1_S, group: 32}, IQ1_M: {unpack: unpackIQ1_M, group: 16}, IQ2_XXS: {unpack: unpackIQ2_XXS, group: 32},
	IQ2_XS: {unpack: unpackIQ2_XS, group: 16}, IQ2_S: {unpack: unpackIQ2_S, group: 16},
	IQ3_XXS: {unpack: unpackIQ3_XXS, group: 32}, IQ3_S: {unpack: unpackIQ3_S, group: 32},
}

// codec returns the codec of a type, or nil.
func (t TensorType) codec() *codec {
	if int64(t) >= int64(len(codecs)) {
		return nil
	}
	return codecs[t]
}

// Decodable reports whether Decode knows the type. It knows all but integers and F64.
func (t TensorType) Decodable() bool {
	return t.codec() != nil || t == F32 || t == F16 || t == BF16 || t == NVFP4
}

// Encodable reports whether Encode and Unpack know the type.
func (t TensorType) Encodable() bool {
	c := t.codec()
	return c != nil && c.pack != nil
}

// Decode sets dst to the weights of src, whole blocks of the type. The weights have the bits of
// ggml's dequantize_row functions. A scale of a quantized type that is infinite or NaN gives NaN
// for the whole block. Decode fails if the type is not Decodable, and if dst and src do not have
// lengths of the same number of blocks.
func (t TensorType) Decode(dst []float32, src []byte) error {
	switch n, err := t.blocks(len(dst), len(src)); {
	case err != nil:
		return err
	case t == F32 || t == F16 || t == BF16:
		t.widen(dst, src)
	case t == NVFP4:
		for i := range n {
			decodeNVFP4(dst[64*i:][:64], src[36*i:][:36])
		}
	case t.codec() == nil:
		return fmt.Errorf("weights of type %s cannot be read: this program has no decoder for it", t)
	default:
		t.codec().decode(dst, src, t.BlockWeights(), t.BlockBytes())
	}
	return nil
}

// blocks returns the number of blocks of n weights in size bytes.
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

// widen decodes the unquantized types.
func (t TensorType) widen(dst []float32, src []byte) {
	switch t {
	case F32:
		vec.WidenF32(dst, src)
	case F16:
		vec.WidenF16(dst, src)
	default:
		vec.WidenBF16(dst, src)
	}
}

// decode decodes blocks of weights weights in size bytes. All products of types with minima are
// exact, so it does not matter whether ggml's compiler fused them with the addition.
func (c *codec) decode(dst []float32, src []byte, weights, size int) {
	var b block
	group := c.group
	if group == 0 {
		group = weights
	}
	for ; len(src) >= size; src, dst = src[size:], dst[weights:] {
		c.unpack(&b, src[:size])
		d, m := noInfinity(b.d), noInfinity(b.m)
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

// noInfinity replaces infinities and NaNs by one NaN: the sign of 0 times infinity differs between
// CPUs.
func noInfinity(v float32) float32 {
	if floats.Finite(v) {
		return v
	}
	return math.Float32frombits(0x7fc00000)
}

// Unpack sets f to the fields of src, whole blocks of an Encodable type. It reuses the slices'
// memory. A scale or a minimum that is infinite or NaN is an error, as llama.cpp's check of tensors
// has it.
func (t TensorType) Unpack(f *Fields, src []byte) error {
	if !t.Encodable() {
		return fmt.Errorf("blocks of type %s cannot be taken apart", t)
	}
	c, weights, size := t.codec(), t.BlockWeights(), t.BlockBytes()
	if len(src)%size != 0 {
		return fmt.Errorf("%d bytes of %s: want a multiple of %d", len(src), t, size)
	}
	f.resize(c, weights, len(src)/size)
	var b block
	for i := range len(src) / size {
		c.unpack(&b, src[i*size:][:size])
		if !floats.Finite(b.d) || !floats.Finite(b.m) {
			return &FormatError{Offset: int64(i * size), Msg: fmt.Sprintf("a block of %s has the scale %v and the minimum %v: want finite numbers", t, b.d, b.m)}
		}
		codes := f.Codes[i*weights:][:weights]
		copy(codes, b.codes[:])
		f.Scales[i] = b.d
		if c.mul != 0 {
			f.Scales[i] = b.d / c.factor
			for j, q := range codes {
				codes[j] = (q - c.add) / c.mul
			}
		}
		if c.mins != noMins {
			f.Mins[i] = b.m
		}
		if c.group > 0 {
			copy(f.SubScales[i*weights/c.group:][:weights/c.group], b.subs[:])
		}
		if c.mins == subsMins {
			copy(f.SubMins[i*weights/c.group:][:weights/c.group], b.subMins[:])
		}
	}
	return nil
}

// resize gives the slices the lengths of n blocks.
func (f *Fields) resize(c *codec, weights, n int) {
	f.Codes, f.Scales = resized(f.Codes, n*weights), resized(f.Scales, n)
	mins, subs, subMins := c.lengths(weights, n)
	f.Mins, f.SubScales, f.SubMins = resized(f.Mins, mins), resized(f.SubScales, subs), resized(f.SubMins, subMins)
}

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// lengths returns the lengths of Fields' last three slices for n blocks.
func (c *codec) lengths(weights, n int) (mins, subs, subMins int) {
	if c.mins != noMins {
		mins = n
	}
	if c.group > 0 {
		subs = n * weights / c.group
	}
	if c.mins == subsMins {
		subMins = subs
	}
	return mins, subs, subMins
}

// Encode writes the blocks of f to dst. It fails unless the type is Encodable, the lengths are
// right, and the blocks hold every value exactly: codes in range, scales and minima that are finite
// F16 values.
func (t TensorType) Encode(dst []byte, f Fields) error {
	if !t.Encodable() {
		return fmt.Errorf("blocks of type %s cannot be written", t)
	}
	c, weights, size := t.codec(), t.BlockWeights(), t.BlockBytes()
	n, err := t.blocks(len(f.Codes), len(dst))
	if err != nil {
		return err
	}
	mins, subs, subMins := c.lengths(weights, n)
	if len(f.Scales) != n || len(f.Mins) != mins || len(f.SubScales) != subs || len(f.SubMins) != subMins {
		return fmt.Errorf("%d scales, %d minima, %d sub-scales and %d sub-minima for %d blocks of %s: want %d, %d, %d and %d",
			len(f.Scales), len(f.Mins), len(f.SubScales), len(f.SubMins), n, t, n, mins, subs, subMins)
	}
	var b block
	for i := range n {
		if err := c.fill(&b, f, i, weights); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		c.pack(dst[i*size:][:size], &b)
	}
	return nil
}

// fill sets b to block i of f.
func (c *codec) fill(b *block, f Fields, i, weights int) error {
	codes := b.codes[:weights]
	copy(codes, f.Codes[i*weights:])
	if lo, hi := slices.Min(codes), slices.Max(codes); int(lo) < c.lo || int(hi) > c.hi {
		return fmt.Errorf("it has codes %d .. %d: the type has %d .. %d", lo, hi, c.lo, c.hi)
	}
	b.d, b.m = f.Scales[i], 0
	if c.mul != 0 {
		b.d *= c.factor
		for j, q := range codes {
			codes[j] = q*c.mul + c.add
		}
	}
	if c.mins != noMins {
		b.m = f.Mins[i]
	}
	for _, v := range []float32{b.d, b.m} {
		if !floats.Finite(v) || floats.F16ToF32(floats.F16FromF32(v)) != v {
			return fmt.Errorf("%v is not an F16 value", v)
		}
	}
	if c.group == 0 {
		return nil
	}
	groups := weights / c.group
	copy(b.subs[:groups], f.SubScales[i*groups:])
	if lo, hi := slices.Min(b.subs[:groups]), slices.Max(b.subs[:groups]); int(lo) < c.subLo || int(hi) > c.subHi {
		return fmt.Errorf("it has sub-scales %d .. %d: the type has %d .. %d", lo, hi, c.subLo, c.subHi)
	}
	if c.mins == subsMins {
		copy(b.subMins[:groups], f.SubMins[i*groups:])
		if hi := slices.Max(b.subMins[:groups]); hi > c.subMinHi {
			return fmt.Errorf("it has the sub-minimum %d: the type has 0 .. %d", hi, c.subMinHi)
		}
	}
	return nil
}
