package gguf

import (
	"errors"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// Decodable reports whether Decode knows the type. It knows all but integers and F64.
func (t TensorType) Decodable() bool {
	return t.codec() != nil || t == F32 || t == F16 || t == BF16 || t == NVFP4
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
	if c.whole != nil {
		c.whole(dst, src)
		return
	}
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
