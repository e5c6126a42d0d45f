//go:build !purego && (amd64 || arm64)

package ggml

// The tables of the assembly: the codes of each point, the first in the lowest byte.
var (
	latticeIQ2XXS [256]uint64
	latticeIQ2XS  [512]uint64
	latticeIQ2S   [1024]uint64
	latticeIQ1    [2048]uint64
	latticeIQ3XXS [256]uint32
	latticeIQ3S   [512]uint32
	evenSigns     [128]uint64 // -1 for the negative signs: their number is even
)

func init() {
	putPoints(latticeIQ2XXS[:], "IQ2_XXS")
	putPoints(latticeIQ2XS[:], "IQ2_XS")
	putPoints(latticeIQ2S[:], "IQ2_S")
	putPoints(latticeIQ1[:], "IQ1_S")
	putPoints(latticeIQ3XXS[:], "IQ3_XXS")
	putPoints(latticeIQ3S[:], "IQ3_S")
	for i := range evenSigns {
		last := 0
		for k := range 7 {
			negative := i >> k & 1
			last ^= negative
			evenSigns[i] |= uint64(255*negative) << (8 * k)
		}
		evenSigns[i] |= uint64(255*last) << 56
	}
}

func putPoints[T uint32 | uint64](table []T, name string) {
	for i, point := range typeOf(name).Lattice() {
		for k, code := range point {
			table[i] |= T(uint8(code)) << (8 * k)
		}
	}
}
