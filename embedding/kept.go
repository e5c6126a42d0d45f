package embedding

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// kept reads the rows of a table that was not quantized.
type kept struct {
	dtype packing.Dtype
	cols  int
}

func newKept(h packing.Header) (rowReader, error) {
	switch h.Dtype {
	case packing.F32, packing.F16, packing.BF16:
		return &kept{h.Dtype, int(h.Cols)}, nil
	}
	return nil, &UnsupportedError{Msg: fmt.Sprintf("a table kept as %s cannot be looked up; F32, F16, BF16 and quantized ones can", h.Dtype)}
}

// DequantizeRow widens one row.
func (k *kept) DequantizeRow(dst []float32, data []byte, row int) {
	size := k.cols * k.dtype.Bits() / 8
	src := data[row*size:][:size]
	switch k.dtype {
	case packing.BF16:
		vec.WidenBF16(dst, src)
	case packing.F16:
		vec.WidenF16(dst, src)
	case packing.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}
