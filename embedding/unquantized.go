package embedding

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// unquantized reads the rows of an unquantized embedding.
type unquantized struct {
	dtype packing.Dtype
	cols  int
}

func newUnquantized(h packing.Header) (rowReader, error) {
	switch h.Dtype {
	case packing.F32, packing.F16, packing.BF16:
		return &unquantized{h.Dtype, int(h.Cols)}, nil
	}
	return nil, &UnsupportedError{Msg: fmt.Sprintf("an unquantized embedding of dtype %s, want F32, F16 or BF16", h.Dtype)}
}

// DequantizeRow widens one row.
func (u *unquantized) DequantizeRow(dst []float32, data []byte, row int) {
	size := u.cols * u.dtype.Bits() / 8
	src := data[row*size:][:size]
	switch u.dtype {
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
