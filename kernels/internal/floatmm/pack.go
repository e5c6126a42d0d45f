package floatmm

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// Padding words, which change no sum: -0 as float32, and a pair of BF16 -0.
const (
	noWeight   = 0x80000000
	noPair     = 0x80008000
	noHighHalf = 0x80000000
)

// Fill packs panels first to last-1 from data, the row-major little-endian elements of all rows.
func (w *Weights) Fill(sc *Scratch, data []byte, first, last int) {
	rowBytes := w.cols * 4
	if w.dtype != packing.F32 {
		rowBytes = w.cols * 2
	}
	if len(data) != w.rows*rowBytes || first < 0 || last > w.Panels() {
		panic(fmt.Sprintf("floatmm: panels %d to %d of %d from %d bytes for %d x %d weights of type %s",
			first, last, w.Panels(), len(data), w.rows, w.cols, w.dtype))
	}
	size, nr := w.panelWords(), w.set.NR
	for p := first; p < last; p++ {
		panel := w.words[p*size : (p+1)*size]
		for at := 0; at < nr; at += blockRows {
			row := p*nr + at
			n := max(0, min(blockRows, w.rows-row))
			block := data[min(row, w.rows)*rowBytes:][:n*rowBytes]
			switch w.dtype {
			case packing.F32:
				w.set.fillBytes(panel, at, block, n, rowBytes, w.cols, 1)
			case packing.BF16:
				w.set.fillBytes(panel, at, block, n, rowBytes, w.cols, 2)
			case packing.F16:
				buffer.Grow(&sc.rows, blockRows*w.cols)
				vec.WidenF16(sc.rows[:n*w.cols], block)
				w.set.fillFloats(panel, at, sc.rows, n, w.cols, w.cols)
			}
		}
	}
}

// fillBytes writes n rows of little-endian values, which begin stride bytes apart, into a panel from
// column at on, per values to a word. n is at most blockRows. It pads the panel to blockRows columns
// and to whole steps of k.
func (s *Set) fillBytes(panel []uint32, at int, rows []byte, n, stride, cols, per int) {
	words := cols / per
	done := 0
	if s.transpose != nil && n == blockRows && words >= blockRows {
		done = words &^ (blockRows - 1)
		s.transpose(&panel[at], &rows[0], stride, done)
	}
	for i := range n {
		row := rows[i*stride:]
		for k := done; k < words; k++ {
			panel[k*s.NR+at+i] = binary.LittleEndian.Uint32(row[4*k:])
		}
		if cols%per != 0 {
			panel[words*s.NR+at+i] = noHighHalf | uint32(binary.LittleEndian.Uint16(row[4*words:]))
		}
	}
	none := uint32(noWeight)
	if per == 2 {
		none = noPair
	}
	s.fillUp(panel, at, n, (cols+per-1)/per, none)
}

// fillFloats is fillBytes for float32; the rows begin stride values apart.
func (s *Set) fillFloats(panel []uint32, at int, rows []float32, n, stride, cols int) {
	done := 0
	if s.transpose != nil && n == blockRows && cols >= blockRows {
		done = cols &^ (blockRows - 1)
		s.transpose(&panel[at], (*byte)(unsafe.Pointer(&rows[0])), 4*stride, done)
	}
	for i := range n {
		for k := done; k < cols; k++ {
			panel[k*s.NR+at+i] = math.Float32bits(rows[i*stride+k])
		}
	}
	s.fillUp(panel, at, n, cols, noWeight)
}

// fillUp pads a panel past n rows and past the given number of words.
func (s *Set) fillUp(panel []uint32, at, n, words int, none uint32) {
	first := 0
	if n == blockRows {
		first = words
	}
	for k := first; k < len(panel)/s.NR; k++ {
		from := 0
		if k < words {
			from = n
		}
		for i := from; i < blockRows; i++ {
			panel[k*s.NR+at+i] = none
		}
	}
}
