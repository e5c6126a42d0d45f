package gguf

import "github.com/lowbit-go/gq/internal/vec"

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
	pack   func(dst []byte, b *block)      // nil: this package does not write the type
	whole  func(dst []float32, src []byte) // decodes blocks faster than unpack and products; nil: none
	group  int                             // weights per sub-scale; 0: no sub-scales
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
	Q4_0: {unpack: unpackQ4_0, pack: packQ4_0, whole: vec.DecodeNibbles, lo: -8, hi: 7},
	Q4_1: {unpack: unpackQ4_1, pack: packQ4_1, lo: 0, hi: 15, mins: addsMin},
	Q5_0: {unpack: unpackQ5_0, pack: packQ5_0, lo: -16, hi: 15},
	Q5_1: {unpack: unpackQ5_1, pack: packQ5_1, lo: 0, hi: 31, mins: addsMin},
	Q8_0: {unpack: unpackQ8_0, pack: packQ8_0, whole: vec.DecodeBytes, lo: -128, hi: 127},
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
