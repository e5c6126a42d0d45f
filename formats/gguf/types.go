package gguf

import (
	"fmt"
	"math"
	"reflect"
	"slices"
)

// ValueType is the type of a metadata value. The numbers are part of the file format.
type ValueType uint32

// The types of values. Metadata has uint8, int8, uint16, int16, uint32, int32, float32, bool,
// string, [Array], uint64, int64 and float64 values.
const (
	typeUint8   ValueType = 0
	typeInt8    ValueType = 1
	typeUint16  ValueType = 2
	typeInt16   ValueType = 3
	typeUint32  ValueType = 4
	typeInt32   ValueType = 5
	typeFloat32 ValueType = 6
	typeBool    ValueType = 7
	typeString  ValueType = 8
	typeArray   ValueType = 9
	typeUint64  ValueType = 10
	typeInt64   ValueType = 11
	typeFloat64 ValueType = 12
)

// valueTypes has the Go kinds of values by type, their sizes (0: variable), and how to read them.
var valueTypes = [...]struct {
	kind  reflect.Kind
	bytes uint64
	read  func(b []byte) any
}{
	typeUint8:   {reflect.Uint8, 1, func(b []byte) any { return b[0] }},
	typeInt8:    {reflect.Int8, 1, func(b []byte) any { return int8(b[0]) }},
	typeUint16:  {reflect.Uint16, 2, func(b []byte) any { return le.Uint16(b) }},
	typeInt16:   {reflect.Int16, 2, func(b []byte) any { return int16(le.Uint16(b)) }},
	typeUint32:  {reflect.Uint32, 4, func(b []byte) any { return le.Uint32(b) }},
	typeInt32:   {reflect.Int32, 4, func(b []byte) any { return int32(le.Uint32(b)) }},
	typeFloat32: {reflect.Float32, 4, func(b []byte) any { return math.Float32frombits(le.Uint32(b)) }},
	typeBool:    {reflect.Bool, 1, func(b []byte) any { return b[0] == 1 }},
	typeString:  {kind: reflect.String},
	typeArray:   {kind: reflect.Array},
	typeUint64:  {reflect.Uint64, 8, func(b []byte) any { return le.Uint64(b) }},
	typeInt64:   {reflect.Int64, 8, func(b []byte) any { return int64(le.Uint64(b)) }},
	typeFloat64: {reflect.Float64, 8, func(b []byte) any { return math.Float64frombits(le.Uint64(b)) }},
}

