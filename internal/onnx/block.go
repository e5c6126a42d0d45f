package onnx

import "math/bits"

// largestBlock is the largest block of ONNX Runtime's fast kernels, smallestBlock the smallest of
// any.
const largestBlock, smallestBlock = 256, 16

// BlockOf returns the size of the blocks for groups (0: of whole rows) in rows of cols weights: a
// power of two that divides the group. whole: blocks divide the row too; 0 if none do.
func BlockOf(group, cols int64, whole bool) int64 {
	if group >= cols {
		group = 0
	}
	for b := int64(largestBlock); b >= smallestBlock; b /= 2 {
		if group%b == 0 && (cols%b == 0 || !whole && group != 0) {
			return b
		}
	}
	if whole {
		return 0
	}
	// The last block of a row is short.
	return max(smallestBlock, int64(1)<<bits.Len64(uint64(min(cols, largestBlock)-1)))
}
