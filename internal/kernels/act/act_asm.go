//go:build (amd64 || arm64) && !purego

package act

// The assembly (kernels_amd64.go, kernels_arm64.go) needs positive counts, blocks of a multiple of
// 32 columns and groups of a multiple of 16. The functions here cut calls into such pieces; the
// portable code does the rest.

func quantizeAway(q []int8, x, factors []float32, block int, zero int32) {
	blocks, part := cut(len(x), block)
	if blocks > 0 {
		quantizeAwayBlocks(&q[0], &x[0], &factors[0], blocks, block, zero)
		q, x, factors = q[blocks*block:], x[blocks*block:], factors[blocks:]
	}
	if part > 0 {
		quantizeAwayBlocks(&q[0], &x[0], &factors[0], 1, part, zero)
		q, x = q[part:], x[part:]
	}
	quantizeAwayGeneric(q, x, factors, block, zero)
}

func quantizeEven(q []int8, x, factors []float32, block int) {
	blocks, part := cut(len(x), block)
	if blocks > 0 {
		quantizeEvenBlocks(&q[0], &x[0], &factors[0], blocks, block)
		q, x, factors = q[blocks*block:], x[blocks*block:], factors[blocks:]
	}
	if part > 0 {
		quantizeEvenBlocks(&q[0], &x[0], &factors[0], 1, part)
		q, x = q[part:], x[part:]
	}
	quantizeEvenGeneric(q, x, factors, block)
}

// cut returns the number of whole blocks of n columns for the assembly, and the number of columns
// of the block after them. Only the last block may be cut.
func cut(n, block int) (blocks, part int) {
	switch {
	case !accelerated.Chosen() || n == 0:
		return 0, 0
	case block%32 == 0:
		return n / block, n % block &^ 31
	case n <= block:
		return 0, n &^ 31
	}
	return 0, 0
}

func groupSums(dst []int32, q []int8, group int) {
	if !accelerated.Chosen() || group%16 != 0 && len(dst) > 1 {
		groupSumsGeneric(dst, q, group)
		return
	}
	last := len(dst) - 1 // the last group takes all remaining columns
	if last > 0 {
		groupSumsBlocks(&dst[0], &q[0], last, group)
		dst, q = dst[last:], q[last*group:]
	}
	whole := len(q) &^ 15
	groupSumsGeneric(dst, q[whole:], group)
	if whole > 0 {
		var sum int32
		groupSumsBlocks(&sum, &q[0], 1, whole)
		dst[0] += sum
	}
}
