//go:build purego || !(amd64 || arm64)

package act

func quantizeAway(q []int8, x, factors []float32, block int, zero int32) {
	quantizeAwayGeneric(q, x, factors, block, zero)
}

func quantizeEven(q []int8, x, factors []float32, block int) {
	quantizeEvenGeneric(q, x, factors, block)
}

func groupSums(dst []int32, q []int8, group int) { groupSumsGeneric(dst, q, group) }
