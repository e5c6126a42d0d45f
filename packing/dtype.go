package packing

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
)

// Dtype is the element type of a tensor, with the names of safetensors. Files store the numbers: a
// number never changes its meaning and is never reused.
type Dtype uint8

// The element types. DtypeNone marks the header of a quantized payload or, in a checkpoint, a type
// that this program does not know. ParseDtype returns the types that gq only copies, too.
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
	f8E8M0     Dtype = 16
	f8E4M3FNUZ Dtype = 17
	f8E5M2FNUZ Dtype = 18
	f4         Dtype = 19 // E2M1, two elements to a byte
	f6E2M3     Dtype = 20 // 6 bits an element, no padding between elements
	f6E3M2     Dtype = 21
	c64        Dtype = 22 // two F32: real, imaginary
	dtypeLimit Dtype = 23
)

// unknownName begins the String of a number without a meaning.
const unknownName = "unknown"

var dtypes = [dtypeLimit]struct {
	name string
	bits int
}{
	DtypeNone: {"none", 0}, Bool: {"BOOL", 8},
	F64: {"F64", 64}, F32: {"F32", 32}, F16: {"F16", 16}, BF16: {"BF16", 16}, c64: {"C64", 64},
	I64: {"I64", 64}, I32: {"I32", 32}, I16: {"I16", 16}, I8: {"I8", 8},
	U64: {"U64", 64}, U32: {"U32", 32}, U16: {"U16", 16}, U8: {"U8", 8},
	F8E4M3: {"F8_E4M3", 8}, F8E5M2: {"F8_E5M2", 8}, f8E8M0: {"F8_E8M0", 8},
	f8E4M3FNUZ: {"F8_E4M3FNUZ", 8}, f8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	f4: {"F4", 4}, f6E2M3: {"F6_E2M3", 6}, f6E3M2: {"F6_E3M2", 6},
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

// Bits is the size of an element in bits; 0 for DtypeNone and for numbers without a meaning.
func (d Dtype) Bits() int {
	if d >= dtypeLimit {
		return 0
	}
	return dtypes[d].bits
}

// IsFloat reports whether weights of this type can be quantized: F64, F32, F16, BF16, F8_E4M3,
// F8_E5M2, and F4 with scales. The remaining floating-point types (FNUZ, E8M0, 6 bits, complex)
// only occur as scales or inside other libraries' formats.
func (d Dtype) IsFloat() bool {
	return slices.Contains([]Dtype{F64, F32, F16, BF16, F8E4M3, F8E5M2, f4}, d)
}

// ScaleDtype is the number format of the stored scales. Files store the numbers.
type ScaleDtype uint8

const (
	ScaleNone       ScaleDtype = 0 // no scales
	ScaleBF16       ScaleDtype = 1
	ScaleF16        ScaleDtype = 2
	ScaleF32        ScaleDtype = 3
	scaleDtypeLimit ScaleDtype = 4
)

var scaleDtypes = [scaleDtypeLimit]struct {
	name                          string
	bytes                         int
	smallest, smallestNormal, max float32
}{
	ScaleNone: {"none", 0, 0, 0, 0},
	ScaleBF16: {"bf16", 2, 0x1p-126, 0x1p-126, 0x1.fep127},
	ScaleF16:  {"f16", 2, 0x1p-24, 0x1p-14, 65504},
	ScaleF32:  {"f32", 4, 0x1p-126, 0x1p-126, math.MaxFloat32},
}

// String gives "bf16", "f16", "f32" or "none".
func (s ScaleDtype) String() string {
	if s >= scaleDtypeLimit {
		return fmt.Sprintf("%s(%d)", unknownName, uint8(s))
	}
	return scaleDtypes[s].name
}

// MarshalText encodes s as its String.
func (s ScaleDtype) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseScaleDtype reads "bf16", "f16" or "f32".
func ParseScaleDtype(name string) (ScaleDtype, bool) {
	for s := ScaleBF16; s < scaleDtypeLimit; s++ {
		if scaleDtypes[s].name == name {
			return s, true
		}
	}
	return ScaleNone, false
}

// Bytes is the size of a stored scale: 0, 2 or 4.
func (s ScaleDtype) Bytes() int {
	if s >= scaleDtypeLimit {
		return 0
	}
	return scaleDtypes[s].bytes
}

// Smallest is the smallest positive scale of the format: 2^-126 for bf16 and f32, 2^-24 for f16.
// Subnormal f16 numbers can be scales, because they are normal numbers of float32, the format in
// which kernels compute. Subnormal bf16 and f32 numbers cannot: a CPU that flushes subnormals to
// zero would compute other products, and XNNPACK refuses such scales.
func (s ScaleDtype) Smallest() float32 { return scaleDtypes[s].smallest }

// SmallestNormal is the smallest positive normal number of the format: 2^-126
// for bf16 and f32, 2^-14 for f16.
func (s ScaleDtype) SmallestNormal() float32 { return scaleDtypes[s].smallestNormal }

// Max is the largest finite number of the format.
func (s ScaleDtype) Max() float32 { return scaleDtypes[s].max }

// Round returns the format's number nearest to x, ties to even, an infinity beyond Max.
func (s ScaleDtype) Round(x float32) float32 {
	switch s {
	case ScaleBF16:
		return floats.BF16ToF32(floats.BF16FromF32(x))
	case ScaleF16:
		return floats.RoundF16(x)
	}
	return x
}

// IsScale reports whether x, a number of the format, can be a scale: a magnitude in Smallest ..
// Max, or an f16 zero, see HoldsZero.
func (s ScaleDtype) IsScale(x float32) bool {
	m := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	return m >= s.Smallest() && m <= s.Max() || m == 0 && s.HoldsZero()
}

// HoldsZero reports whether a scale may be 0 or -0 in every layout, see [Header.HoldsZeroScales].
func (s ScaleDtype) HoldsZero() bool { return s == ScaleF16 }

// HoldsZeroScales reports whether a scale of the payload may be 0 or -0. gq never chooses such a
// scale, but blocks of ggml have scale 0, with any codes, where all weights are 0. A file that
// takes such codes over keeps the scale, in f16, or in f32 in gq's own layouts. Other consumers of
// bf16 and f32 scales refuse zeros.
func (h Header) HoldsZeroScales() bool {
	own := h.Layout == LayoutLowbit || h.Layout == LayoutCodes
	return h.ScaleDtype.HoldsZero() || h.ScaleDtype == ScaleF32 && own
}

func (s ScaleDtype) put(dst []byte, x float32) {
	switch s {
	case ScaleBF16:
		binary.LittleEndian.PutUint16(dst, uint16(math.Float32bits(x)>>16))
	case ScaleF16:
		binary.LittleEndian.PutUint16(dst, floats.F16FromF32(x))
	case ScaleF32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(x))
	}
}

func (s ScaleDtype) get(src []byte) float32 {
	switch s {
	case ScaleBF16:
		return floats.BF16ToF32(binary.LittleEndian.Uint16(src))
	case ScaleF16:
		return floats.F16ToF32(binary.LittleEndian.Uint16(src))
	case ScaleF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(src))
	}
	return 0
}
