package kleidiai

import "math"

// putSums stores the sums.
func (f *frame) putSums(dst []byte, p *panel) {
	sum := uint32(0)
	for i := range f.nr {
		if i < p.codeRows {
			sum = f.sum(p.codes[i*f.cols:][:f.cols], p.scales[min(i, p.rows-1)*f.groups:][:f.groups])
		} else if f.padding&zeroCodes != 0 {
			sum = 0
		}
		put32(dst, 4*i, sum)
	}
}

// sum is the sum of a row as it is stored: of the codes times sumFactor, or in
// float32 of 32 columns at a time times their scale, in order.
func (f *frame) sum(codes []byte, scales []float32) uint32 {
	switch {
	case f.floatSums:
		return math.Float32bits(blockSum(codes, scales))
	case f.bits == 2 && f.lut != [4]int32{-2, -1, 0, 1}:
		sum := int32(0)
		for _, q := range codes {
			sum += f.lut[q&3^2]
		}
		return uint32(sum)
	case f.bits == 8:
		return uint32(sumBytes(codes) * f.sumFactor)
	}
	return uint32(sumShort(codes, f.bits) * f.sumFactor)
}

// blockSum is the float32 sum of SumBlocks. The groups are multiples of 32
// columns of 4 bits.
func blockSum(codes []byte, scales []float32) float32 {
	sum, group := float32(0), len(codes)/len(scales)
	for g, scale := range scales {
		for k := g * group; k < (g+1)*group; k += 32 {
			sum += float32(float32(sumShort(codes[k:][:32], 4)) * scale)
		}
	}
	return sum
}

const evenBytes = 0x00ff00ff00ff00ff

// sumBytes adds up signed bytes, a multiple of 32 of them: plus 128 each, in
// pairs, of which a word holds 4. 1024 bytes of a row make pairs that fit 16
// bits.
func sumBytes(codes []byte) int32 {
	sum := int32(-128 * len(codes))
	for len(codes) > 0 {
		part := codes[:min(len(codes), 1024)]
		codes = codes[len(part):]
		pairs := uint64(0)
		for k := 0; k < len(part); k += 32 {
			x := (*[32]byte)(part[k:])
			a, b := get64(x[:], 0)^0x80*ones, get64(x[:], 8)^0x80*ones
			c, d := get64(x[:], 16)^0x80*ones, get64(x[:], 24)^0x80*ones
			pairs += a&evenBytes + a>>8&evenBytes + b&evenBytes + b>>8&evenBytes
			pairs += c&evenBytes + c>>8&evenBytes + d&evenBytes + d>>8&evenBytes
		}
		sum += sumPairs(pairs)
	}
	return sum
}

// sumShort adds up codes of 4 bits or less, a multiple of 32 of them: plus
// 2^(bits-1) each, which makes at most 15, so that 16 fit a byte.
func sumShort(codes []byte, bits int) int32 {
	mask, half := uint64(ones)<<bits-ones, uint64(ones)<<(bits-1)
	sum := int32(-len(codes) << (bits - 1))
	for len(codes) > 0 {
		part := codes[:min(len(codes), 128)]
		codes = codes[len(part):]
		acc := uint64(0)
		for k := 0; k < len(part); k += 32 {
			x := (*[32]byte)(part[k:])
			acc += get64(x[:], 0)&mask ^ half
			acc += get64(x[:], 8)&mask ^ half
			acc += get64(x[:], 16)&mask ^ half
			acc += get64(x[:], 24)&mask ^ half
		}
		sum += sumPairs(acc&evenBytes + acc>>8&evenBytes)
	}
	return sum
}

// sumPairs adds up four numbers of 16 bits.
func sumPairs(pairs uint64) int32 {
	pairs = pairs&0xffff0000ffff + pairs>>16&0xffff0000ffff
	return int32(uint32(pairs) + uint32(pairs>>32))
}
