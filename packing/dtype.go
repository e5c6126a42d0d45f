package packing

import (
	"fmt"
	"slices"
)

// Dtype is the element type of a tensor, with the names of safetensors. Files store the numbers: a
// number never changes its meaning and is never reused.
type Dtype uint8

// The element types. DtypeNone marks the header of a quantized payload or, in a checkpoint, a type
// that this program does not know.
const (
	DtypeNone  Dtype = 0
	F64        Dtype = 1
	F32        Dtype = 2
	F16        Dtype = 3
	BF16       Dtype = 4
	I64        Dtype = 5
	I32        Dtype = 6
	I16        Dtype = 7
	I8         Dtype = 8
	U64        Dtype = 9
	U32        Dtype = 10
	U16        Dtype = 11
	U8         Dtype = 12
	Bool       Dtype = 13
	F8E4M3     Dtype = 14
	F8E5M2     Dtype = 15
	F8E8M0     Dtype = 16
	F8E4M3FNUZ Dtype = 17
	F8E5M2FNUZ Dtype = 18
	F4         Dtype = 19 // E2M1, two elements to a byte
	F6E2M3     Dtype = 20 // 6 bits an element, no padding between elements
	F6E3M2     Dtype = 21
	C64        Dtype = 22 // two F32: real, imaginary
	dtypeLimit Dtype = 23
)

// unknownName begins the String of a number without a meaning.
const unknownName = "unknown"

// dtypes holds safetensors' spelling and the size in bits, by number.
var dtypes = [dtypeLimit]struct {
	name string
	bits int
}{
	DtypeNone:  {"none", 0},
	F64:        {"F64", 64},
	F32:        {"F32", 32},
	F16:        {"F16", 16},
	BF16:       {"BF16", 16},
	I64:        {"I64", 64},
	I32:        {"I32", 32},
	I16:        {"I16", 16},
	I8:         {"I8", 8},
	U64:        {"U64", 64},
	U32:        {"U32", 32},
	U16:        {"U16", 16},
	U8:         {"U8", 8},
	Bool:       {"BOOL", 8},
	F8E4M3:     {"F8_E4M3", 8},
	F8E5M2:     {"F8_E5M2", 8},
	F8E8M0:     {"F8_E8M0", 8},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	F4:         {"F4", 4},
	F6E2M3:     {"F6_E2M3", 6},
	F6E3M2:     {"F6_E3M2", 6},
	C64:        {"C64", 64},
}

// String gives safetensors' spelling: "BF16", "F8_E4M3", "BOOL". DtypeNone is "none"; a number
// without a meaning is "unknown(200)".
func (d Dtype) String() string {
	if d >= dtypeLimit {
		return fmt.Sprintf("%s(%d)", unknownName, uint8(d))
	}
	return dtypes[d].name
}

// ParseDtype is the inverse of String for the types that have elements; the
// spelling is exact, as safetensors demands.
func ParseDtype(s string) (Dtype, bool) {
	for d := F64; d < dtypeLimit; d++ {
		if dtypes[d].name == s {
			return d, true
		}
	}
	return DtypeNone, false
}

// Bits is the size of one element in bits; 0 for DtypeNone and for numbers without a meaning.
func (d Dtype) Bits() int {
	if d >= dtypeLimit {
		return 0
	}
	return dtypes[d].bits
}

// IsFloat reports whether weights of this type can be quantized: F64, F32, F16, BF16, F8_E4M3 and
// F8_E5M2. The remaining floating-point types (FNUZ, E8M0, sub-byte, complex) only occur as scales
// or inside other libraries' formats.
func (d Dtype) IsFloat() bool {
	return slices.Contains([]Dtype{F64, F32, F16, BF16, F8E4M3, F8E5M2}, d)
}
