//go:build purego || !amd64

package vec

func decodeNibbles(dst []float32, src []byte) { decodeNibblesGeneric(dst, src) }

func decodeBytes(dst []float32, src []byte) { decodeBytesGeneric(dst, src) }
