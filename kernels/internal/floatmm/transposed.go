package floatmm

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
)

// Row writes a row of the packed weights to dst, of as many elements as the weights have columns.
func (w *Weights) Row(dst []float32, row int) {
	nr := w.set.NR
	panel := w.words[row/nr*w.panelWords():][:w.panelWords()]
	dst = dst[:w.cols]
	at := row % nr
	if !w.BF16() {
		for k := range dst {
			dst[k] = math.Float32frombits(panel[k*nr+at])
		}
		return
	}
	for k := range dst {
		pair := panel[k/2*nr+at]
		if k%2 == 0 {
			pair <<= 16
		}
		dst[k] = math.Float32frombits(pair & 0xffff0000)
	}
}

// Part is a range of the columns of packed rows of x, for a product that is computed in parts. All
// parts but the last have a multiple of 4 columns.
type Part struct {
	// First: the sums start at 0. Otherwise they start at the values in dst.
	First bool
	// Last: any NaN is written as 0x7fc00000.
	Last bool
}

// MulMatrix multiplies m rows of x, packed by PackX, with the row-major matrix w of k rows and n
// columns, and writes panels first to last-1 of NR columns each to dst, [m][n] row-major:
//
//	dst[i][j] = fma(x[i][k-1], w[k-1][j], ... fma(x[i][0], w[0][j], 0))
//
// A sum is the same chain of fused multiply-adds as the sum of a product with weights that are
// stored by columns.
func (s *Set) MulMatrix(sc *Scratch, dst, x []float32, m int, w []float32, k, n, first, last int, part Part) {
	if m < 0 || k <= 0 || n <= 0 || len(dst) != m*n || len(x) != m*filled(k) || len(w) != k*n || first < 0 || last > panels(n, s.NR) {
		panic(fmt.Sprintf("floatmm: panels %d to %d of a %d x %d matrix of %d values with %d rows of %d packed values to %d", first, last, k, n, len(w), m, len(x), len(dst)))
	}
	if m == 0 {
		return
	}
	size := filled(k)
	if len(sc.panel) < size*s.NR {
		sc.panel = aligned(size * s.NR)
	}
	panel := sc.panel[:size*s.NR]
	clear(buffer.Grow(&sc.bias, s.NR))
	for p := first; p < last; p++ {
		at := p * s.NR
		width := min(s.NR, n-at)
		s.fillColumns(panel, w[at:], n, k, width)
		if width == s.NR {
			s.part(dst[at:], n, panel, x, m, size, sc.bias, part)
			continue
		}
		// Kernels write whole panels.
		tile := buffer.Grow(&sc.tile, m*s.NR)
		if !part.First {
			for i := range m {
				copy(tile[i*s.NR:][:width], dst[i*n+at:])
				clear(tile[i*s.NR+width : (i+1)*s.NR])
			}
		}
		s.part(tile, s.NR, panel, x, m, size, sc.bias, part)
		for i := range m {
			copy(dst[i*n+at:][:width], tile[i*s.NR:])
		}
	}
}

// fillColumns copies width columns of k rows, which begin stride values apart, to a panel and pads
// it.
func (s *Set) fillColumns(panel []uint32, w []float32, stride, k, width int) {
	for r := range k {
		to := panel[r*s.NR:][:s.NR]
		for i, v := range w[r*stride:][:width] {
			to[i] = math.Float32bits(v)
		}
		for i := width; i < s.NR; i++ {
			to[i] = noWeight
		}
	}
	for i := k * s.NR; i < len(panel); i++ {
		panel[i] = noWeight
	}
}

// part multiplies m rows of x with a panel of k columns; row i of out begins stride values after
// row i-1.
func (s *Set) part(out []float32, stride int, panel []uint32, x []float32, m, k int, bias []float32, part Part) {
	for from := 0; from < k; from += blockCols {
		cols := min(blockCols, k-from)
		resume, b := 1, (*float32)(nil)
		if from == 0 && part.First {
			resume = 0
		}
		if from+cols == k && part.Last {
			b = &bias[0]
		}
		block := panel[from*s.NR:]
		for at := 0; at < m; {
			i := s.nextTile(m - at)
			s.f32.tiles[i](&out[at*stride], 4*stride, &block[0], &x[at*k+from*s.Tiles[i]], cols, b, resume, &block[0], 0)
			at += s.Tiles[i]
		}
	}
}
