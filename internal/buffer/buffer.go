// Package buffer reuses slices, and shows numbers as bytes.
package buffer

import (
	"runtime"
	"unsafe"
)

// Grow makes *b n long, with undefined content, and allocates only if the capacity is smaller.
func Grow[T any](b *[]T, n int) []T {
	if cap(*b) < n {
		*b = make([]T, n)
	}
	*b = (*b)[:n]
	return *b
}

// Pool recycles slices, so that large slices are not allocated and paged in again. Its slices take
// about as much memory as was ever in use at a time. A Pool is not for concurrent use.
type Pool[T any] struct {
	free [][]T
	used int // elements of slices in use
	idle int // elements of free slices
	most int // greatest value of used

	dropped int // bytes of slices that were dropped since the last collection
}

// collectBytes is the size of dropped slices above which Take collects garbage before allocating,
// not after. A heap of few large slices is collected in about a millisecond.
const collectBytes = 16 << 20

// Take returns n elements with undefined content: of the smallest free slice with room, unless over
// an eighth would lie idle, or else of a new slice. Then it drops free slices without room left.
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

// Put returns slices of Take. The caller must not use the slices afterwards. Slices begin where
// Take's began, but may be shorter. Nil slices are ignored.
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

// Bytes returns the memory of numbers as bytes, in the machine's byte order.
func Bytes[T int8 | float32](list []T) []byte {
	var element T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(element)))
}
