package generate

// random is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, 2014), which will be the same in every version of Go.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float is a number from 0 up to, not including, 1: a multiple of 2^-53.
func (r *random) float() float64 { return float64(r.next()>>11) * 0x1p-53 }
