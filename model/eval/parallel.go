package eval

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallel calls the function that newWorker returns for each i in 0 to n-1, in order, from up to
// workers goroutines. Each goroutine has a function of its own. The first error ends the work.
func parallel(ctx context.Context, n, workers int, newWorker func() func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(1, min(workers, n)) {
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
