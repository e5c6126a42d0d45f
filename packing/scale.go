package packing

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// ScaleDtype is the number format of the stored scales. Files store the numbers.
type ScaleDtype uint8

// The formats of scales.
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

// Bytes is the size of one stored scale: 0, 2 or 4.
func (s ScaleDtype) Bytes() int {
	if s >= scaleDtypeLimit {
		return 0
	}
	return scaleDtypes[s].bytes
}

// Smallest is the smallest positive scale of the format: 2^-126 for bf16 and f32, 2^-24 for f16.
// Subnormal f16 numbers can be scales, because they are normal numbers of float32, in which kernels
// compute. Subnormal bf16 and f32 numbers cannot: a CPU that flushes subnormals to zero would
// compute other products, and XNNPACK refuses them.
func (s ScaleDtype) Smallest() float32 { return scaleDtypes[s].smallest }

// SmallestNormal is the smallest positive normal number of the format: 2^-126
// for bf16 and f32, 2^-14 for f16.
func (s ScaleDtype) SmallestNormal() float32 { return scaleDtypes[s].smallestNormal }

// Max is the largest finite number of the format.
func (s ScaleDtype) Max() float32 { return scaleDtypes[s].max }

// Round returns the number of the format nearest to x, ties to even; beyond Max it returns an
// infinity, as IEEE 754 rounds.
func (s ScaleDtype) Round(x float32) float32 {
	switch s {
	case ScaleBF16:
		return floats.BF16ToF32(floats.BF16FromF32(x))
	case ScaleF16:
		return floats.RoundF16(x)
	}
	return x
}

// IsScale reports whether x, a number of the format, can be a scale: its magnitude is in Smallest
// .. Max, or it is an f16 zero, see HoldsZero.
func (s ScaleDtype) IsScale(x float32) bool {
	m := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	return m >= s.Smallest() && m <= s.Max() || m == 0 && s.HoldsZero()
}

// HoldsZero reports whether a scale may be 0 or -0. gq never chooses it, but blocks of ggml, whose
// scales are f16, have it where all weights are 0, with any codes: a file that takes such codes over
// keeps it. Consumers of bf16 and f32 scales refuse it.
func (s ScaleDtype) HoldsZero() bool { return s == ScaleF16 }

// put stores x, a number of the format, at the start of dst.
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

// get reads the number at the start of src.
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
