package cpu

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls the function that newWorker returns for each i in 0 to n-1, in order, from up to
// threads goroutines. Each goroutine has a function of its own. The first error ends the work.
func Parallel(ctx context.Context, threads, n int, newWorker func() func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(1, min(threads, n)) {
		wg.Go(func() {
			work := newWorker()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Threads is the meaning of an option "threads": n, or GOMAXPROCS if n is below 1.
func Threads(n int) int {
	if n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}
