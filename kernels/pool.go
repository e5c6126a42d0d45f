package kernels

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Pool runs work on a fixed number of goroutines, including the caller's. Its maker closes it. It
// may serve many Workspaces and runs one piece of work at a time: concurrent calls of Run wait for
// each other.
type Pool struct {
	mu      sync.Mutex
	wake    []chan struct{} // one for each goroutine except the caller's
	waiting sync.WaitGroup

	// The current work.
	f     func(worker, part int)
	parts int64
	next  atomic.Int64

	failed atomic.Bool
	cause  any // value of the first panic, if failed
}

// NewPool starts threads-1 goroutines; threads below 1 means runtime.GOMAXPROCS(0). Close ends
// them.
func NewPool(threads int) *Pool {
	threads = cpu.Threads(threads)
	p := &Pool{wake: make([]chan struct{}, threads-1)}
	for i := range p.wake {
		p.wake[i] = make(chan struct{}, 1)
		go p.loop(i+1, p.wake[i])
	}
	return p
}

// Threads is the number of goroutines that work in Run, including the caller's.
func (p *Pool) Threads() int { return len(p.wake) + 1 }

// Close ends the goroutines. The Pool can still run work, in the caller's goroutine only.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, wake := range p.wake {
		close(wake)
	}
	p.wake = nil
}

// Run calls f(worker, part) once for each part in 0 .. parts-1 and returns when all calls have
// returned. Goroutines take parts in order, each taking the next one when it becomes free; worker,
// below Threads(), identifies the goroutine. f must not call Run of the same Pool.
//
// If a call panics, Run skips the parts that have not begun and panics with the same value. This
// includes faults in memory that cannot be read, such as a map of a file that became shorter, in
// any goroutine; see debug.SetPanicOnFault.
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

// loop runs in each goroutine of the Pool.
func (p *Pool) loop(worker int, wake chan struct{}) {
	debug.SetPanicOnFault(true)
	for range wake {
		p.work(worker)
		p.waiting.Done()
	}
}

// work runs parts until none are left.
func (p *Pool) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			p.next.Store(p.parts) // the other goroutines stop after their current part
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
