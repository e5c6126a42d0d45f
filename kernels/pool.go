package kernels

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/internal/cpu"
)

// Pool runs work on a fixed number of goroutines, including the caller's. Its maker closes it. It
// may serve many Workspaces and runs one piece of work at a time: concurrent calls of Run wait for
// each other.
//
// A goroutine looks for work for a short time before it sleeps: a pass of one token calls Run a
// hundred times, and Go's scheduler takes some 50 microseconds to wake a goroutine on another CPU,
// in which two CPUs read 2 MB of weights. Run does not wait for goroutines that have taken no part,
// so that a goroutine that gets no CPU delays nobody.
type Pool struct {
	mu      sync.Mutex
	helpers []*helper // the goroutines except the caller's
	look    time.Duration
	working atomic.Int64   // helpers that Run has called and that have not finished
	waiting sync.WaitGroup // likewise

	// The current work.
	f     func(worker, part int)
	parts int64
	next  atomic.Int64

	failed atomic.Bool
	cause  any // value of the first panic, if failed
}

// lookTime is how long a goroutine looks for work before it sleeps. The time between two products of
// a pass of one token is shorter.
const lookTime = 40 * time.Microsecond

// helper is a goroutine of a Pool.
type helper struct {
	state atomic.Int32  // one of the states below
	wake  chan struct{} // ends the helper's sleep; closed by Close
	_     [64]byte      // keeps goroutines out of each other's cache lines
}

// The states of a helper.
const (
	awake   = iota // looks for work
	asleep         // waits for wake
	called         // there is work; the helper may still be asleep, but there is a value in wake
	working        // takes parts
)

// NewPool starts threads-1 goroutines; threads below 1 means runtime.GOMAXPROCS(0). Close ends
// them.
func NewPool(threads int) *Pool {
	threads = cpu.Threads(threads)
	p := &Pool{helpers: make([]*helper, threads-1)}
	if threads <= runtime.GOMAXPROCS(0) { // else a goroutine that looks for work keeps others from working
		p.look = lookTime
	}
	for i := range p.helpers {
		p.helpers[i] = &helper{wake: make(chan struct{}, 1)}
		go p.loop(i+1, p.helpers[i])
	}
	return p
}

// Threads is the number of goroutines that work in Run, including the caller's.
func (p *Pool) Threads() int { return len(p.helpers) + 1 }

// Close ends the goroutines. The Pool can still run work, in the caller's goroutine only.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.helpers {
		close(h.wake)
	}
	p.helpers = nil
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
	helpers := p.helpers[:min(len(p.helpers), max(parts-1, 0))]
	p.working.Store(int64(len(helpers)))
	p.waiting.Add(len(helpers))
	for _, h := range helpers {
		if h.state.Swap(called) == asleep {
			h.wake <- struct{}{}
		}
	}
	before := debug.SetPanicOnFault(true)
	p.work(0)
	debug.SetPanicOnFault(before)
	for _, h := range helpers {
		if h.state.CompareAndSwap(called, awake) { // it has taken no part, and none is left
			p.finish()
		}
	}
	p.until(func() bool { return p.working.Load() == 0 })
	p.waiting.Wait()
	p.f = nil
	if p.failed.Load() {
		cause := p.cause
		p.cause = nil
		p.failed.Store(false)
		panic(cause)
	}
}

// finish counts a helper that takes no more parts.
func (p *Pool) finish() {
	p.waiting.Done()
	p.working.Add(-1)
}

// until waits until done reports true, for p.look at most. It returns the last report.
func (p *Pool) until(done func() bool) bool {
	if done() {
		return true
	}
	for start := time.Now(); time.Since(start) < p.look; {
		if done() {
			return true
		}
	}
	return false
}

// loop runs in each goroutine of the Pool.
func (p *Pool) loop(worker int, h *helper) {
	debug.SetPanicOnFault(true)
	isCalled := func() bool { return h.state.Load() == called }
	for {
		if !p.until(isCalled) && h.state.CompareAndSwap(awake, asleep) {
			if _, open := <-h.wake; !open {
				return
			}
		}
		if h.state.CompareAndSwap(called, working) {
			p.work(worker)
			h.state.Store(awake)
			p.finish()
		}
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
