package floatmm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
)

// blockCols is the number of columns of a panel that are multiplied with all rows of x before the
// next columns: a multiple of 4, so few that the columns stay in the first-level cache. The next
// columns are prefetched meanwhile. Otherwise a product of 8 to 16 rows would alternately wait for
// memory and for arithmetic: 145 GFLOP/s instead of 243 (16 rows, AVX-512 on an EPYC, Zen 5).
const blockCols = 256

// Mul computes the columns of dst, [m][rows] row-major, for panels first to last-1, from m rows of
// x packed by PackX. The rest of dst is unchanged.
func (w *Weights) Mul(sc *Scratch, dst, x []float32, m, first, last int) {
	checkMul(dst, x, m, w.rows, w.cols, first, last, w.Panels())
	if m == 0 {
		return
	}
	s, k, size := w.set, filled(w.cols), w.panelWords()
	kernels := w.kernels()
	p := first
	if m == 1 && kernels.group != nil {
		for ; p+s.Group <= last && (p+s.Group)*s.NR <= w.rows; p += s.Group {
			kernels.group(&dst[p*s.NR], &w.words[p*size], 4*size, &x[0], k, &w.bias[p*s.NR])
		}
	}
	for ; p < last; p++ {
		n := p * s.NR
		s.panel(sc, kernels, dst[n:], w.rows, min(s.NR, w.rows-n), w.words[p*size:(p+1)*size], w.words[(p+1)*size:], x, m, k, 0, w.bias[n:])
	}
}

// MulRows is Mul with weights from src, for panels first to last-1 of src.Panels(s).
func (s *Set) MulRows(sc *Scratch, dst, x []float32, m int, src *Source, first, last int) {
	if src.Rows <= 0 || src.Cols <= 0 || src.Bias != nil && len(src.Bias) != src.Rows {
		panic(fmt.Sprintf("floatmm: %d x %d weights with %d biases", src.Rows, src.Cols, len(src.Bias)))
	}
	checkMul(dst, x, m, src.Rows, src.Cols, first, last, src.Panels(s))
	switch {
	case m == 0:
		return
	case src.BF16 != nil:
		s.mulBF16(sc, dst, x, m, src, first, last)
		return
	}
	cols, k := src.Cols, filled(src.Cols)
	buffer.Grow(&sc.rows, blockRows*cols)
	buffer.Grow(&sc.bias, s.NR)
	if len(sc.panel) < k*s.NR {
		sc.panel = aligned(k * s.NR)
	}
	panel := sc.panel[:k*s.NR]
	for p := first; p < last; p++ {
		row := p * s.NR
		n := min(s.NR, src.Rows-row)
		for at := 0; at < s.NR; at += blockRows {
			have := max(0, min(blockRows, n-at))
			for i := range have {
				src.Read(sc.rows[i*cols:(i+1)*cols:(i+1)*cols], row+at+i)
			}
			s.fillFloats(panel, at, sc.rows, have, cols, cols)
		}
		clear(sc.bias)
		if src.Bias != nil {
			copy(sc.bias, src.Bias[row:row+n])
		}
		s.panel(sc, &s.f32, dst[row:], src.Rows, n, panel, nil, x, m, k, 0, sc.bias)
	}
}

// panel multiplies m rows of x with a panel of n rows; row i of out begins stride values after row
// i-1. after holds the data that will be multiplied next, if known. The sums start at the values in
// out if resume is not 0. If bias is nil, the sums are written unchanged, see tileKernel.
func (s *Set) panel(sc *Scratch, kernels *kernels, out []float32, stride, n int, panel, after []uint32, x []float32, m, k, resume int, bias []float32) {
	if n < s.NR {
		s.lastPanel(sc, kernels, out, stride, n, panel, x, m, k, resume, bias)
		return
	}
	words := len(panel) / k // words of a column
	for from := 0; from < k; from += blockCols {
		cols, b := min(blockCols, k-from), unsafe.SliceData(bias)
		block, next := panel[from*words:(from+cols)*words], after
		if from+cols < k {
			b, next = nil, panel[(from+cols)*words:]
		}
		for at := 0; at < m; {
			i := s.nextTile(m - at)
			ahead, step := &block[0], 0
			if len(next) > 0 {
				ahead, step = &next[0], 8*words // half of the bytes that a step reads
			}
			kernels.tiles[i](&out[at*stride], 4*stride, &block[0], &x[at*k+from*s.Tiles[i]], cols, b, resume|from, ahead, step)
			// The first tile prefetches half of the next block, the second the other half.
			if half := len(block) / 2; at == 0 && half < len(next) {
				next = next[half:]
			} else {
				next = nil
			}
			at += s.Tiles[i]
		}
	}
}

