package vec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// The portable implementation. It defines the results; tests compare the assembly with this code.

// expMask is the exponent field of a float32: infinities and NaNs have |bits| at or above expMask.
const expMask = 0x7f800000

func widenBF16Generic(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func widenF16Generic(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = floats.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func groupRangeGeneric(lo, hi, x []float32, group int) (finite bool) {
	var top uint32
	for g := range lo {
		run := x[:min(group, len(x))]
		x = x[len(run):]
		var low, high float32
		for _, v := range run {
			top = max(top, math.Float32bits(v)&^(1<<31))
			if v < low { // comparisons, not min: -0 < +0 is false, so a zero here is always +0
				low = v
			}
			if v > high {
				high = v
			}
		}
		lo[g], hi[g] = low, high
	}
	return top < expMask
}

func leastMagnitudesGeneric(least []uint32, x []float32, group int) {
	for len(least) > 0 {
		run := x[:min(group, len(x))]
		x = x[len(run):]
		m := [LeastLanes]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		for i, v := range run {
			m[i%LeastLanes] = min(m[i%LeastLanes], math.Float32bits(v)<<1-1)
		}
		least = least[copy(least, m[:]):]
	}
}

// roundMagic is 1.5 * 2^23. Adding roundMagic to a float32 below 2^22 in magnitude leaves no bits
// for a fraction: the addition rounds to the nearest integer, ties to even. Subtracting roundMagic
// again is exact.
const roundMagic float32 = 0x1.8p23

func quantizeGroupsGeneric(q []int8, x, scale, inv []float32, zero []int8, fraction []float32, group, qmin, qmax int, acc *ErrorSum) {
	for g := range scale {
		n := min(group, len(x))
		z := 0
		if zero != nil {
			z = int(zero[g])
		}
		var f float32
		if fraction != nil {
			f = fraction[g]
		}
		quantizeRun(q[:n], x[:n], scale[g], inv[g], f, z, qmin, qmax, acc)
		q, x = q[n:], x[n:]
	}
}

func quantizeRun(q []int8, x []float32, scale, inv, fraction float32, z, qmin, qmax int, acc *ErrorSum) {
	lo, hi := float32(qmin-z), float32(qmax-z)
	for len(x) > 0 {
		n := min(len(x), flushEvery)
		var noise, signal [Lanes]float32
		for i, v := range x[:n] {
			r := nearest(float32(v*inv)+fraction, lo, hi)
			q[i] = int8(int(r) + z)
			e := v - float32((r-fraction)*scale)
			noise[i%Lanes] += float32(e * e)
			signal[i%Lanes] += float32(v * v)
		}
		for i := range Lanes {
			acc.Noise[i] += float64(noise[i])
			acc.Signal[i] += float64(signal[i])
		}
		q, x = q[n:], x[n:]
	}
}

const (
	codeBlock   = 32              // codes of a block
	nibbleBytes = 2 + codeBlock/2 // bytes of a block of DecodeNibbles
	byteBytes   = 2 + codeBlock   // bytes of a block of DecodeBytes
	decodedNaN  = 0x7fc00000      // bits of the weights of a block without a finite scale
)

// DecodeNibbles decodes blocks of 32 codes of 4 bits: an F16 scale d and 16 bytes v, little-endian.
// The weights of a block are float32(d*(v&15 - 8)) of each byte, then float32(d*(v>>4 - 8)) of each
// byte, or the NaN 0x7fc00000 if d is not finite.
func DecodeNibbles(dst []float32, src []byte) {
	checkBlocks(dst, src, nibbleBytes)
	if !onX86() || len(dst) == 0 {
		decodeNibblesGeneric(dst, src)
		return
	}
	decodeNibblesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}

// DecodeBytes decodes blocks of 32 codes of 8 bits: an F16 scale d and the codes q. The weights are
// float32(d*q), or NaN as in DecodeNibbles.
func DecodeBytes(dst []float32, src []byte) {
	checkBlocks(dst, src, byteBytes)
	if !onX86() || len(dst) == 0 {
		decodeBytesGeneric(dst, src)
		return
	}
	decodeBytesBlock(&dst[0], &src[0], len(dst)/codeBlock)
}

func checkBlocks(dst []float32, src []byte, size int) {
	if len(dst)%codeBlock != 0 || len(src) != len(dst)/codeBlock*size {
		panic(fmt.Sprintf("vec: %d weights of %d bytes in blocks of %d", len(dst), len(src), size))
	}
}

func decodeNibblesGeneric(dst []float32, src []byte) {
	for ; len(src) >= nibbleBytes; dst, src = dst[codeBlock:], src[nibbleBytes:] {
		d := blockScale(src)
		var weights [16]float32 // looking up takes half the time
		for i := range weights {
			weights[i] = float32(d * float32(i-8))
		}
		low, high := dst[:16], dst[16:32]
		for i, v := range src[2:18] {
			low[i], high[i] = weights[v&15], weights[v>>4]
		}
	}
}

func decodeBytesGeneric(dst []float32, src []byte) {
	for ; len(src) >= byteBytes; dst, src = dst[codeBlock:], src[byteBytes:] {
		d, out := blockScale(src), dst[:codeBlock]
		for i, v := range src[2:34] {
			out[i] = float32(d * float32(int8(v)))
		}
	}
}

func blockScale(src []byte) float32 {
	return floats.FiniteOrNaN(floats.F16ToF32(binary.LittleEndian.Uint16(src)))
}
