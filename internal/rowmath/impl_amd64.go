//go:build !purego

package rowmath

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	Sets.Register(cpu.AVX2, &Set{mulAdd, softmax, gate, exp})
	Sets.Register(cpu.AVX512, &Set{mulAdd512, softmax512, gate512, exp})
}

// mulAdd512 takes tiles of 4 x 32, 8 x 16 or 3 x 16 outputs, and then the rows and columns beside
// them. Heads that share keys are often 3.
func mulAdd512(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int) {
	rows, columns := m&^7, n&^15
	switch {
	case m == 3:
		rows = 3
	case n >= 32:
		rows, columns = m&^3, n&^31
	}
	if rows == 0 || columns == 0 || k == 0 || min(dstStride, aStride, bStride) < 0 {
		mulAdd(dst, dstStride, a, aStride, b, bStride, m, k, n)
		return
	}
	// All accesses below stay within these elements.
	_, _, _ = dst[(m-1)*dstStride+n-1], a[(m-1)*aStride+k-1], b[(k-1)*bStride+n-1]
	switch {
	case m == 3:
		for j := 0; j < columns; j += 16 {
			tile3x16(&dst[j], 4*dstStride, &a[0], 4*aStride, &b[j], 4*bStride, k)
		}
	case n >= 32:
		for i := 0; i < rows; i += 4 {
			for j := 0; j < columns; j += 32 {
				tile4x32(&dst[i*dstStride+j], 4*dstStride, &a[i*aStride], 4*aStride, &b[j], 4*bStride, k)
			}
		}
	default:
		for i := 0; i < rows; i += 8 {
			tile8x16(&dst[i*dstStride], 4*dstStride, &a[i*aStride], 4*aStride, &b[0], 4*bStride, k)
		}
	}
	if columns < n {
		mulAdd512(dst[columns:], dstStride, a, aStride, b[columns:], bStride, rows, k, n-columns)
	}
	if rows < m {
		mulAdd(dst[rows*dstStride:], dstStride, a[rows*aStride:], aStride, b, bStride, m-rows, k, n)
	}
}

func softmax512(x []float32) {
	var lanes [8]float64
	highest, n := highestOf(x), len(x)&^7
	if n > 0 {
		expSumBlock512(&x[0], n, highest, &lanes[0], &constants[0])
	}
	divide(x, highest, &lanes)
}

func gate512(gate, up []float32, linear, cubic float64) {
	up = up[:len(gate)]
	n := len(gate) &^ 7
	if n > 0 {
		gateBlock512(&gate[0], &up[0], n, linear, cubic, &constants[0])
	}
	gateGeneric(gate[n:], up[n:], linear, cubic)
}
