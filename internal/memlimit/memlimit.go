// Package memlimit sets a soft memory limit for a program whose jobs only stream, and lifts it for
// the jobs that hold more than they stream.
//
// It acts on a limit of its own only: a program that never calls Set, or an environment with
// GOMEMLIMIT, keeps what it has.
package memlimit

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

var (
	mu     sync.Mutex
	limit  int64 // what Set was told; 0: nothing
	lifted int   // jobs that run without the limit
)

// Set limits the memory of the program to so many bytes, unless GOMEMLIMIT is set. The garbage
// collector works harder near the limit.
func Set(bytes int64) {
	mu.Lock()
	defer mu.Unlock()
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit = bytes
	debug.SetMemoryLimit(bytes)
}

// Lift takes the limit away until restore is called: a job that needs more memory than the limit
// would otherwise have the garbage collector run all the time.
func Lift() (restore func()) {
	mu.Lock()
	defer mu.Unlock()
	if limit == 0 {
		return func() {}
	}
	lifted++
	debug.SetMemoryLimit(math.MaxInt64)
	return sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		if lifted--; lifted == 0 {
			debug.SetMemoryLimit(limit)
		}
	})
}
