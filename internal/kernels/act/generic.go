package act

// Portable loops over columns: they define the results that tests compare the assembly with.

// quantizeAwayGeneric sets q[i] to x[i]*factor rounded to an integer, ties away from zero, plus
// zero, cut to int8. Each block of columns has its own factor. The products are below 2^22 in
// magnitude.
//
// Adding 1/2 and truncating would be wrong for 0.49999997, the largest float32 below 1/2: the sum
// rounds to 1.
func quantizeAwayGeneric(q []int8, x, factors []float32, block int, zero int32) {
	for g, factor := range factors {
		from, to := g*block, min((g+1)*block, len(x))
		codes := q[from:to]
		for i, v := range x[from:to] {
			v = float32(v * factor)
			r := int32(v)
			switch rest := v - float32(r); { // exact
			case rest >= 0.5:
				r++
			case rest <= -0.5:
				r--
			}
			codes[i] = int8(max(-128, min(r+zero, 127)))
		}
	}
}

// roundMagic is 1.5 * 2^23. Adding roundMagic to a float32 below 2^22 in magnitude leaves no bits
// for a fraction: the addition rounds to the nearest integer, ties to even. Subtracting roundMagic
// again is exact.
const roundMagic float32 = 0x1.8p23

// quantizeEvenGeneric sets q[i] to x[i]*factor rounded to an integer, ties to even, cut to int8.
// Each block of columns has its own factor. The products are below 2^22 in magnitude.
func quantizeEvenGeneric(q []int8, x, factors []float32, block int) {
	for g, factor := range factors {
		from, to := g*block, min((g+1)*block, len(x))
		codes := q[from:to]
		for i, v := range x[from:to] {
			r := int32(float32(float32(v*factor)+roundMagic) - roundMagic)
			codes[i] = int8(max(-128, min(r, 127)))
		}
	}
}

// groupSumsGeneric is GroupSums for a positive number of groups.
func groupSumsGeneric(dst []int32, q []int8, group int) {
	for g := range dst {
		run := q
		if g < len(dst)-1 {
			run = q[:group]
		}
		q = q[len(run):]
		sum := int32(0)
		for _, v := range run {
			sum += int32(v)
		}
		dst[g] = sum
	}
}
