package rounding

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
)

var pointTypes = []gguf.TensorType{iq2XXS, iq2XS, iq2S, iq3XXS, iq3S}

// leastError is the least sum of w (x - code scale)^2 over all points and signs that a type has.
func leastError(kind gguf.TensorType, x, w []float32, scale float32) float64 {
	lattice, even := kind.Lattice(), blockGrids[kind].points.even
	n := len(lattice[0])
	best := [2]float64{0, math.Inf(1)} // with an even and an odd number of negative codes
	for at := 0; at < len(x); at += n {
		own := [2]float64{math.Inf(1), math.Inf(1)}
		for _, point := range lattice {
			e, odd, flip := 0.0, 0, math.Inf(1)
			for i, q := range point {
				size := float64(q) * float64(scale)
				v := float64(x[at+i])
				near, far := (v-size)*(v-size), (v+size)*(v+size)
				if v < 0 {
					near, far, odd = far, near, odd^1
				}
				e += near * float64(w[at+i])
				flip = min(flip, (far-near)*float64(w[at+i]))
			}
			own[odd] = min(own[odd], e)
			own[odd^1] = min(own[odd^1], e+flip)
		}
		if !even {
			own[0], own[1] = min(own[0], own[1]), math.Inf(1)
		}
		best[0], best[1] = min(best[0]+own[0], best[1]+own[1]), min(best[0]+own[1], best[1]+own[0])
	}
	return best[0]
}

// TestPoints compares Round with all points and signs. Weights on points stay.
func TestPoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, kind := range pointTypes {
		p, lattice := blockGrids[kind].points, kind.Lattice()
		n := p.Width
		codes, again := make([]int8, n), make([]int8, n)
		x, w := make([]float32, n), make([]float32, n)
		for trial := range 1500 {
			scale := float32(math.Exp(rng.NormFloat64())) * 0.02 / float32(p.values[1])
			for i := range x {
				x[i], w[i] = float32(rng.NormFloat64()*0.02), float32(math.Exp(2*rng.NormFloat64()))
				if trial%5 == 0 && rng.IntN(3) == 0 {
					w[i] = 0
				}
				if trial%7 == 0 && rng.IntN(3) == 0 {
					x[i] = 0
				}
			}
			p.Round(codes, x, w, scale)
			got, negative := 0.0, 0
			for i, q := range codes {
				e := float64(x[i]) - float64(q)*float64(scale)
				got += e * e * float64(w[i])
				if q < 0 {
					negative++
				}
			}
			for at := 0; at < n; at += p.n {
				sizes := make([]int8, p.n)
				for i := range sizes {
					sizes[i] = max(codes[at+i], -codes[at+i])
				}
				if !slices.ContainsFunc(lattice, func(q []int8) bool { return slices.Equal(q, sizes) }) {
					t.Fatalf("%s: %d are no point", kind, sizes)
				}
			}
			if p.even && negative%2 != 0 {
				t.Fatalf("%s: %d have an odd number of signs", kind, codes)
			}
			if want := leastError(kind, x, w, scale); got > want*(1+1e-4)+1e-12 {
				t.Fatalf("%s: %v with weights %v and scale %g: error %g of %d, the least is %g", kind, x, w, scale, got, codes, want)
			}
			for i, q := range codes {
				x[i], w[i] = float32(float32(q)*scale), 1
			}
			if p.Round(again, x, w, scale); !slices.Equal(codes, again) {
				t.Fatalf("%s: the point %d becomes %d", kind, codes, again)
			}
		}
		// Numbers that are not finite end in some point.
		x[0], x[1] = float32(math.Inf(1)), float32(math.NaN())
		p.Round(codes, x, w, 1)
		if slices.Contains(codes, 0) {
			t.Errorf("%s: %v becomes %d", kind, x, codes)
		}
	}
}

// TestPointSearch: the search loses less than the steps of llama-quantize for a block,
// which fix the stored scale at the greatest group's and round the other groups' once.
func TestPointSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, kind := range pointTypes {
		s, _ := BlockScheme(kind, gqf.AlgorithmSearch)
		b := newBlockRows(s, 256)
		var found, simple float64
		errorOf := func(f *blockFit, x, w []float32) float64 {
			e, _ := b.refinePoints(f, x, w, 0)
			return float64(e)
		}
		for range 40 {
			x, w := make([]float32, 256), make([]float32, 256)
			for i := range x {
				x[i], w[i] = float32(rng.NormFloat64()*0.02), float32(math.Exp(rng.NormFloat64()))
			}
			var f blockFit
			b.searchPoints(&f, x, w)
			found += errorOf(&f, x, w)
			top, scales := float32(0), make([]float32, b.groups)
			for g := range scales {
				best := float32(0)
				for _, step := range b.points.steps {
					one := b.points.fit(b.groupOf(x, g), b.groupOf(w, g), largestOf(b.groupOf(x, g))/step)
					if score := one.product * one.product / one.curve; score > best {
						best, scales[g] = score, one.product/one.curve
					}
				}
				top = max(top, scales[g])
			}
			f = blockFit{}
			f.d, _ = b.storeScale(top / 31)
			for g, v := range scales {
				f.set(g, b.nearestSub(v, f.d), 0)
			}
			simple += errorOf(&f, x, w)
		}
		t.Logf("%s: error %.5g, %.4g of the simple steps'", kind, found, found/simple)
		if found > 0.995*simple {
			t.Errorf("%s: error %g, the simple steps have %g", kind, found, simple)
		}
	}
}

func largestOf(x []float32) float32 {
	i := largest(x)
	return max(x[i], -x[i])
}
