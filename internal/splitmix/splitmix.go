// Package splitmix is SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number
// Generators, 2014): the same numbers in every version of Go, unlike math/rand's.
package splitmix

// Source gives random numbers; its value is the seed.
type Source uint64

// Next gives 64 random bits.
func (s *Source) Next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Float is a number from 0 up to, not including, 1: a multiple of 2^-53.
func (s *Source) Float() float64 { return float64(s.Next()>>11) * 0x1p-53 }
