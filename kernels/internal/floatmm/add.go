package floatmm

import (
	"fmt"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
)

// Operand is a matrix in row-major order whose rows begin Stride values apart, or the transpose of
// such a matrix.
type Operand struct {
	Data       []float32
	Stride     int
	Transposed bool
}

// Holds reports whether an operand has rows x cols elements.
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

// AddPanel adds the products of x and panel p of y, an operand of k rows and n columns, to dst: to
// columns p*NR and following, whose rows begin stride values apart. x are m packed rows, cut into
// chunks of chunk rows that were packed each by itself. A sum goes on from its value in dst.
func (s *Set) AddPanel(sc *Scratch, dst []float32, stride int, x []float32, m, chunk int, y Operand, k, n, p int, last bool) {
	at, size := p*s.NR, filled(k)
	width := min(s.NR, n-at)
	if m < 1 || k < 1 || width < 1 || len(x) != m*size || !y.Holds(k, n) || len(dst) < (m-1)*stride+n {
		panic(fmt.Sprintf("floatmm: panel %d of %d x %d values with %d rows of %d packed values to %d", p, k, n, m, len(x), len(dst)))
	}
	panel := buffer.Grow(&sc.matrix, s.NR*size)
	y = y.Part(0, at)
	if y.Transposed {
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&panel[0])), len(panel))
		for i := 0; i < s.NR; i += blockRows {
			have := max(0, min(blockRows, width-i))
			s.fillFloats(words, i, y.Data[min(i, width-1)*y.Stride:], have, y.Stride, k)
		}
	} else {
		s.fillColumns(panel, y.Data, y.Stride, 0, k, width, true)
	}
	for from := 0; from < m; from += chunk {
		rows := min(chunk, m-from)
		s.matrixPanel(sc, dst[from*stride+at:], stride, x[from*size:][:rows*size], rows, panel, k, width, Part{Last: last})
	}
}
