package write

import (
	"encoding/binary"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// AppendFloats appends values in a dtype.
func AppendFloats(b []byte, values []float32, dtype packing.ScaleDtype) []byte {
	for _, s := range values {
		switch dtype {
		case packing.ScaleBF16:
			b = binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(s))
		case packing.ScaleF16:
			b = binary.LittleEndian.AppendUint16(b, floats.F16FromF32(s))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
		}
	}
	return b
}
