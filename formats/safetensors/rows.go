package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// ReadRows converts rows row0 .. row0+rows-1 of t, seen as a matrix (Tensor.Matrix), to float32.
// len(dst) is rows times columns. The dtype must be a float type that can be quantized
// (packing.Dtype.IsFloat). F64 is rounded to nearest, ties to even, and overflows to infinity; the
// other dtypes are exact. FP8 values are read without block scales, which Weights applies.
//
// ReadRows needs no Guard: a truncated file is a *FormatError. It fetches the rows of a remote file.
func (c *Checkpoint) ReadRows(dst []float32, t Tensor, row0, rows int) error {
	src, err := c.rows(dst, t, row0, rows)
	if err != nil {
		return err
	}
	_, cols := t.Matrix()
	width := cols * int64(t.Dtype.Bits()/8)
	release, err := c.fetch([]Range{t.Range(int64(row0)*width, int64(rows)*width)})
	if err != nil {
		return err
	}
	defer release()
	return c.Guard(func() error {
		Widen(dst, src, t.Dtype)
		return nil
	})
}

// rows checks the arguments of ReadRows and returns the bytes of the rows.
func (c *Checkpoint) rows(dst []float32, t Tensor, row0, rows int) ([]byte, error) {
	b, err := c.Bytes(t)
	if err != nil {
		return nil, err
	}
	if !t.Dtype.IsFloat() {
		return nil, c.unsupported(t, "dtype "+t.DtypeName+" does not hold floating-point weights")
	}
	all, cols := t.Matrix()
	if row0 < 0 || rows < 0 || int64(row0) > all || int64(rows) > all-int64(row0) {
		return nil, fmt.Errorf("safetensors: tensor %s has %d rows, not rows %d to %d", quote(t.Name), all, row0, row0+rows)
	}
	if int64(len(dst)) != int64(rows)*cols {
		return nil, fmt.Errorf("safetensors: tensor %s: %d rows of %d values do not go into %d", quote(t.Name), rows, cols, len(dst))
	}
	width := cols * int64(t.Dtype.Bits()/8)
	return b[int64(row0)*width:][:int64(rows)*width], nil
}

// Widen converts len(dst) little-endian values in src, of a dtype with Dtype.IsFloat, to float32.
// Call it inside Guard if src is a view of a checkpoint.
func Widen(dst []float32, src []byte, d packing.Dtype) {
	switch d {
	case packing.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case packing.F32:
		vec.WidenF32(dst, src)
	case packing.F16:
		vec.WidenF16(dst, src)
	case packing.BF16:
		vec.WidenBF16(dst, src)
	case packing.F8E4M3:
		dst = dst[:len(src)] // avoids bounds checks below
		for i, b := range src {
			dst[i] = floats.F8E4M3ToF32(b)
		}
	case packing.F8E5M2:
		dst = dst[:len(src)] // avoids bounds checks below
		for i, b := range src {
			dst[i] = floats.F8E5M2ToF32(b)
		}
	}
}
