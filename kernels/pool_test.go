package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPool(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := NewPool(threads)
		if p.Threads() != threads {
			t.Errorf("%d threads, want %d", p.Threads(), threads)
		}
		for _, parts := range []int{0, 1, 2, 3, 100} {
			done := make([]atomic.Int32, parts)
			p.Run(parts, func(worker, part int) {
				if worker < 0 || worker >= threads {
					t.Errorf("worker %d of %d", worker, threads)
				}
				done[part].Add(1)
			})
			for i := range done {
				if n := done[i].Load(); n != 1 {
					t.Errorf("%d threads: part %d of %d ran %d times", threads, i, parts, n)
				}
			}
		}
		p.Close()
		p.Run(3, func(worker, _ int) {
			if worker != 0 {
				t.Error("a goroutine works after Close")
			}
		})
	}
	p := NewPool(0)
	defer p.Close()
	if p.Threads() != runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads by default, want %d", p.Threads(), runtime.GOMAXPROCS(0))
	}
}

// TestPoolWorksTogether has parts that wait for each other: all goroutines are at work.
func TestPoolWorksTogether(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var all sync.WaitGroup
	all.Add(3)
	p.Run(3, func(int, int) {
		all.Done()
		all.Wait()
	})
}

// TestPoolPanic wants the value of a panic in any goroutine back in the caller, and the Pool to
// work on.
func TestPoolPanic(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	cause := new(int)
	for culprit := range 4 {
		func() {
			defer func() {
				if r := recover(); r != cause {
					t.Errorf("recovered %v, want what part %d panicked with", r, culprit)
				}
			}()
			p.Run(50, func(_, part int) {
				if part == culprit {
					panic(cause)
				}
				time.Sleep(10 * time.Microsecond)
			})
			t.Error("Run returned")
		}()
	}
	var n atomic.Int32
	p.Run(10, func(int, int) { n.Add(1) })
	if n.Load() != 10 {
		t.Errorf("%d of 10 parts after panics", n.Load())
	}
}

func TestPoolManyCallers(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	var n atomic.Int32
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				p.Run(7, func(int, int) { n.Add(1) })
			}
		})
	}
	callers.Wait()
	if n.Load() != 4*50*7 {
		t.Errorf("%d parts, want %d", n.Load(), 4*50*7)
	}
}

func TestPoolDoesNotAllocate(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	f := func(int, int) {}
	if n := testing.AllocsPerRun(20, func() { p.Run(8, f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPoolDoesNotWaitForAbsentHelper has a goroutine that gets no CPU at first: Run returns without
// it, and the next Run finds it at work.
func TestPoolDoesNotWaitForAbsentHelper(t *testing.T) {
	for _, state := range []int32{awake, asleep} {
		h := &helper{wake: make(chan struct{}, 1)}
		h.state.Store(state)
		p := &Pool{helpers: []*helper{h}}
		for range 3 {
			n := 0
			p.Run(10, func(worker, _ int) {
				if worker != 0 {
					t.Errorf("worker %d", worker)
				}
				n++
			})
			if n != 10 {
				t.Fatalf("%d parts of 10", n)
			}
		}
		go p.loop(1, h)
		for range 3 {
			var both sync.WaitGroup
			both.Add(2)
			p.Run(2, func(int, int) {
				both.Done()
				both.Wait()
			})
		}
		p.Close()
	}
}
