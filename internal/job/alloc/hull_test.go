package alloc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// fakes makes decisions with random options.
func fakes(r *rand.Rand, n, options int) []*Decision {
	list := make([]*Decision, n)
	for i := range list {
		d := &Decision{}
		for range options {
			d.Options = append(d.Options, Option{Bytes: 64 * int64(1+r.IntN(40))})
		}
		slices.SortFunc(d.Options, func(a, b Option) int { return int(a.Bytes - b.Bytes) })
		for k := range d.Options { // KL falls to about a quarter for each bit, with some disorder
			d.Options[k].KL = math.Exp2(-float64(d.Options[k].Bytes)/200) * (.5 + r.Float64())
		}
		d.hull = lowerHull(d.Options)
		list[i] = d
	}
	return list
}

func TestLowerHull(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		d := fakes(r, 1, 1+r.IntN(9))[0]
		// A point is on the lower hull if no two others, or one, are below it.
		for i, o := range d.Options {
			on := slices.Contains(d.hull, i)
			for _, a := range d.Options {
				for _, b := range d.Options {
					below := a.Bytes <= o.Bytes && a.KL < o.KL && a != o
					if a.Bytes < o.Bytes && o.Bytes < b.Bytes {
						at := a.KL + (b.KL-a.KL)*float64(o.Bytes-a.Bytes)/float64(b.Bytes-a.Bytes)
						below = below || at < o.KL*(1-1e-12)
					}
					if on && below {
						t.Fatalf("option %d %+v is on the hull, above %+v and %+v of %+v", i, o, a, b, d.Options)
					}
				}
			}
		}
		least := slices.MinFunc(d.Options, func(a, b Option) int {
			switch {
			case a.KL < b.KL:
				return -1
			case a.KL > b.KL:
				return 1
			}
			return 0
		})
		if first, last := d.Options[d.hull[0]], d.Options[d.hull[len(d.hull)-1]]; first.Bytes != d.Options[0].Bytes || last.KL != least.KL {
			t.Fatalf("the hull goes from %+v to %+v, options are %+v", first, last, d.Options)
		}
	}
}

// best tries all combinations.
func best(list []*Decision, bytes int64) (kl float64) {
	if len(list) == 0 {
		return 0
	}
	kl = math.Inf(1)
	for _, o := range list[0].Options {
		if o.Bytes <= bytes {
			kl = min(kl, o.KL+best(list[1:], bytes-o.Bytes))
		}
	}
	return kl
}

func TestChooseAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	sum, optimum, exact, n := 0.0, 0.0, 0, 0
	for range 300 {
		list := fakes(r, 1+r.IntN(5), 1+r.IntN(5))
		least := int64(0)
		for _, d := range list {
			least += d.Options[0].Bytes
		}
		if _, ok := choose(list, least-1); ok {
			t.Fatal("less than the least was enough")
		}
		bytes := least + r.Int64N(4000)
		chosen, ok := choose(list, bytes)
		if !ok {
			t.Fatalf("%d bytes are not enough, the least are %d", bytes, least)
		}
		used, kl := int64(0), 0.0
		for i, d := range list {
			used += d.Options[chosen[i]].Bytes
			kl += d.Options[chosen[i]].KL
		}
		want := best(list, bytes)
		if used > bytes || kl < want*(1-1e-12) {
			t.Fatalf("%d of %d bytes, KL %g, the best is %g", used, bytes, kl, want)
		}
		// No further step fits the remaining bytes.
		for i, d := range list {
			for _, o := range d.Options {
				if now := d.Options[chosen[i]]; o.KL < now.KL && o.Bytes-now.Bytes <= bytes-used {
					t.Fatalf("%d bytes left, which %+v could have used", bytes-used, o)
				}
			}
		}
		sum, optimum, n = sum+kl, optimum+want, n+1
		if kl <= want*(1+1e-12) {
			exact++
		}
	}
	// Few decisions are the worst case: one step that does not fit wastes a large share.
	if t.Logf("%d of %d optimal, %.3f of the optimum's KL", exact, n, sum/optimum); exact < n {
		t.Error("a choice among so few decisions is not optimal")
	}
}

func TestChooseAtHullBudgets(t *testing.T) {
	// With exactly the bytes of some greedy steps, greedy is optimal.
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		list := fakes(r, 4, 4)
		chosen, _ := choose(list, 1<<40)
		for i, d := range list {
			if d.Options[chosen[i]].KL != d.Options[d.hull[len(d.hull)-1]].KL {
				t.Fatal("with any number of bytes, a decision has not its best option")
			}
		}
	}
}
