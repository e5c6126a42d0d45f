package buffer

import "testing"

func TestFloats(t *testing.T) {
	var f Floats
	small, large := f.Take(10), f.Take(100)
	small[0], large[0] = 1, 2
	f.Put(small, nil, large)
	for _, c := range []struct {
		n    int
		from float32 // the slice's mark; 0: a new one
	}{{8, 1}, {60, 2}, {10, 0}, {60, 0}} { // those taken are gone
		b := f.Take(c.n)
		if len(b) != c.n || b[0] != c.from {
			t.Errorf("%d values: %d, marked %g, want %g", c.n, len(b), b[0], c.from)
		}
	}
	f.Put(small, large)
	if b := f.Take(24); &b[0] == &large[0] || len(f.free) != 1 || &f.free[0][0] != &large[0] {
		t.Errorf("24 values took the slice of 100, or the one of 10 was kept beside a new one: %d are left", len(f.free))
	}
	f.Put(large[:1])
	if b := f.Zeros(50); &b[0] != &large[0] || b[0] != 0 {
		t.Errorf("a slice of 50 zeros begins with %g", b[0])
	}
}
