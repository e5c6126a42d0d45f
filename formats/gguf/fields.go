package gguf

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
)

// Fields are the numbers that consecutive blocks of a quantized type hold. The weights are:
//
//	Q1_0                     (code + 1/2) scale           codes -1, 0
//	Q2_0 Q4_0 Q5_0 Q8_0      code scale                   codes -2^(b-1) .. 2^(b-1)-1
//	Q4_1 Q5_1                code scale + min             codes 0 .. 2^b-1
//	Q3_K Q6_K                code (subscale scale)        codes -2^(b-1) .. 2^(b-1)-1
//	Q2_K Q4_K Q5_K           code (subscale scale) - submin min, codes 0 .. 2^b-1
//	IQ4_NL                   code scale                   16 codes from -127 to 113
//	IQ4_XS                   code (subscale scale)        the same
//	IQ2_XXS IQ2_XS IQ2_S     code (subscale scale) / 8    sizes of 8 codes: a point of Lattice
//	IQ3_XXS                  code (subscale scale) / 4    of 4 codes
//	IQ3_S                    code (subscale scale)        of 4 codes
//	TQ1_0 TQ2_0              code scale                   codes -1, 0, 1 (TQ2_0 also holds 2)
//	MXFP4                    code scale                   twice the numbers of E2M1, -12 .. 12
//
// The first two lines are gq's own grids. ggml stores half of Q1_0's scale, has Q2_0's codes as -1
// .. 2, and negates the codes and the scale of Q2_0. Scales may be negative, but MXFP4's: half of a
// power of two. MXFP4's zeros have no sign. IQ2_XXS, IQ2_XS and IQ3_XXS have an even number of
// negative codes in every 8.
type Fields struct {
	Codes  []int8    // BlockWeights per block
	Scales []float32 // per block; exact in F16 as stored
	Mins   []float32 // per block, of types with minima; exact in F16

	// SubScales has a value per group of 16 (Q2_K, Q3_K, Q6_K, IQ2_XS, IQ2_S) or 32 weights (Q4_K,
	// Q5_K, IQ4_XS and other IQ types), SubMins too in types with minima. Q3_K and IQ4_XS have
	// -32 .. 31, Q6_K -128 .. 127, Q2_K 0 .. 15, and Q4_K and Q5_K 0 .. 63. IQ2 and IQ3 have odd
	// numbers, 1 .. 31.
	SubScales []int8
	SubMins   []uint8
}

// Encodable reports whether Encode and Unpack know the type.
func (t TensorType) Encodable() bool {
	c := t.codec()
	return c != nil && c.pack != nil
}

// Unpack sets f to the fields of src, whole blocks of an Encodable type, and reuses the slices'
// memory. As in llama.cpp's check of tensors, a scale or a minimum that is infinite or NaN is an
// error.
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
		c.read(&b, src[i*size:][:size])
		if !floats.Finite(b.d) || !floats.Finite(b.m) {
			return fmt.Errorf("block %d has the scale %v and the minimum %v: want finite numbers", i, b.d, b.m)
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

func (f *Fields) resize(c *codec, weights, n int) {
	mins, subs, subMins := c.lengths(weights, n)
	buffer.Grow(&f.Codes, n*weights)
	buffer.Grow(&f.Scales, n)
	buffer.Grow(&f.Mins, mins)
	buffer.Grow(&f.SubScales, subs)
	buffer.Grow(&f.SubMins, subMins)
}

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

// Encode writes the blocks of f to dst. Encode fails unless the type is Encodable, the lengths are
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
	if c.check(f) != nil {
		for i := range n {
			if err := c.check(f.part(c, weights, i)); err != nil {
				return fmt.Errorf("block %d: %w", i, err)
			}
		}
	}
	var b block
	for i := range n {
		c.fill(&b, f, i, weights)
		c.write(dst[i*size:][:size], &b)
	}
	return nil
}

