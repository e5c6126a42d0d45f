package vec

// ErrorSum accumulates the quantization error of QuantizeGroups: per lane the sum of squared errors
// and of squared values. The zero value is an empty sum. The result depends on the order of rows,
// so goroutines that share the work keep one sum per row, or per fixed block of rows, and combine
// the sums with Add in a fixed order.
type ErrorSum struct {
	Noise, Signal [Lanes]float64
}

// Add adds o to s, lane by lane.
func (s *ErrorSum) Add(o *ErrorSum) {
	for i := range Lanes {
		s.Noise[i] += o.Noise[i]
		s.Signal[i] += o.Signal[i]
	}
}

// Total returns the sums over all lanes, added in a fixed tree: lane i and i+8, then i and i+4,
// i+2, i+1.
func (s *ErrorSum) Total() (noise, signal float64) {
	return tree(s.Noise), tree(s.Signal)
}

func tree(v [Lanes]float64) float64 {
	for half := Lanes / 2; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}
