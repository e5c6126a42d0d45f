package measure

import (
	"bytes"
	"math"
	"slices"
	"unsafe"

	"github.com/lowbit-go/gq/accuracy"
)

// errorSums adds up the errors of a matrix. Rows are added in order, and blocks of rows are merged
// in order, so that the sums depend on the matrix alone.
type errorSums struct {
	signal, noise float64 // sums of squares of the weights and of their errors
	dot, stored   float64 // sums of weight times stored weight, and of stored weights squared
	largest       float64 // the largest error
	at            [2]int64
	saturated     int64 // codes at an end of the range
	zeros, lost   int64 // groups stored as zeros, and those with other weights
	magnitudes    [256]int64
}

// octaves counts errors by the exponent of their float32, in four tables because an increment of a
// single table would have to wait for the previous increment.
type octaves [4][256]uint32

// row adds row r from column c on: weights x, stored as y. counts has the errors until flush.
func (s *errorSums) row(counts *octaves, r, c int64, x, y []float32) {
	y = y[:len(x)]
	var signal, noise, dot, stored [4]float64
	largest, at := s.largest, -1
	for k := range x {
		i := k & 3
		w, v := float64(x[k]), float64(y[k])
		d := w - v
		signal[i] += float64(w * w)
		noise[i] += float64(d * d)
		dot[i] += float64(w * v)
		stored[i] += float64(v * v)
		if d = math.Abs(d); d > largest {
			largest, at = d, k
		}
		counts[i][uint8(math.Float32bits(float32(d))>>23)]++
	}
	s.signal += sumLanes(signal)
	s.noise += sumLanes(noise)
	s.dot += sumLanes(dot)
	s.stored += sumLanes(stored)
	if at >= 0 {
		s.largest, s.at = largest, [2]int64{r, c + int64(at)}
	}
}

func (s *errorSums) flush(counts *octaves) {
	for e := range s.magnitudes {
		s.magnitudes[e] += int64(counts[0][e]) + int64(counts[1][e]) + int64(counts[2][e]) + int64(counts[3][e])
	}
	*counts = octaves{}
}

// sumLanes adds four lanes in a fixed tree.
func sumLanes(v [4]float64) float64 { return (v[0] + v[2]) + (v[1] + v[3]) }

func (s *errorSums) codes(q []int8, width int) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
	lowest := int8(-1 << (width - 1))
	for _, end := range []int8{lowest, -lowest - 1} {
		s.saturated += int64(bytes.Count(b, []byte{byte(end)}))
	}
}

// groups counts the groups that are stored as zeros.
func (s *errorSums) groups(x, y []float32, group int) {
	for len(y) > 0 {
		n := min(group, len(y))
		if y[0] == 0 && allZero(y[:n]) {
			s.zeros++
			if !allZero(x[:n]) {
				s.lost++
			}
		}
		x, y = x[n:], y[n:]
	}
}

func allZero(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return v != 0 })
}

// add adds the sums of the rows that follow.
func (s *errorSums) add(o *errorSums) {
	s.signal += o.signal
	s.noise += o.noise
	s.dot += o.dot
	s.stored += o.stored
	if o.largest > s.largest {
		s.largest, s.at = o.largest, o.at
	}
	s.saturated += o.saturated
	s.zeros += o.zeros
	s.lost += o.lost
	for e, n := range o.magnitudes {
		s.magnitudes[e] += n
	}
}

func (s *errorSums) histogram() accuracy.ErrorHistogram {
	h := accuracy.ErrorHistogram{None: s.magnitudes[0]}
	first, last := 0, 0
	for e := 1; e < len(s.magnitudes); e++ {
		if s.magnitudes[e] != 0 {
			if first == 0 {
				first = e
			}
			last = e
		}
	}
	if first != 0 {
		h.First = first - 127
		h.Counts = append(h.Counts, s.magnitudes[first:last+1]...)
	}
	return h
}

// signalSums are sums of squares of a signal and of deviations from the signal.
type signalSums struct{ signal, noise, dot, other float64 }

func (s *signalSums) add(signal, other []float32) {
	for i, v := range signal {
		a, b := float64(v), float64(other[i])
		d := a - b
		s.signal += float64(a * a)
		s.noise += float64(d * d)
		s.dot += float64(a * b)
		s.other += float64(b * b)
	}
}

func (s *signalSums) merge(o *signalSums) {
	s.signal += o.signal
	s.noise += o.noise
	s.dot += o.dot
	s.other += o.other
}

func (s *signalSums) ratio() accuracy.Decibels { return accuracy.Ratio(s.signal, s.noise) }

// cosineOf is the cosine of the angle between two vectors, from their dot product and sums of
// squares: 1 if both vectors are zero, and 0 if only a single vector is.
func cosineOf(dot, a, b float64) float64 {
	switch {
	case a == 0 && b == 0:
		return 1
	case a == 0 || b == 0:
		return 0
	}
	// Rounding may take the quotient of equal vectors slightly above 1.
	return max(-1, min(dot/float64(math.Sqrt(a)*math.Sqrt(b)), 1))
}
