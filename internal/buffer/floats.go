package buffer

// Floats keeps slices that their owners need no more, so that large ones are not allocated and paged
// in anew. It is not for concurrent use.
type Floats struct{ free [][]float32 }

// Take returns n values, whose content is undefined: of the smallest slice that has so many, unless
// it has more than four times as many. If there is none, it drops a slice and allocates one.
func (f *Floats) Take(n int) []float32 {
	best, least := -1, -1
	for i, b := range f.free {
		if cap(b) >= n && cap(b) <= 4*n && (best < 0 || cap(b) < cap(f.free[best])) {
			best = i
		}
		if cap(b) < n && (least < 0 || cap(b) < cap(f.free[least])) {
			least = i
		}
	}
	if best < 0 {
		if least >= 0 {
			f.remove(least)
		}
		return make([]float32, n)
	}
	return f.remove(best)[:n]
}

// Zeros is Take, and the values are 0.
func (f *Floats) Zeros(n int) []float32 {
	b := f.Take(n)
	clear(b)
	return b
}

// Put returns slices, which are not to be used any more. Nil slices are ignored.
func (f *Floats) Put(slices ...[]float32) {
	for _, b := range slices {
		if cap(b) > 0 {
			f.free = append(f.free, b)
		}
	}
}

func (f *Floats) remove(i int) []float32 {
	b, last := f.free[i], len(f.free)-1
	f.free[i], f.free[last] = f.free[last], nil
	f.free = f.free[:last]
	return b
}
