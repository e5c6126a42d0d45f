//go:build (amd64 || arm64) && !purego

package rowmath

import "math"

// mulAdd divides a product into the assembly's tiles; portable code computes the other columns.
func mulAdd(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int) {
	if m == 0 || k == 0 || n == 0 {
		return
	}
	// All accesses below stay within these elements.
	_, _, _ = dst[(m-1)*dstStride+n-1], a[(m-1)*aStride+k-1], b[(k-1)*bStride+n-1]
	if m > 1 && (dstStride < 0 || aStride < 0) || k > 1 && bStride < 0 {
		panic("rowmath: a negative stride")
	}
	i := 0
	for ; i+4 <= m; i += 4 {
		j := 0
		for ; j+16 <= n; j += 16 {
			tile4x16(&dst[i*dstStride+j], 4*dstStride, &a[i*aStride], 4*aStride, &b[j], 4*bStride, k)
		}
		if j+8 <= n {
			tile4x8(&dst[i*dstStride+j], 4*dstStride, &a[i*aStride], 4*aStride, &b[j], 4*bStride, k)
		}
	}
	for ; i < m; i++ {
		j := 0
		for ; j+64 <= n; j += 64 {
			tile1x64(&dst[i*dstStride+j], 0, &a[i*aStride], 0, &b[j], 4*bStride, k)
		}
		for ; j+16 <= n; j += 16 {
			tile1x16(&dst[i*dstStride+j], 0, &a[i*aStride], 0, &b[j], 4*bStride, k)
		}
		if j+8 <= n {
			tile1x8(&dst[i*dstStride+j], 0, &a[i*aStride], 0, &b[j], 4*bStride, k)
		}
	}
	if j := n &^ 7; j < n {
		mulAddGeneric(dst[j:], dstStride, a, aStride, b[j:], bStride, m, k, n-j)
	}
}

// The assembly takes multiples of 8 values; the portable code takes the rest.

func softmax(x []float32) {
	var lanes [8]float64
	highest, n := highestOf(x), len(x)&^7
	if n > 0 {
		expSumBlock(&x[0], n, highest, &lanes[0], &constants[0])
	}
	divide(x, highest, &lanes)
}

func highestOf(x []float32) float32 {
	highest, n := float32(math.Inf(-1)), len(x)&^7
	if n > 0 {
		highest = highestBlock(&x[0], n)
	}
	return highestGeneric(x[n:], highest)
}

// divide completes a softmax. lanes has the sums of the exponentials that are in x already, whole
// blocks of 8.
func divide(x []float32, highest float32, lanes *[8]float64) {
	n := len(x) &^ 7
	expSumGeneric(x[n:], highest, lanes)
	factor := float32(1 / sum8(lanes))
	if n > 0 {
		scaleBlock(&x[0], n, factor)
	}
	scaleGeneric(x[n:], factor)
}

func gate(gate, up []float32, linear, cubic float64) {
	up = up[:len(gate)]
	n := len(gate) &^ 7
	if n > 0 {
		gateBlock(&gate[0], &up[0], n, linear, cubic, &constants[0])
	}
	gateGeneric(gate[n:], up[n:], linear, cubic)
}

func exp(dst []float64, x []float32, highest float32) {
	x = x[:len(dst)]
	n := len(x) &^ 7
	if n > 0 {
		expBlock(&dst[0], &x[0], n, highest, &constants[0])
	}
	expGeneric(dst[n:], x[n:], highest)
}
