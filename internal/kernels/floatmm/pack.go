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

// Padding words that change no sum: -0 as float32, and a pair of BF16 -0.
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

// fillBytes writes n rows of little-endian values, stride bytes apart, into a panel from column at
// on, per values to a word. n is at most blockRows. fillBytes pads the panel to blockRows columns
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

// nextTile is the index in s.Tiles of the next tile if m rows are left: the largest tile that fits,
// unless two tiles of the second size are better than a largest and a small tile. The few chains of
// sums of a small tile wait for each other.
func (s *Set) nextTile(m int) int {
	i := 0
	for s.Tiles[i] > m {
		i++
	}
	if i == 0 && len(s.Tiles) > 1 {
		if rest, second := m-s.Tiles[0], s.Tiles[1]; 0 < rest && rest < second && m >= 2*second {
			return 1
		}
	}
	return i
}

// XLen is the number of float32 that m packed rows of cols columns take.
func (s *Set) XLen(m, cols int) int { return m * filled(cols) }

// PackX packs rows from to to-1 of the m row-major rows of x into dst, of XLen(m, cols) elements.
func (s *Set) PackX(dst, x []float32, m, cols, from, to int) {
	if len(x) != m*cols {
		panic(fmt.Sprintf("floatmm: %d values, want %d x %d activations", len(x), m, cols))
	}
	s.PackColumns(dst, x, cols, m, cols, from, to)
}

// PackColumns is PackX for rows of x that begin stride values apart.
func (s *Set) PackColumns(dst, x []float32, stride, m, cols, from, to int) {
	if cols <= 0 || m < 0 || stride < cols || m > 0 && len(x) < (m-1)*stride+cols || len(dst) != s.XLen(m, cols) || from < 0 || to > m {
		panic(fmt.Sprintf("floatmm: rows %d to %d of %d x %d activations from %d values to %d", from, to, m, cols, len(x), len(dst)))
	}
	k := filled(cols)
	for at := 0; at < to; {
		mr := s.Tiles[s.nextTile(m-at)]
		for i := max(at, from); i < min(at+mr, to); i++ {
			packRow(dst[at*k:(at+mr)*k], x[i*stride:][:cols:cols], mr, i-at)
		}
		at += mr
	}
}

func packRow(tile, row []float32, mr, i int) {
	if mr == 1 {
		clear(tile[copy(tile, row):])
		return
	}
	k := 0
	for ; k+4 <= len(row); k += 4 {
		*(*[4]float32)(tile[k*mr+4*i:]) = [4]float32(row[k:])
	}
	if k < len(row) {
		last := [4]float32{}
		copy(last[:], row[k:])
		*(*[4]float32)(tile[k*mr+4*i:]) = last
	}
}

// mulBF16 is MulRows for the rows in src.BF16. A block of some columns of a panel is transposed and
// multiplied with all rows of x while in the first-level cache.
func (s *Set) mulBF16(sc *Scratch, dst, x []float32, m int, src *Source, first, last int) {
	cols, k, rowBytes := src.Cols, filled(src.Cols), 2*src.Cols
	size, few := blockCols, m <= 2*s.Tiles[0]
	if few {
		size = aheadCols * s.NR
	}
	size = min(size, k)
	buffer.Grow(&sc.bias, s.NR)
	if len(sc.panel) < size/2*s.NR {
		sc.panel = aligned(size / 2 * s.NR)
	}
	for p := first; p < last; p++ {
		row := p * s.NR
		n := min(s.NR, src.Rows-row)
		clear(sc.bias)
		if src.Bias != nil {
			copy(sc.bias, src.Bias[row:row+n])
		}
		out, stride := dst[row:], src.Rows
		if n < s.NR { // kernels write whole panels
			out, stride = buffer.Grow(&sc.tile, m*s.NR), s.NR
		}
		for from := 0; from < k; from += size {
			width := min(size, k-from)
			block := sc.panel[:width/2*s.NR]
			for at := 0; at < s.NR; at += blockRows {
				begin := (row+min(at, n-1))*rowBytes + 2*from
				s.fillBytes(block, at, src.BF16[begin:], max(0, min(blockRows, n-at)), rowBytes, min(size, cols-from), 2)
			}
			bias, next := (*float32)(nil), row*rowBytes+2*(from+size)
			if from+size >= k {
				bias, next = &sc.bias[0], (row+s.NR)*rowBytes
			}
			for at := 0; at < m; {
				i := s.nextTile(m - at)
				// Each step of the first two tiles prefetches a part of a row of the next block.
				ahead, step := &block[0], 0
				if few && next < len(src.BF16) {
					ahead, step = (*uint32)(unsafe.Pointer(&src.BF16[next])), rowBytes
					next += aheadCols * s.NR
				}
				s.bf16.tiles[i](&out[at*stride], 4*stride, &block[0], &x[at*k+from*s.Tiles[i]], width, bias, from, ahead, step)
				at += s.Tiles[i]
			}
		}
		for i := 0; i < m && n < s.NR; i++ {
			copy(dst[row+i*src.Rows:][:n], out[i*s.NR:])
		}
	}
}

// aheadCols is the number of columns of a step of a tileKernel. A block of this many columns for
// each row of a panel takes as many steps as the panel has rows.
const aheadCols = 4
