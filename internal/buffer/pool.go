package buffer

import (
	"runtime"
	"unsafe"
)

// Pool keeps slices that their owners need no more, so that large ones are not allocated and paged in
// anew. All of its slices, in use or not, take about as much memory as the slices in use ever took at
// a time. It is not for concurrent use.
type Pool[T any] struct {
	free [][]T
	used int // elements of slices in use
	idle int // elements of free slices
	most int // greatest value of used

	dropped int // bytes of slices that were dropped since the last collection
}

// collectBytes is the size of dropped slices above which Take collects garbage before it allocates: the
// collector alone begins when the new slice is there already. A heap of few large slices is collected in
// about a millisecond.
const collectBytes = 16 << 20

// Take returns n elements, whose content is undefined: of the smallest free slice that has so many,
// unless more than an eighth of them would lie idle. Otherwise it allocates a slice, and drops free
// slices whose room is not left.
func (p *Pool[T]) Take(n int) []T {
	if n == 0 {
		return nil
	}
	best := p.smallest(n)
	if best >= 0 && cap(p.free[best]) <= n+n/8 {
		b := p.remove(best)
		p.use(cap(b))
		return b[:n]
	}
	p.use(n)
	var element T
	for excess := p.used + p.idle - p.most; excess > 0 && p.idle > 0; excess = p.used + p.idle - p.most {
		i := p.smallest(excess)
		if i < 0 {
			i = p.largest()
		}
		p.dropped += cap(p.remove(i)) * int(unsafe.Sizeof(element))
	}
	if p.dropped > collectBytes {
		p.dropped = 0
		runtime.GC()
	}
	return make([]T, n)
}

// Zeros is Take, and the elements are zeros.
func (p *Pool[T]) Zeros(n int) []T {
	b := p.Take(n)
	clear(b)
	return b
}

// Put returns slices of Take, which are not to be used any more. They begin where they began, but may be
// shorter. Nil slices are ignored.
func (p *Pool[T]) Put(slices ...[]T) {
	for _, b := range slices {
		if cap(b) > 0 {
			p.free = append(p.free, b)
			p.used -= cap(b)
			p.idle += cap(b)
		}
	}
}

// MostBytes is the greatest size, in bytes, of the slices that were in use at a time.
func (p *Pool[T]) MostBytes() int64 {
	var element T
	return int64(p.most) * int64(unsafe.Sizeof(element))
}

func (p *Pool[T]) use(n int) {
	p.used += n
	p.most = max(p.most, p.used)
}

// smallest is the index of the smallest free slice with n elements; -1: there is none.
func (p *Pool[T]) smallest(n int) int {
	best := -1
	for i, b := range p.free {
		if cap(b) >= n && (best < 0 || cap(b) < cap(p.free[best])) {
			best = i
		}
	}
	return best
}

func (p *Pool[T]) largest() int {
	best := 0
	for i, b := range p.free {
		if cap(b) > cap(p.free[best]) {
			best = i
		}
	}
	return best
}

func (p *Pool[T]) remove(i int) []T {
	b, last := p.free[i], len(p.free)-1
	p.free[i], p.free[last] = p.free[last], nil
	p.free = p.free[:last]
	p.idle -= cap(b)
	return b
}
