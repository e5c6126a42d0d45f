package eval

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// serial returns one number per token for windows of size tokens. The windows' levels have the
// correlation phi with the level of the window before.
func serial(seed uint64, windows, size int, phi float64) (list []text.Window, v []float64) {
	random := detmath.Source(seed)
	normal := func() float64 {
		sum := -6.0
		for range 12 {
			sum += random.Float()
		}
		return sum
	}
	level := normal()
	for range windows {
		for range size {
			v = append(v, level+normal())
		}
		list = append(list, text.Window{Tokens: make([]int32, size+1), First: 1})
		list[len(list)-1].Tokens[0] = 1 // BOS
		level = float64(phi*level) + float64(math.Sqrt(1-float64(phi*phi))*normal())
	}
	return list, v
}

// TestClusterErrors compares the standard error with the spread of the means of independent texts.
func TestClusterErrors(t *testing.T) {
	testshared.SlowEmulated(t, "it tests a formula, which is the same natively")
	const texts = 300
	for _, tt := range []struct {
		name        string
		windows     int
		phi         float64
		least, most float64 // the spread divided by the standard error
	}{
		{"independent windows", 64, 0, .85, 1.1},
		{"a few independent windows", 10, 0, .75, 1.1},
		{"neighbours alike", 128, .6, .85, 1.25},
		{"long topics", 128, .9, .85, 1.5},
	} {
		mean, squares, stated, old := 0.0, 0.0, 0.0, 0.0
		for i := range texts {
			windows, v := serial(uint64(i+1), tt.windows, 8, tt.phi)
			c := clustersOf(windows, v)
			sizes := make([]int, tt.windows)
			for k := range sizes {
				sizes[k] = 8
			}
			_, sums := clusterSums(v, sizes)
			old += math.Pow(float64(stdErrOf(sums, float64(len(v)), false)), 2)
			m, e := meanOf(v, c.sizes(func(i int) int { return windows[i].Scored() }))
			stated += float64(e) * float64(e)
			d := m - mean
			mean += d / float64(i+1)
			squares += d * (m - mean)
		}
		spread := math.Sqrt(squares / (texts - 1))
		ratio := spread / math.Sqrt(stated/texts)
		t.Logf("%s: spread %.4g, %.2f times the standard error, %.2f times with windows as clusters", tt.name, spread, ratio, spread/math.Sqrt(old/texts))
		if ratio < tt.least || ratio > tt.most {
			t.Errorf("%s: the spread is %.3f times the standard error, want %g to %g", tt.name, ratio, tt.least, tt.most)
		}
	}
}

func TestClusters(t *testing.T) {
	page := func(id, windows int32) (list []text.Window) {
		list = append(list, text.Window{Tokens: []int32{1, 10 * id, 10*id + 1}, First: 1})
		for i := range windows - 1 {
			list = append(list, text.Window{Tokens: []int32{10*id + i, 10*id + i + 1, 10*id + i + 2}, First: 2})
		}
		return list
	}
	pages := func(n int) (list []text.Window) {
		for id := range int32(n) {
			list = append(list, page(id+1, 1+id%3)...)
		}
		return list
	}
	plain, v := serial(1, 33, 4, .95)
	rising := make([]float64, 33*4)
	for i := range rising {
		rising[i] = float64(i)
	}
	for _, tt := range []struct {
		name    string
		windows []text.Window
		v       []float64
		want    string
	}{
		{"no window", nil, nil, "0 windows"},
		{"one window", plain[:1], v[:4], "1 windows"},
		{"pages over windows", pages(9), make([]float64, 9+9), "9 documents of up to 3 windows"},
		{"too few pages", pages(7), make([]float64, 7+6), "13 windows"},
		{"blocks", plain, v, "9 blocks of up to 4 windows"},
		{"no fewer than eight blocks", plain, rising, "9 blocks of up to 4 windows"},
		{"constant", plain, make([]float64, 33*4), "33 windows"},
	} {
		v := tt.v
		c := clustersOf(tt.windows, v)
		if got := c.String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
