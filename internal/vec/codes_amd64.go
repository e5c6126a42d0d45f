//go:build !purego

package vec

func decodeNibbles(dst []float32, src []byte) {
	if !assembled() || len(dst) == 0 {
		decodeNibblesGeneric(dst, src)
		return
	}
	decodeNibblesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}

func decodeBytes(dst []float32, src []byte) {
	if !assembled() || len(dst) == 0 {
		decodeBytesGeneric(dst, src)
		return
	}
	decodeBytesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}
