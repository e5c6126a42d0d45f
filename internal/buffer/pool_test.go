package buffer

import "testing"

func TestPool(t *testing.T) {
	var p Pool[float32]
	small, large := p.Take(10), p.Take(100)
	small[0], large[0] = 1, 2
	p.Put(small, nil, large)
	for _, c := range []struct {
		n    int
		from float32 // the slice's mark; 0: a new one
	}{{9, 1}, {95, 2}, {10, 0}} { // those taken are gone
		b := p.Take(c.n)
		if len(b) != c.n || b[0] != c.from {
			t.Errorf("%d values: %d, marked %g, want %g", c.n, len(b), b[0], c.from)
		}
	}
	p = Pool[float32]{}
	large = p.Take(100)
	large[0] = 2
	p.Put(large[:1])
	if b := p.Zeros(95); &b[0] != &large[0] || b[0] != 0 {
		t.Errorf("95 zeros begin with %g, in the slice of 100: %t", b[0], &b[0] == &large[0])
	}
}

// TestPoolBounded takes slices of sizes that change from round to round, as layers of a model do.
func TestPoolBounded(t *testing.T) {
	var p Pool[int8]
	held := func() (n int) {
		for _, b := range p.free {
			n += cap(b)
		}
		return n
	}
	most := 0
	for round := range 50 {
		var taken [][]int8
		n := 0
		for _, size := range []int{1000 + round, 16, 250, 4000 - 7*round, 60, 900} {
			b := p.Take(size)
			taken = append(taken, b)
			n += cap(b)
			if most = max(most, n); n+held() > most {
				t.Fatalf("round %d: %d elements are held, and at most %d were in use", round, n+held(), most)
			}
			if size == 250 {
				p.Put(taken...)
				taken, n = nil, 0
			}
		}
		p.Put(taken...)
	}
	if p.MostBytes() != int64(most) || most > 6000 {
		t.Errorf("%d bytes were in use, want %d, at most 6000", p.MostBytes(), most)
	}
}
