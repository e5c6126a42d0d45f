package gguf

import "fmt"

// ValueType is the type of a metadata value. The numbers are part of the file format.
type ValueType uint32

// The types of values. Metadata holds them as uint8, int8, uint16, int16, uint32, int32, float32,
// bool, string, [Array], uint64, int64 and float64.
const (
	TypeUint8   ValueType = 0
	TypeInt8    ValueType = 1
	TypeUint16  ValueType = 2
	TypeInt16   ValueType = 3
	TypeUint32  ValueType = 4
	TypeInt32   ValueType = 5
	TypeFloat32 ValueType = 6
	TypeBool    ValueType = 7
	TypeString  ValueType = 8
	TypeArray   ValueType = 9
	TypeUint64  ValueType = 10
	TypeInt64   ValueType = 11
	TypeFloat64 ValueType = 12
)

// valueBytes has the sizes of values by type; 0: variable.
var valueBytes = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, TypeString: 0, TypeArray: 0, TypeUint64: 8, TypeInt64: 8, TypeFloat64: 8}

// TensorType is the encoding of a tensor's elements. The numbers are part of the file format.
type TensorType uint32

// F32 is the type of float32 tensors.
const F32 TensorType = 0

// tensorTypes has the name of each type, the elements per block, and the bytes per block
// (ggml/src/ggml.c, type_traits). Missing numbers were removed from llama.cpp.
var tensorTypes = map[TensorType]struct {
	name         string
	block, bytes uint64
}{
	0: {"F32", 1, 4}, 1: {"F16", 1, 2}, 2: {"Q4_0", 32, 18}, 3: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24},
	8: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36}, 10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144},
	13: {"Q5_K", 256, 176}, 14: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292}, 16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74},
	18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50}, 20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82},
	23: {"IQ4_XS", 256, 136}, 24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56}, 30: {"BF16", 1, 2}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17},
}

// String returns llama.cpp's name, such as "Q4_K".
func (t TensorType) String() string {
	if known, ok := tensorTypes[t]; ok {
		return known.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
