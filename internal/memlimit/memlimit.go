// Package memlimit sets a soft memory limit for a program whose jobs stream their data, and lifts
// it for jobs that hold more.
//
// It only changes a limit that it has set: a program that never calls Set, or an environment with
// GOMEMLIMIT, keeps its own limit.
package memlimit

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sync"
)

var (
	mu      sync.Mutex
	limit   int64 // the argument of Set; 0: none
	outside int64 // memory that the collector does not see, see Outside
	lifted  int   // number of jobs that run without the limit
	growth  int   // the collector's percentage before Lift
)

// Set limits the program's memory to the given bytes, unless GOMEMLIMIT is set. The garbage
// collector works harder near the limit.
func Set(bytes int64) {
	mu.Lock()
	defer mu.Unlock()
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit = bytes
	apply()
}

// least is the limit that Outside leaves: the collector would never rest below it.
const least = 32 << 20

// apply tells the collector its limit.
func apply() {
	if limit != 0 && lifted == 0 {
		debug.SetMemoryLimit(max(limit-outside, least))
	}
}

// Outside lowers the limit by the given bytes until restore is called: for private memory that the
// garbage collector does not know, such as a map without a file.
func Outside(bytes int64) (restore func()) {
	mu.Lock()
	defer mu.Unlock()
	outside += bytes
	apply()
	return sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		outside -= bytes
		apply()
	})
}

// Available is the memory that a job may take: the limit of GOMEMLIMIT, or the memory of the
// machine; 0 if it is not known.
func Available() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		if n := debug.SetMemoryLimit(-1); n < math.MaxInt64 {
			return n
		}
	}
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kilobytes int64
	if n, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kilobytes); n != 1 || err != nil {
		return 0
	}
	return kilobytes << 10
}

// liftedGrowth is the percentage by which the heap may grow between collections while the limit is
// lifted, unless GOGC is set. Such jobs hold few, large arrays without pointers: collections take no
// time, and Go's default would double the memory.
const liftedGrowth = 25

// Lift removes the limit until restore is called: for a job that needs more memory than the limit,
// the garbage collector would otherwise run all the time.
func Lift() (restore func()) {
	mu.Lock()
	defer mu.Unlock()
	if limit == 0 {
		return func() {}
	}
	if lifted++; lifted == 1 {
		debug.SetMemoryLimit(math.MaxInt64)
		if os.Getenv("GOGC") == "" {
			growth = debug.SetGCPercent(liftedGrowth)
		}
	}
	return sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		if lifted--; lifted == 0 {
			apply()
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(growth)
			}
		}
	})
}
