// Package ggml describes how blocks of ggml's quantized types are multiplied with int8 activations,
// and holds the kernels that read such blocks as they lie in a GGUF file. docs/KERNELS.md, chapter
// 3, states the order of operations; package reference is the same in plain Go.
//
// A row of weights is a whole number of blocks. Each row is summed by itself, from its first column
// to its last: a kernel may compute rows in lanes, and never parts of a row.
package ggml

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
)

// Activations is the type to which ggml quantizes the activations for a type of weights.
type Activations uint8

const (
	Q8_0 Activations = iota // act.BlocksF16: blocks of 32
	Q8_1                    // act.BlocksSums: blocks of 32 with sums
	Q8_K                    // act.BlocksF32: blocks of 256
)

func (a Activations) String() string { return [...]string{"Q8_0", "Q8_1", "Q8_K"}[a] }

// Block is the number of activations that share a scale.
func (a Activations) Block() int {
	if a == Q8_K {
		return 256
	}
	return 32
}

// Format is the arithmetic of a type of weights. The products of a group of columns are summed
// exactly, in int32. Then a term is added to the row's sum f, by fma that rounds once:
//
//	without sub-scales, for each group with the sum t:
//	    f = fma(float32(t), float32(activation scale * scale), f)
//	    with minima: f = fma(minimum, activation sum, f)
//	with sub-scales, for each block with the sums t[g] of products and s[g] of activations:
//	    f = fma(float32(sum of sub[g] t[g]), float32(activation scale * scale), f)
//	    with minima: f = fma(float32(sum of submin[g] s[g]), -float32(activation scale * minimum), f)
type Format struct {
	Type         gguf.TensorType
	Block, Bytes int // weights and bytes of a stored block
	Group        int // columns of a group
	Subs         bool
	Minima       bool
	Activations  Activations
	// Bits is a width of codes of package tile that holds the codes: -2^(b-1) .. 2^(b-1)-1.
	Bits int
	// Unsigned: no code is negative.
	Unsigned bool
}

// Groups is the number of groups of a block.
func (f *Format) Groups() int { return f.Block / f.Group }

// Terms is the number of groups that share a scale and make a term of the sum.
func (f *Format) Terms() int {
	if f.Subs {
		return f.Groups()
	}
	return 1
}

type kind struct {
	bits                   int
	subs, minima, unsigned bool
}

var kinds = map[string]kind{
	"Q1_0": {bits: 2}, "Q2_0": {bits: 3}, "Q4_0": {bits: 4}, "Q5_0": {bits: 5}, "Q8_0": {bits: 8},
	"Q4_1": {bits: 5, minima: true, unsigned: true}, "Q5_1": {bits: 6, minima: true, unsigned: true},
	"IQ4_NL": {bits: 8}, "MXFP4": {bits: 5}, "NVFP4": {bits: 6}, "TQ1_0": {bits: 2}, "TQ2_0": {bits: 3},
	"Q2_K": {bits: 6, subs: true, minima: true, unsigned: true}, "Q3_K": {bits: 6, subs: true},
	"Q4_K": {bits: 5, subs: true, minima: true, unsigned: true}, "Q5_K": {bits: 6, subs: true, minima: true, unsigned: true},
	"Q6_K": {bits: 6, subs: true}, "IQ4_XS": {bits: 8, subs: true}, "IQ1_S": {bits: 5, subs: true}, "IQ1_M": {bits: 6, subs: true},
	"IQ2_XXS": {bits: 7, subs: true}, "IQ2_XS": {bits: 7, subs: true}, "IQ2_S": {bits: 7, subs: true},
	"IQ3_XXS": {bits: 7, subs: true}, "IQ3_S": {bits: 5, subs: true},
}

func typeOf(name string) gguf.TensorType {
	t, ok := gguf.ParseType(name)
	if !ok {
		panic("ggml: no type " + name)
	}
	return t
}

// Formats has the Format of each type, in order of the types' numbers.
var Formats = func() (list []*Format) {
	for name, k := range kinds {
		t := typeOf(name)
		f := &Format{Type: t, Block: t.BlockWeights(), Bytes: t.BlockBytes(), Subs: k.subs, Minima: k.minima, Bits: k.bits, Unsigned: k.unsigned}
		switch {
		case f.Block == 256:
			f.Activations = Q8_K
		case f.Minima:
			f.Activations = Q8_1
		}
		f.Group = min(t.GroupWeights(), f.Activations.Block())
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *Format) int { return int(a.Type) - int(b.Type) })
	return list
}()

// For returns the Format of a type, or nil: unquantized types and ggml's types of activations have
// none.
func For(t gguf.TensorType) *Format {
	for _, f := range Formats {
		if f.Type == t {
			return f
		}
	}
	return nil
}
