package packing

import (
	"encoding/binary"
	"fmt"
	"math"
)

// UnpackPanel unpacks all nr rows of a panel into p, whose slices have the
// lengths that Panel documents. It sets p.Rows to nr: a panel does not say how
// many of its rows are repetitions, PanelRows does.
func (l *Lowbit) UnpackPanel(p *Panel, src []byte) {
	p.Rows = l.nr
	l.checkArgs(src, p)
	codes := codeBytes(p.Codes)
	le := binary.LittleEndian
	for b := range l.k32 / 32 {
		block := src[l.blockStart(b):][:l.blockBytes]
		for i := range 16 / l.width * l.pairs {
			s, pair := i/l.pairs, i%l.pairs
			for e := range 2 {
				x0, x1 := l.pair(block, i, e)
				if l.width == 8 {
					row := codes[(2*pair+e)*l.k32+32*b+8*s:][:24]
					le.PutUint64(row, x0)
					le.PutUint64(row[16:], x1)
					continue
				}
				row0 := codes[(4*pair+2*e)*l.k32+32*b+4*s:]
				row1 := row0[l.k32:]
				le.PutUint32(row0, uint32(x0))
				le.PutUint32(row0[16:], uint32(x1))
				le.PutUint32(row1, uint32(x0>>32))
				le.PutUint32(row1[16:], uint32(x1>>32))
			}
		}
	}
	for r := range l.nr {
		l.scales(p.Scales[r*l.groups:][:l.groups], src, r)
		if l.zeros {
			l.zeroPoints(p.Zeros[r*l.groups:][:l.groups], src, r)
		}
		if p.Bias != nil {
			p.Bias[r] = l.tail(src, l.nr+r)
		}
	}
}

// pair unpacks positions 8e..8e+7 of pair i of lanes (halves h = 0 and 1) of a
// block into signed codes.
func (l *Lowbit) pair(block []byte, i, e int) (x0, x1 uint64) {
	unit := block[i/4*16*l.bits+8*e:]
	x0, x1 = unpackPair(l.bits, i%4, unit, 16)
	if l.bits == 4 { // stored in two's complement, unlike TorchAO's
		x0, x1 = x0^8*ones, x1^8*ones
	}
	return signedCodes(l.bits, x0), signedCodes(l.bits, x1)
}

// scales reads row r's scales, one a group.
func (l *Lowbit) scales(dst []float32, panel []byte, r int) {
	at := r * l.h.ScaleDtype.Bytes()
	for g := range dst {
		dst[g] = l.h.ScaleDtype.get(panel[l.recordStart(g)+at:])
	}
}

// zeroPoints reads row r's zero points, one a group.
func (l *Lowbit) zeroPoints(dst []int8, panel []byte, r int) {
	at := l.nr*l.h.ScaleDtype.Bytes() + r
	for g := range dst {
		dst[g] = int8(panel[l.recordStart(g)+at])
	}
}

// tail reads the i-th float32 of a panel's tail: nr sums, then nr biases.
func (l *Lowbit) tail(panel []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(panel[l.tailStart+4*i:]))
}

// panelOf returns the panel that holds a row, and which row of it that is.
func (l *Lowbit) panelOf(data []byte, row int) (panel []byte, r int) {
	if row < 0 || uint64(row) >= l.h.Rows {
		panic(fmt.Sprintf("packing: row %d of %d", row, l.h.Rows))
	}
	return data[row/l.nr*l.panelBytes:][:l.panelBytes], row % l.nr
}

// rowBlock unpacks the 32 codes of row r of a panel in the block at start.
func (l *Lowbit) rowBlock(dst *[32]byte, panel []byte, r, start int) {
	block := panel[start:][:l.blockBytes]
	le := binary.LittleEndian
	if l.width == 8 {
		for s := range 2 {
			x0, x1 := l.pair(block, s*l.pairs+r/2, r%2)
			le.PutUint64(dst[8*s:], x0)
			le.PutUint64(dst[16+8*s:], x1)
		}
		return
	}
	shift := 32 * (r % 2)
	for s := range 4 {
		x0, x1 := l.pair(block, s*l.pairs+r/4, r/2%2)
		le.PutUint32(dst[4*s:], uint32(x0>>shift))
		le.PutUint32(dst[16+4*s:], uint32(x1>>shift))
	}
}

// rowCodes unpacks the first len(dst) codes of row r of a panel.
func (l *Lowbit) rowCodes(dst, panel []byte, r int) {
	b := 0
	for ; len(dst) >= 32; b++ {
		l.rowBlock((*[32]byte)(dst), panel, r, l.blockStart(b))
		dst = dst[32:]
	}
	if len(dst) > 0 {
		var block [32]byte
		l.rowBlock(&block, panel, r, l.blockStart(b))
		copy(dst, block[:])
	}
}

// Row reads one row of data without unpacking its panel: K codes, G scales
// and, if the layout has them, G zero points (else zeros is not used). Any of
// the three may be nil.
func (l *Lowbit) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, r := l.panelOf(data, row)
	if codes != nil {
		l.rowCodes(codeBytes(codes[:l.k]), panel, r)
	}
	if scales != nil {
		l.scales(scales[:l.groups], panel, r)
	}
	if zeros != nil && l.zeros {
		l.zeroPoints(zeros[:l.groups], panel, r)
	}
}

// DequantizeRow reads one row of data as K weights: float32((q - z) * scale),
// rounded once; z is -1/2 on the half-step grid.
func (l *Lowbit) DequantizeRow(dst []float32, data []byte, row int) {
	panel, r := l.panelOf(data, row)
	dst = dst[:l.k]
	scaleBytes := l.h.ScaleDtype.Bytes()
	var block [32]byte
	scale, zero := float32(0), l.offset
	for k, group, groupEnd := 0, -1, 0; k < l.k; {
		if k == groupEnd {
			group++
			groupEnd = l.groupEnd(group)
			record := panel[l.recordStart(group):][:l.recordBytes]
			scale = l.h.ScaleDtype.get(record[r*scaleBytes:])
			if l.zeros {
				zero = float32(int8(record[l.nr*scaleBytes+r]))
			}
		}
		if k%32 == 0 {
			// blockStart without its division: group groups have ended.
			l.rowBlock(&block, panel, r, k/32*l.blockBytes+group*l.recordBytes)
		}
		run := dst[k:min(groupEnd, k/32*32+32)]
		codes := block[k%32:][:len(run)]
		for i := range run {
			run[i] = float32((float32(int8(codes[i])) - zero) * scale)
		}
		k += len(run)
	}
}

// Bias reads the bias of one row: 0 without FlagBias.
func (l *Lowbit) Bias(data []byte, row int) float32 {
	panel, r := l.panelOf(data, row)
	return l.tail(panel, l.nr+r)
}

// Sum reads the stored sum of one row, see "Lowbit" in the package's
// documentation.
func (l *Lowbit) Sum(data []byte, row int) float32 {
	panel, r := l.panelOf(data, row)
	return l.tail(panel, r)
}
