// Package memlimit sets a soft memory limit for a program whose jobs stream their data, and raises or
// lifts it for jobs that hold more.
//
// It only changes a limit that it has set: a program that never calls Set, or an environment with
// GOMEMLIMIT, keeps its own limit.
package memlimit

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"sync"
)

var (
	mu      sync.Mutex
	limit   int64    // the argument of Set; 0: none
	outside int64    // memory that the collector does not see, see Outside
	raised  []*int64 // limits of running jobs, see Raise
	growth  int      // the collector's percentage before the first of them
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
	if limit == 0 {
		return
	}
	sum := int64(0)
	for _, n := range raised {
		sum += min(*n, math.MaxInt64-sum)
	}
	most := max(limit, sum)
	if most < math.MaxInt64 {
		most = max(most-outside, least)
	}
	debug.SetMemoryLimit(most)
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

// raisedGrowth is the percentage by which the heap may grow between collections while a limit is
// raised, unless GOGC is set. Such jobs hold few, large arrays without pointers: collections take no
// time, and Go's default would double the memory.
const raisedGrowth = 25

// Lift removes the limit until restore is called: for a job that needs more memory than the limit,
// the garbage collector would otherwise run all the time.
func Lift() (restore func()) { return Raise(math.MaxInt64) }

// Raise raises the limit to the given bytes, the memory that a job takes, until restore is called.
// Garbage and freed memory then add nothing to them. The limits of several jobs that
// run at a time add up.
func Raise(bytes int64) (restore func()) {
	mu.Lock()
	defer mu.Unlock()
	if limit == 0 {
		return func() {}
	}
	own := &bytes
	raised = append(raised, own)
	apply()
	if len(raised) == 1 && os.Getenv("GOGC") == "" {
		growth = debug.SetGCPercent(raisedGrowth)
	}
	return sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		raised = slices.DeleteFunc(raised, func(n *int64) bool { return n == own })
		apply()
		if len(raised) == 0 && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(growth)
		}
	})
}
