package accuracy

import (
	"bytes"
	"math"
	"unsafe"
)

// errorSums adds up the errors of a matrix. Rows are added in order, and blocks of rows are merged
// in order, so that the sums depend on the matrix alone.
type errorSums struct {
	signal, noise float64 // sums of squares of the weights and of their errors
	dot, stored   float64 // sums of weight times stored weight, and of stored weights squared
	largest       float64 // the largest error
	at            [2]int64
	saturated     int64 // codes at an end of the range
	zeros, lost   int64 // groups stored as zeros, and those whose weights are not all zero
	magnitudes    [256]int64
}

// octaves counts errors by the exponent of their float32. There are four tables because an
// increment of one table would have to wait for the previous one.
type octaves [4][256]uint32

// row adds row r from column c on: weights x, stored as y. It counts errors in counts until flush.
func (s *errorSums) row(counts *octaves, r, c int64, x, y []float32) {
	y = y[:len(x)]
	var signal, noise, dot, stored [4]float64
	largest, at := s.largest, -1
	for k := 0; k+4 <= len(x); k += 4 {
		x4, y4 := (*[4]float32)(x[k:]), (*[4]float32)(y[k:])
		for i := range 4 {
			w, v := float64(x4[i]), float64(y4[i])
			d := w - v
			signal[i] += float64(w * w)
			noise[i] += float64(d * d)
			dot[i] += float64(w * v)
			stored[i] += float64(v * v)
			if d = math.Abs(d); d > largest {
				largest, at = d, k+i
			}
			counts[i][uint8(math.Float32bits(float32(d))>>23)]++
		}
	}
	for k := len(x) &^ 3; k < len(x); k++ {
		i := k % 4
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

// flush adds the counts of row.
func (s *errorSums) flush(counts *octaves) {
	for e := range s.magnitudes {
		s.magnitudes[e] += int64(counts[0][e]) + int64(counts[1][e]) + int64(counts[2][e]) + int64(counts[3][e])
	}
	*counts = octaves{}
}

// sumLanes adds four lanes in a fixed tree.
func sumLanes(v [4]float64) float64 { return (v[0] + v[2]) + (v[1] + v[3]) }

// codes counts codes at the ends of their range.
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
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
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

// ErrorHistogram counts weights by the magnitude of their error, in octaves.
type ErrorHistogram struct {
	// None is the number of weights without an error, or with an error below 2^-126.
	None int64 `json:"none"`
	// Counts[i] is the number of errors in [2^(First+i), 2^(First+i+1)). Its first and last counts
	// are not 0.
	First  int     `json:"first_exponent"`
	Counts []int64 `json:"counts,omitempty"`
}

func (s *errorSums) histogram() ErrorHistogram {
	h := ErrorHistogram{None: s.magnitudes[0]}
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

// signalSums are sums of squares of a signal and of the deviations from it.
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

func (s *signalSums) ratio() Decibels { return ratioOf(s.signal, s.noise) }
