package floatmm

import (
	"fmt"
	"math"
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