func (f Fields) part(c *codec, weights, i int) Fields {
	mins, subs, subMins := c.lengths(weights, 1)
	return Fields{
		Codes: f.Codes[i*weights:][:weights], Scales: f.Scales[i:][:1], Mins: f.Mins[i*mins:][:mins],
		SubScales: f.SubScales[i*subs:][:subs], SubMins: f.SubMins[i*subMins:][:subMins],
	}
}

// check fails unless the type holds every number of f. All blocks take no longer than a block.
func (c *codec) check(f Fields) error {
	if c.lattice != nil {
		if err := c.lattice.check(f.Codes); err != nil {
			return err
		}
		if i := slices.IndexFunc(f.SubScales, func(v int8) bool { return v&1 == 0 || v < 0 || v > 31 }); i >= 0 {
			return fmt.Errorf("it has the sub-scale %d: the type has odd numbers from 1 to 31", f.SubScales[i])
		}
	} else if c.known != nil {
		if i := slices.IndexFunc(f.Codes, func(q int8) bool { return c.known[byte(q)] == 0 }); i >= 0 {
			return fmt.Errorf("it has the code %d, a number that is not in the type's table", f.Codes[i])
		}
	} else if !within(f.Codes, c.lo, c.hi) {
		return fmt.Errorf("it has codes %d .. %d: the type has %d .. %d", slices.Min(f.Codes), slices.Max(f.Codes), c.lo, c.hi)
	}
	for _, v := range f.Scales {
		if c.mul != 0 {
			v *= c.factor
		}
		switch {
		case c.power && !isHalvedE8M0(v):
			return fmt.Errorf("%v is not half of an E8M0 scale, a power of two from 2^-127 to 2^128", v)
		case !c.power && !isHalf(v):
			return fmt.Errorf("%v is not an F16 value", v)
		}
	}
	for _, v := range f.Mins {
		if !isHalf(v) {
			return fmt.Errorf("%v is not an F16 value", v)
		}
	}
	if !within(f.SubScales, c.subLo, c.subHi) {
		return fmt.Errorf("it has sub-scales %d .. %d: the type has %d .. %d", slices.Min(f.SubScales), slices.Max(f.SubScales), c.subLo, c.subHi)
	}
	for _, v := range f.SubMins {
		if v > c.subMinHi {
			return fmt.Errorf("it has the sub-minimum %d: the type has 0 .. %d", v, c.subMinHi)
		}
	}
	return nil
}

func isHalf(v float32) bool {
	return floats.Finite(v) && floats.RoundF16(v) == v
}

func (c *codec) fill(b *block, f Fields, i, weights int) {
	copy(b.codes[:], f.Codes[i*weights:][:weights])
	b.d, b.m = f.Scales[i], 0
	if c.mul != 0 {
		b.d *= c.factor
		for j, q := range b.codes[:weights] {
			b.codes[j] = q*c.mul + c.add
		}
	}
	if c.mins != noMins {
		b.m = f.Mins[i]
	}
	if c.group == 0 {
		return
	}
	groups := weights / c.group
	copy(b.subs[:], f.SubScales[i*groups:][:groups])
	if c.mins == subsMins {
		copy(b.subMins[:], f.SubMins[i*groups:][:groups])
	}
}

// within reports whether all values are in lo .. hi, by their bits: hi-lo+1 is a power of two.
func within(values []int8, lo, hi int) bool {
	var bits byte
	b := buffer.Bytes(values)
	if n := len(b) &^ 7; n > 0 {
		// Eight sums without the carry from a byte to the next.
		const low, sign = 0x7f * eachByte, 0x80 * eachByte
		less, all := uint64(byte(-lo))*eachByte, uint64(0)
		for i := 0; i < n; i += 8 {
			v := le.Uint64(b[i:])
			all |= (v&low + less&low) ^ (v^less)&sign
		}
		for ; all != 0; all >>= 8 {
			bits |= byte(all)
		}
		b = b[n:]
	}
	for _, v := range b {
		bits |= v - byte(lo)
	}
	return int(bits) <= hi-lo
}

// eachByte times a byte has that byte in all eight bytes.
const eachByte = 0x0101_0101_0101_0101
