package kernels

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Pool runs work on a fixed number of goroutines, the caller's included. It belongs to whoever made it, may serve many
// Workspaces, and takes one piece of work at a time: calls of Run from several goroutines wait for each other.
type Pool struct {
	mu      sync.Mutex
	wake    []chan struct{} // one for each goroutine but the caller's
	waiting sync.WaitGroup

	// The work at hand.
	f     func(worker, part int)
	parts int64
	next  atomic.Int64

	failed atomic.Bool
	cause  any // the first panic's value, if failed
}

// NewPool starts threads-1 goroutines; threads below 1 stands for runtime.GOMAXPROCS(0). Close ends them.
func NewPool(threads int) *Pool {
	threads = cpu.Threads(threads)
	p := &Pool{wake: make([]chan struct{}, threads-1)}
	for i := range p.wake {
		p.wake[i] = make(chan struct{}, 1)
		go p.loop(i+1, p.wake[i])
	}
	return p
}

// Threads is the number of goroutines that work in Run, the caller's included.
func (p *Pool) Threads() int { return len(p.wake) + 1 }

// Close ends the goroutines. The Pool then still runs work, in the caller's goroutine alone.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, wake := range p.wake {
		close(wake)
	}
	p.wake = nil
}

// Run calls f(worker, part) once for each part from 0 to parts-1 and returns when all have returned. The goroutines take
// the parts in order, each the next one as it becomes free; worker, below Threads(), tells them apart. f must not call
// Run of the same Pool.
//
// If a call panics, the parts that were not begun are left out and Run panics with the same value. Reading memory that
// cannot be read (a map of a file that became shorter) is such a panic too, whichever goroutine it meets, as
// debug.SetPanicOnFault describes.
func (p *Pool) Run(parts int, f func(worker, part int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.f, p.parts = f, int64(parts)
	p.next.Store(0)
	helpers := p.wake[:min(len(p.wake), max(parts-1, 0))]
	p.waiting.Add(len(helpers))
	for _, wake := range helpers {
		wake <- struct{}{}
	}
	before := debug.SetPanicOnFault(true)
	p.work(0)
	debug.SetPanicOnFault(before)
	p.waiting.Wait()
	p.f = nil
	if p.failed.Load() {
		cause := p.cause
		p.cause = nil
		p.failed.Store(false)
		panic(cause)
	}
}

// loop is the life of a goroutine.
func (p *Pool) loop(worker int, wake chan struct{}) {
	debug.SetPanicOnFault(true)
	for range wake {
		p.work(worker)
		p.waiting.Done()
	}
}

// work does parts until none is left.
func (p *Pool) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			p.next.Store(p.parts) // whoever is at work stops after its part
			if p.failed.CompareAndSwap(false, true) {
				p.cause = r
			}
		}
	}()
	for {
		part := p.next.Add(1) - 1
		if part >= p.parts {
			return
		}
		p.f(worker, int(part))
	}
}
