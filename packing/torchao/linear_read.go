package torchao

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

func (l *linear) UnpackPanel(p *packing.Panel, src []byte) {
	p.Rows = nr
	l.CheckArgs(src, p)
	codes := buffer.Bytes(p.Codes)
	for g := range l.groups {
		group := src[g*l.groupBytes:][:l.groupBytes]
		for c := range l.group / chunkCols {
			unit := group[16*l.bits*c:]
			for lane := range 8 {
				row := codes[lane%4*2*l.k+g*l.group+chunkCols*c+lane/4*8:]
				putWord(row, l.planes.lane(unit, lane))
				putWord(row[l.k:], l.planes.lane(unit[8:], lane))
			}
		}
		record := group[l.codeBytes:]
		for r := range nr {
			p.Scales[r*l.groups+g] = getFloat(record, r)
			if l.zeros {
				p.Zeros[r*l.groups+g] = int8(getInt(record, 2*nr+r))
			}
		}
	}
	for r := range p.Bias {
		p.Bias[r] = getFloat(src[l.PanelBytes()-4*nr:], r)
	}
}

func (l *linear) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, r := l.PanelOf(data, row)
	for g := range l.groups {
		group := panel[g*l.groupBytes:][:l.groupBytes]
		if codes != nil {
			dst := buffer.Bytes(codes[g*l.group:][:l.group])
			for c := 0; c < len(dst); c += chunkCols {
				x0, x1 := l.chunk(group[l.bits*c:], r)
				putWord(dst[c:], x0)
				putWord(dst[c+8:], x1)
			}
		}
		record := group[l.codeBytes:]
		if scales != nil {
			scales[g] = getFloat(record, r)
		}
		if zeros != nil && l.zeros {
			zeros[g] = lowByte(record, 2*nr+r)
		}
	}
}

// DequantizeRow reads a row as K weights: float32(q - z) * scale, rounded once, with the bits of
// TorchAO's shared embedding. TorchAO unpacks all 8 rows of the panel instead.
func (l *linear) DequantizeRow(dst []float32, data []byte, row int) {
	panel, r := l.PanelOf(data, row)
	dst = dst[:l.k]
	for g := range l.groups {
		group := panel[g*l.groupBytes:][:l.groupBytes]
		record := group[l.codeBytes:]
		scale, zero := getFloat(record, r), int32(0)
		if l.zeros {
			zero = int32(lowByte(record, 2*nr+r))
		}
		for c := 0; c < l.group; c += chunkCols {
			x0, x1 := l.chunk(group[l.bits*c:], r)
			run := (*[chunkCols]float32)(dst)
			for i := range 8 {
				run[i] = float32(float32(int32(int8(x0>>(8*i)))-zero) * scale)
				run[8+i] = float32(float32(int32(int8(x1>>(8*i)))-zero) * scale)
			}
			dst = dst[chunkCols:]
		}
	}
}

func (l *linear) Bias(data []byte, row int) float32 {
	panel, r := l.PanelOf(data, row)
	if !l.bias {
		return 0
	}
	return getFloat(panel[l.PanelBytes()-4*nr:], r)
}

// chunk unpacks the two halves of row r in the first unit of unit.
func (l *linear) chunk(unit []byte, r int) (x0, x1 uint64) {
	unit = unit[8*(r%2):]
	return l.planes.lane(unit, r/2), l.planes.lane(unit, 4+r/2)
}

// CheckPanel reports the first defect of panel i of the payload, with bytes src, as
// *packing.PanelError. Defects are:
//   - a scale that is not a normal number, or not positive despite packing.FlagPositiveScales
//   - a stored sum that differs from the sum of the codes
//   - a zero point beyond int8
//   - a bias that is not finite
//   - a number other than 0 in a padding row
func (l *linear) CheckPanel(i int, src []byte) error {
	l.CheckIndex(i, src)
	rows := l.PanelRows(i)
	for g := range l.groups {
		for r := range nr {
			if offset, msg := l.checkGroup(src, g, r, r >= rows); msg != "" {
				return l.PanelErrorf(i, offset, "%s", msg)
			}
		}
	}
	if !l.bias {
		return nil
	}
	for r := range nr {
		offset := l.PanelBytes() - 4*nr + 4*r
		if msg := checkBias(getFloat(src[offset:], 0), r, r >= rows); msg != "" {
			return l.PanelErrorf(i, offset, "%s", msg)
		}
	}
	return nil
}

// checkGroup returns the defect of group g of row r of a panel, and the defect's offset.
func (l *linear) checkGroup(panel []byte, g, r int, padding bool) (offset int, msg string) {
	group, sum, record := panel[g*l.groupBytes:], 0, g*l.groupBytes+l.codeBytes
	for c := 0; c < l.group; c += chunkCols {
		x0, x1 := l.chunk(group[l.bits*c:], r)
		if padding && x0|x1 != 0 {
			return g*l.groupBytes + l.bits*c, fmt.Sprintf("padding row %d has a code that is not 0 at or after column %d", r, g*l.group+c)
		}
		const half = 0x80 * ones
		sum += sumPairs(bytePairs(x0^half)+bytePairs(x1^half)) - 128*chunkCols
	}
	scale, stored := getFloat(panel[record:], r), getInt(panel[record:], nr+r)
	if msg := checkScale(scale, r, g, padding, l.Header().Flags&packing.FlagPositiveScales != 0); msg != "" {
		return record + 4*r, msg
	}
	if int(stored) != sum {
		return record + 4*(nr+r), fmt.Sprintf("the sum of row %d group %d is %d, its codes make %d", r, g, stored, sum)
	}
	if l.zeros {
		zero := getInt(panel[record:], 2*nr+r)
		if int32(int8(zero)) != zero || padding && zero != 0 {
			return record + 4*(2*nr+r), fmt.Sprintf("the zero point of row %d group %d is %d", r, g, zero)
		}
	}
	return 0, ""
}

func checkScale(scale float32, row, group int, padding, positive bool) string {
	switch {
	case padding && math.Float32bits(scale) != 0:
		return fmt.Sprintf("the scale of padding row %d group %d is %v, not 0", row, group, scale)
	case padding:
		return ""
	case !packing.ScaleF32.IsScale(scale):
		return fmt.Sprintf("the scale of row %d group %d is %v, not a normal number", row, group, scale)
	case positive && scale < 0:
		return fmt.Sprintf("the scale of row %d group %d is %v in a payload of positive scales", row, group, scale)
	}
	return ""
}

func checkBias(bias float32, row int, padding bool) string {
	switch {
	case padding && math.Float32bits(bias) != 0:
		return fmt.Sprintf("the bias of padding row %d is %v, not 0", row, bias)
	case !floats.Finite(bias):
		return fmt.Sprintf("the bias of row %d is %v", row, bias)
	}
	return ""
}

func getInt(src []byte, i int) int32 { return int32(binary.LittleEndian.Uint32(src[4*i:])) }

// lowByte reads the low byte of the i-th int32 of src. Zero points fit.
func lowByte(src []byte, i int) int8 { return int8(src[4*i]) }

func getFloat(src []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}
