package kleidiai

// sum is the sum of a row's codes as it is stored, multiplied by sumFactor.
func (f *frame) sum(codes []byte) int32 {
	if f.bits == 8 {
		return sumBytes(codes) * f.sumFactor
	}
	return sumShort(codes, f.bits) * f.sumFactor
}

const evenBytes = 0x00ff00ff00ff00ff

// sumBytes adds a multiple of 32 signed bytes. It adds 128 to each byte and sums pairs in 16-bit
// lanes, four to a word; 1024 bytes fit these lanes.
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

// sumShort adds a multiple of 32 codes of at most 4 bits. It adds 2^(bits-1) to each code; the
// results are at most 15, so the sum of 16 fits a byte.
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

// sumPairs adds four numbers of 16 bits.
func sumPairs(pairs uint64) int32 {
	pairs = pairs&0xffff0000ffff + pairs>>16&0xffff0000ffff
	return int32(uint32(pairs) + uint32(pairs>>32))
}