// String returns the Go type of a value: "uint32", "string".
func (t ValueType) String() string {
	if int64(t) < int64(len(valueTypes)) {
		return valueTypes[t].kind.String()
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// TensorType is the encoding of a tensor's elements. The numbers are part of the file format.
type TensorType uint32

// The types of llama.cpp (enum ggml_type in ggml/include/ggml.h). The types that gq writes are
// exported. ParseType returns any type.
const (
	F32     TensorType = 0
	F16     TensorType = 1
	Q4_0    TensorType = 2
	Q4_1    TensorType = 3
	Q5_0    TensorType = 6
	Q5_1    TensorType = 7
	Q8_0    TensorType = 8
	q8_1    TensorType = 9
	Q2_K    TensorType = 10
	Q3_K    TensorType = 11
	Q4_K    TensorType = 12
	Q5_K    TensorType = 13
	Q6_K    TensorType = 14
	q8_K    TensorType = 15
	iq2_XXS TensorType = 16
	iq2_XS  TensorType = 17
	iq3_XXS TensorType = 18
	iq1_S   TensorType = 19
	iq4_NL  TensorType = 20
	iq3_S   TensorType = 21
	iq2_S   TensorType = 22
	iq4_XS  TensorType = 23
	i8      TensorType = 24
	i16     TensorType = 25
	i32     TensorType = 26
	i64     TensorType = 27
	f64     TensorType = 28
	iq1_M   TensorType = 29
	BF16    TensorType = 30
	tq1_0   TensorType = 34
	tq2_0   TensorType = 35
	mxfp4   TensorType = 39
	nvfp4   TensorType = 40
	Q1_0    TensorType = 41
	Q2_0    TensorType = 42
)

// typeInfo describes a type; the block and byte counts are ggml's type_traits (ggml/src/ggml.c).
type typeInfo struct {
	name         string
	block, bytes int    // weights and bytes per block
	removed      string // name of a type that llama.cpp has removed
}

var typeTable = [...]typeInfo{
	F32: {"F32", 1, 4, ""}, F16: {"F16", 1, 2, ""}, BF16: {"BF16", 1, 2, ""}, f64: {"F64", 1, 8, ""},
	i8: {"I8", 1, 1, ""}, i16: {"I16", 1, 2, ""}, i32: {"I32", 1, 4, ""}, i64: {"I64", 1, 8, ""},
	Q1_0: {"Q1_0", 128, 18, ""}, Q2_0: {"Q2_0", 64, 18, ""}, Q4_0: {"Q4_0", 32, 18, ""}, Q4_1: {"Q4_1", 32, 20, ""},
	Q5_0: {"Q5_0", 32, 22, ""}, Q5_1: {"Q5_1", 32, 24, ""}, Q8_0: {"Q8_0", 32, 34, ""}, q8_1: {"Q8_1", 32, 36, ""},
	Q2_K: {"Q2_K", 256, 84, ""}, Q3_K: {"Q3_K", 256, 110, ""}, Q4_K: {"Q4_K", 256, 144, ""}, Q5_K: {"Q5_K", 256, 176, ""},
	Q6_K: {"Q6_K", 256, 210, ""}, q8_K: {"Q8_K", 256, 292, ""},
	iq1_S: {"IQ1_S", 256, 50, ""}, iq1_M: {"IQ1_M", 256, 56, ""}, iq2_XXS: {"IQ2_XXS", 256, 66, ""}, iq2_XS: {"IQ2_XS", 256, 74, ""},
	iq2_S: {"IQ2_S", 256, 82, ""}, iq3_XXS: {"IQ3_XXS", 256, 98, ""}, iq3_S: {"IQ3_S", 256, 110, ""},
	iq4_NL: {"IQ4_NL", 32, 18, ""}, iq4_XS: {"IQ4_XS", 256, 136, ""},
	tq1_0: {"TQ1_0", 256, 54, ""}, tq2_0: {"TQ2_0", 256, 66, ""}, mxfp4: {"MXFP4", 32, 17, ""}, nvfp4: {"NVFP4", 64, 36, ""},

	4: {removed: "Q4_2"}, 5: {removed: "Q4_3"},
	31: {removed: "Q4_0_4_4"}, 32: {removed: "Q4_0_4_8"}, 33: {removed: "Q4_0_8_8"},
	36: {removed: "IQ4_NL_4_4"}, 37: {removed: "IQ4_NL_4_8"}, 38: {removed: "IQ4_NL_8_8"},
}

// info returns the type's description; ok is false for removed and unknown types.
func (t TensorType) info() (info typeInfo, ok bool) {
	if int64(t) >= int64(len(typeTable)) {
		return typeInfo{}, false
	}
	return typeTable[t], typeTable[t].block > 0
}

// Known reports whether llama.cpp has the type.
func (t TensorType) Known() bool {
	_, ok := t.info()
	return ok
}

// BlockWeights is the number of weights of a block: 1 for unquantized types, 0 for unknown types.
func (t TensorType) BlockWeights() int {
	info, _ := t.info()
	return info.block
}

// BlockBytes is the number of bytes of a block; 0 for unknown types.
func (t TensorType) BlockBytes() int {
	info, _ := t.info()
	return info.bytes
}

// Bits is the number of bits per weight, scales included.
func (t TensorType) Bits() float64 {
	if !t.Known() {
		return 0
	}
	return float64(8*t.BlockBytes()) / float64(t.BlockWeights())
}

// Size is the number of bytes of n weights. n must be a multiple of BlockWeights.
func (t TensorType) Size(n int64) int64 {
	if !t.Known() || n%int64(t.BlockWeights()) != 0 {
		panic(fmt.Sprintf("gguf: %d weights are no whole number of blocks of %s", n, t))
	}
	return n / int64(t.BlockWeights()) * int64(t.BlockBytes())
}

// String returns llama.cpp's name, such as "Q4_K".
func (t TensorType) String() string {
	if info, ok := t.info(); ok {
		return info.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// ParseType reads llama.cpp's name of a type, such as "Q4_K".
func ParseType(name string) (t TensorType, ok bool) {
	i := slices.IndexFunc(typeTable[:], func(info typeInfo) bool { return name != "" && info.name == name })
	return TensorType(max(i, 0)), i >= 0
}

func (t TensorType) unknown() string {
	if int64(t) < int64(len(typeTable)) && typeTable[t].removed != "" {
		return fmt.Sprintf("type %d was %s, which llama.cpp has removed: make the file again with a current llama.cpp", uint32(t), typeTable[t].removed)
	}
	return fmt.Sprintf("type %d is not a type that this program knows", uint32(t))
}
