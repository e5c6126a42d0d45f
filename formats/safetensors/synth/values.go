package synth

import (
	"encoding/binary"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// gamma and mix are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
// OOPSLA 2014). Number i of the sequence that starts at key is mix(key + (i+1)*gamma), so any part
// of the sequence is directly available.
const gamma = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// tensorKey returns the start of a tensor's sequence.
func tensorKey(seed uint64, name string) uint64 {
	key := mix(seed + gamma)
	for i := range len(name) {
		key = mix(key + uint64(name[i]) + gamma)
	}
	return key
}

const (
	// Each of the four uniform variables has 14 bits, the index of the factor has 8.
	uniformBits = 14
	uniformMask = 1<<uniformBits - 1
	tailLen     = 256
)

// tail holds the heavy-tailed factors, divided by the standard deviation of the sum of the four
// uniform variables, so that the product has mean 0 and variance 1.
var tail = makeTail()

func makeTail() (factors [tailLen]float32) {
	// (1-u)^(-1/4), for u in the middle of each of 256 intervals, is Pareto with index 4.
	var f [tailLen]float64
	square := 0.0
	for i := range f {
		f[i] = 1 / math.Sqrt(math.Sqrt((float64(tailLen-i)-0.5)/tailLen))
		square += float64(f[i] * f[i])
	}
	// The variance of the uniform distribution on 0 .. n-1 is (n^2-1)/12.
	const n = 1 << uniformBits
	scale := math.Sqrt(square/tailLen) * math.Sqrt(4*float64(n*n-1)/12)
	for i := range f {
		factors[i] = float32(f[i] / scale)
	}
	return factors
}

// gain returns the factor of a row, nearly triangular over 0.7 .. 1.3.
func gain(key, row uint64) float64 {
	x := mix(^key + (row+1)*gamma)
	return 0.7 + float64(float64(x>>32+x&math.MaxUint32)*(0.3/(1<<32)))
}

// fill writes the values first, first+1, ... of row row of t to dst, as dtype d.
func (t *Tensor) fill(dst []byte, d packing.Dtype, key uint64, row, first int64) {
	std := float32(t.Std)
	if !t.Vector {
		std = float32(t.Std * gain(key, uint64(row)))
	}
	mean := float32(t.Mean)
	state := key + uint64(row*t.Cols+first)*gamma
	value := func() float32 {
		state += gamma
		x := mix(state)
		sum := x&uniformMask + x>>uniformBits&uniformMask + x>>(2*uniformBits)&uniformMask + x>>(3*uniformBits)&uniformMask
		v := float32(float32(int32(sum)-2*uniformMask) * tail[x>>(4*uniformBits)])
		return mean + float32(v*std)
	}
	switch d {
	case packing.F32:
		for ; len(dst) >= 4; dst = dst[4:] {
			binary.LittleEndian.PutUint32(dst, math.Float32bits(value()))
		}
	case packing.F16:
		for ; len(dst) >= 2; dst = dst[2:] {
			binary.LittleEndian.PutUint16(dst, floats.F16FromF32(value()))
		}
	case packing.BF16:
		for ; len(dst) >= 2; dst = dst[2:] {
			binary.LittleEndian.PutUint16(dst, floats.BF16FromF32(value()))
		}
	}
}
