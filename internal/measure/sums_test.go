package measure

import (
	"math"
	"slices"
	"testing"
)

// TestSums checks errors of known size.
func TestSums(t *testing.T) {
	inf := float32(math.Inf(1))
	tests := []struct {
		name        string
		x, y        []float32
		group       int
		signal      float64
		noise       float64
		largest     float64
		at          int64
		zeros, lost int64
	}{
		{"equal", []float32{1, -2, 3}, []float32{1, -2, 3}, 2, 14, 0, 0, 0, 0, 0},
		{"one error", []float32{1, 2, 3, 4, 5}, []float32{1, 2, 3, 4, 4.5}, 5, 55, 0.25, 0.5, 4, 0, 0},
		{"the first of two", []float32{0, 1, 1, 1}, []float32{0, 2, 0, 1}, 4, 3, 2, 1, 1, 0, 0},
		{"zero groups", []float32{0, 0, 1, 0, 0, 5, 0}, []float32{0, 0, 0, 0, 0, 5, 0}, 2, 26, 1, 1, 2, 3, 1},
		{"nothing left", []float32{3, 4}, []float32{0, 0}, 2, 25, 25, 4, 1, 1, 1},
	}
	for _, tt := range tests {
		var s errorSums
		var counts octaves
		s.row(&counts, 7, 0, tt.x, tt.y)
		s.flush(&counts)
		s.groups(tt.x, tt.y, tt.group)
		if s.signal != tt.signal || s.noise != tt.noise || s.largest != tt.largest || s.zeros != tt.zeros || s.lost != tt.lost {
			t.Errorf("%s: %+v", tt.name, s)
		}
		if tt.largest != 0 && s.at != [2]int64{7, tt.at} {
			t.Errorf("%s: largest error at %v", tt.name, s.at)
		}
	}
	var s errorSums
	for width := 1; width <= 8; width++ {
		s.saturated = 0
		lo := int8(-1 << (width - 1))
		if s.codes([]int8{lo, 0, -lo - 1, lo, lo / 2}, width); width > 2 && s.saturated != 3 {
			t.Errorf("%d bits: %d codes saturated", width, s.saturated)
		}
	}
	var counts octaves
	s = errorSums{}
	s.row(&counts, 0, 0, []float32{1, 1, 1, 1, inf}, []float32{1, 0.5, 0.75, 0, 0})
	s.flush(&counts)
	h := s.histogram()
	if want := []int64{1, 1, 1}; h.None != 1 || h.First != -2 || !slices.Equal(h.Counts[:3], want) {
		t.Errorf("histogram %+v", h)
	}
}

func TestCosine(t *testing.T) {
	for _, tt := range []struct{ dot, a, b, want float64 }{{0, 0, 0, 1}, {0, 1, 0, 0}, {-4, 4, 4, -1}, {1, 1, 4, 0.5}} {
		if got := cosineOf(tt.dot, tt.a, tt.b); got != tt.want {
			t.Errorf("cosine of %v is %v", tt, got)
		}
	}
}
