package floatmm

import (
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
)

// mulBF16 is MulRows for the rows in src.BF16. A block of some columns of a panel is transposed and
// multiplied with all rows of x while it is in the first-level cache.
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

// aheadCols is the number of columns of a step of a tileKernel. A block of this many columns for each
// row of a panel takes as many steps as the panel has rows.
const aheadCols = 4