// lastPanel is panel for n < NR, by way of scratch, because kernels write whole panels.
func (s *Set) lastPanel(sc *Scratch, kernels *kernels, out []float32, stride, n int, panel []uint32, x []float32, m, k, resume int, bias []float32) {
	tile := buffer.Grow(&sc.tile, s.Tiles[0]*s.NR)
	for at := 0; at < m; {
		i := s.nextTile(m - at)
		for j := 0; resume != 0 && j < s.Tiles[i]; j++ {
			clear(tile[j*s.NR+copy(tile[j*s.NR:][:n], out[(at+j)*stride:]) : (j+1)*s.NR])
		}
		kernels.tiles[i](&tile[0], 4*s.NR, &panel[0], &x[at*k], k, unsafe.SliceData(bias), resume, &panel[0], 0)
		for j := range s.Tiles[i] {
			copy(out[(at+j)*stride:][:n], tile[j*s.NR:])
		}
		at += s.Tiles[i]
	}
}

func checkMul(dst, x []float32, m, rows, cols, first, last, panels int) {
	if m < 0 || len(dst) != m*rows || len(x) != m*filled(cols) || first < 0 || last > panels {
		panic(fmt.Sprintf("floatmm: panels %d to %d of %d: %d x %d weights with %d rows of %d packed activations to %d values",
			first, last, panels, rows, cols, m, len(x), len(dst)))
	}
}

// Operand is a row-major matrix, or the transpose of such a matrix. Rows begin Stride values apart.
type Operand struct {
	Data       []float32
	Stride     int
	Transposed bool
}

func (o Operand) Holds(rows, cols int) bool {
	if o.Transposed {
		rows, cols = cols, rows
	}
	return o.Stride >= cols && len(o.Data) >= (rows-1)*o.Stride+cols
}

// Part is the operand without its first rows and columns.
func (o Operand) Part(row, col int) Operand {
	if o.Transposed {
		row, col = col, row
	}
	o.Data = o.Data[row*o.Stride+col:]
	return o
}

// PackOperand packs rows from to to-1 of x, an operand of m rows and k columns, as PackX does.
func (s *Set) PackOperand(dst []float32, x Operand, m, k, from, to int) {
	if x.Transposed {
		s.PackTransposed(dst, x.Data, x.Stride, m, k, from, to)
	} else {
		s.PackColumns(dst, x.Data, x.Stride, m, k, from, to)
	}
}

// AddPanel adds the products of x and panel p of y, an operand of k rows and n columns, to columns
// p*NR and following of dst, with rows stride values apart. x are m packed rows, cut into
// separately packed chunks of chunk rows. A sum goes on from its value in dst. If last is set, any
// NaN is written as 0x7fc00000.
func (s *Set) AddPanel(sc *Scratch, dst []float32, stride int, x []float32, m, chunk int, y Operand, k, n, p int, last bool) {
	at, size := p*s.NR, filled(k)
	width := min(s.NR, n-at)
	if m < 1 || k < 1 || width < 1 || len(x) != m*size || !y.Holds(k, n) || len(dst) < (m-1)*stride+n {
		panic(fmt.Sprintf("floatmm: panel %d of %d x %d values with %d rows of %d packed values to %d", p, k, n, m, len(x), len(dst)))
	}
	if len(sc.panel) < s.NR*size {
		sc.panel = aligned(s.NR * size)
	}
	panel := sc.panel[:s.NR*size]
	y = y.Part(0, at)
	if y.Transposed {
		for i := 0; i < s.NR; i += blockRows {
			have := max(0, min(blockRows, width-i))
			s.fillFloats(panel, i, y.Data[min(i, width-1)*y.Stride:], have, y.Stride, k)
		}
	} else {
		s.fillColumns(unsafe.Slice((*float32)(unsafe.Pointer(&panel[0])), len(panel)), y.Data, y.Stride, k, width)
	}
	var bias []float32
	if last {
		bias = buffer.Grow(&sc.bias, s.NR)
		clear(bias)
	}
	for from := 0; from < m; from += chunk {
		rows := min(chunk, m-from)
		s.panel(sc, &s.f32, dst[from*stride+at:], stride, width, panel, nil, x[from*size:][:rows*size], rows, size, 1, bias)
	}
}

// fillColumns copies width columns of a matrix of k rows to a panel and pads the panel.
func (s *Set) fillColumns(panel, w []float32, stride, k, width int) {
	none := math.Float32frombits(noWeight)
	for r := range k {
		row := panel[r*s.NR:][:s.NR]
		for i := copy(row, w[r*stride:][:width]); i < s.NR; i++ {
			row[i] = none
		}
	}
	for i := k * s.NR; i < len(panel); i++ {
		panel[i] = none
	}
}
