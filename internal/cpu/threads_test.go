package cpu

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

func TestThreads(t *testing.T) {
	for n, want := range map[int]int{-1: runtime.GOMAXPROCS(0), 0: runtime.GOMAXPROCS(0), 1: 1, 3: 3} {
		if got := Threads(n); got != want {
			t.Errorf("%d stands for %d, want %d", n, got, want)
		}
	}
}

// TestParallelEnds: a worker's error is returned, and otherwise the Err of a context that ended,
// whatever its cause.
func TestParallelEnds(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct{ own, want error }{{nil, context.Canceled}, {failed, failed}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := Parallel(ctx, 2, 100, func() func(int) error {
			return func(i int) error {
				if i == 7 && c.own == nil {
					cancel(errors.New("a signal"))
				}
				return c.own
			}
		})
		cancel(nil)
		if err != c.want {
			t.Errorf("error %v, want %v", err, c.want)
		}
	}
}
