package floatmm

import (
	"fmt"
	"math"
	"unsafe"

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

// PackTransposed packs rows from to to-1 of m rows of cols columns, as PackX does, from their
// transposed matrix: element k of row i is y[k*stride + i].
func (s *Set) PackTransposed(dst, y []float32, stride, m, cols, from, to int) {
	if cols <= 0 || m < 0 || stride < m || len(y) < (cols-1)*stride+m || len(dst) != s.XLen(m, cols) || from < 0 || to > m {
		panic(fmt.Sprintf("floatmm: rows %d to %d of %d x %d activations from %d transposed values to %d", from, to, m, cols, len(y), len(dst)))
	}
	size := filled(cols)
	for at := 0; at < to; {
		mr := s.Tiles[s.nextTile(m-at)]
		first, n := max(at, from), min(at+mr, to)-max(at, from)
		for k := 0; k < size && n > 0; k += 4 {
			group := dst[at*size+k*mr+4*(first-at):][:4*n]
			if k+4 <= cols {
				a, b, c, d := y[k*stride+first:][:n], y[(k+1)*stride+first:][:n], y[(k+2)*stride+first:][:n], y[(k+3)*stride+first:][:n]
				for i, v := range a {
					*(*[4]float32)(group[4*i:]) = [4]float32{v, b[i], c[i], d[i]}
				}
				continue
			}
			clear(group)
			for j := range cols - k {
				for i, v := range y[(k+j)*stride+first:][:n] {
					group[4*i+j] = v
				}
			}
		}
		at += mr
	}
}

// Part is a range of the columns of packed rows of x, for a product that is computed in parts. All
// parts but the last have a multiple of 4 columns.
type Part struct {
	// First: the sums start at 0, not at the values in dst.
	First bool
	// Last: any NaN is written as 0x7fc00000.
	Last bool
}

// MatrixLen is the number of float32 that a matrix of k rows and n columns takes in panels.
func (s *Set) MatrixLen(k, n int) int { return panels(n, s.NR) * s.NR * filled(k) }

// PackMatrix copies rows from to to-1 of a matrix of k rows and n columns to panels of NR columns,
// dst, of MatrixLen(k, n) elements. rows holds these rows only. A block of few rows stays in the
// first-level cache.
func (s *Set) PackMatrix(dst, rows []float32, k, n, from, to int) {
	if from < 0 || to > k || len(rows) != (to-from)*n || len(dst) != s.MatrixLen(k, n) {
		panic(fmt.Sprintf("floatmm: rows %d to %d of a %d x %d matrix from %d values to %d", from, to, k, n, len(rows), len(dst)))
	}
	size := s.NR * filled(k)
	for p := range panels(n, s.NR) {
		s.fillColumns(dst[p*size:][:size], rows[p*s.NR:], n, from, to, min(s.NR, n-p*s.NR), to == k)
	}
}

// MulMatrix multiplies m rows of x, packed by PackX, with a matrix w of k rows and n columns,
// packed by PackMatrix, and writes panels first to last-1 of NR columns each to dst, [m][n]
// row-major:
//
//	dst[i][j] = fma(x[i][k-1], w[k-1][j], ... fma(x[i][0], w[0][j], 0))
//
// A sum is the same chain of fused multiply-adds as with weights that are stored by columns.
func (s *Set) MulMatrix(sc *Scratch, dst, x []float32, m int, w []float32, k, n, first, last int, part Part) {
	if len(w) != s.MatrixLen(k, n) {
		panic(fmt.Sprintf("floatmm: a %d x %d matrix of %d values", k, n, len(w)))
	}
	s.checkMatrix(dst, x, m, k, n, first, last)
	size := s.NR * filled(k)
	for p := first; p < last && m > 0; p++ {
		at := p * s.NR
		s.matrixPanel(sc, dst[at:], n, x, m, w[p*size:][:size], k, min(s.NR, n-at), part)
	}
}

// MulRowMajor is MulMatrix for a matrix that is not packed, with rows n values apart.
func (s *Set) MulRowMajor(sc *Scratch, dst, x []float32, m int, w []float32, k, n, first, last int, part Part) {
	if len(w) != k*n {
		panic(fmt.Sprintf("floatmm: a %d x %d matrix of %d values", k, n, len(w)))
	}
	s.checkMatrix(dst, x, m, k, n, first, last)
	panel := buffer.Grow(&sc.matrix, s.NR*filled(k))
	for p := first; p < last && m > 0; p++ {
		at := p * s.NR
		width := min(s.NR, n-at)
		s.fillColumns(panel, w[at:], n, 0, k, width, true)
		s.matrixPanel(sc, dst[at:], n, x, m, panel, k, width, part)
	}
}

func (s *Set) checkMatrix(dst, x []float32, m, k, n, first, last int) {
	if m < 0 || k <= 0 || n <= 0 || len(dst) != m*n || len(x) != m*filled(k) || first < 0 || last > panels(n, s.NR) {
		panic(fmt.Sprintf("floatmm: panels %d to %d of a %d x %d matrix with %d rows of %d packed values to %d", first, last, k, n, m, len(x), len(dst)))
	}
}

// fillColumns copies width columns of rows from to to-1 of a matrix to a panel and pads these rows.
// w begins with row from; rows begin stride values apart. end also pads the panel past row to.
func (s *Set) fillColumns(panel, w []float32, stride, from, to, width int, end bool) {
	none := math.Float32frombits(noWeight)
	for r := range to - from {
		row := panel[(from+r)*s.NR:][:s.NR]
		copy(row, w[r*stride:][:width])
		for i := width; i < s.NR; i++ {
			row[i] = none
		}
	}
	if end {
		for i := to * s.NR; i < len(panel); i++ {
			panel[i] = none
		}
	}
}

// matrixPanel multiplies m rows of x with a panel of width columns of a matrix of k rows. Row i of
// dst begins stride values after row i-1.
func (s *Set) matrixPanel(sc *Scratch, dst []float32, stride int, x []float32, m int, panel []float32, k, width int, part Part) {
	clear(buffer.Grow(&sc.bias, s.NR))
	if width == s.NR {
		s.part(dst, stride, panel, x, m, filled(k), sc.bias, part)
		return
	}
	// Kernels write whole panels.
	tile := buffer.Grow(&sc.tile, m*s.NR)
	if !part.First {
		for i := range m {
			copy(tile[i*s.NR:][:width], dst[i*stride:])
			clear(tile[i*s.NR+width : (i+1)*s.NR])
		}
	}
	s.part(tile, s.NR, panel, x, m, filled(k), sc.bias, part)
	for i := range m {
		copy(dst[i*stride:][:width], tile[i*s.NR:])
	}
}

// part multiplies m rows of x with a panel of k columns. Rows of out begin stride values apart.
func (s *Set) part(out []float32, stride int, panel, x []float32, m, k int, bias []float32, part Part) {
	for from := 0; from < k; from += blockCols {
		cols := min(blockCols, k-from)
		resume, b := 1, (*float32)(nil)
		if from == 0 && part.First {
			resume = 0
		}
		if from+cols == k && part.Last {
			b = &bias[0]
		}
		block := (*uint32)(unsafe.Pointer(&panel[from*s.NR]))
		for at := 0; at < m; {
			i := s.nextTile(m - at)
			s.f32.tiles[i](&out[at*stride], 4*stride, block, &x[at*k+from*s.Tiles[i]], cols, b, resume, block, 0)
			at += s.Tiles[i]
		}
	}
}
