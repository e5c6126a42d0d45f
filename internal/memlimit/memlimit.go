// Package memlimit sets a soft memory limit for a program that streams the data of its jobs, and
// raises or lifts the limit for jobs that hold more.
//
// A limit from elsewhere stays: the package changes nothing in a program that never calls Set, or
// in an environment with GOMEMLIMIT.
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
	growth  int      // the collector's percentage before the first Raise
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

// Available is the memory that a job may take: GOMEMLIMIT, or the machine's memory; 0 if unknown.
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
// raised, unless GOGC is set. Such jobs hold few, large arrays without pointers: collections take
// no time, and Go's default would double the memory.
const raisedGrowth = 25

// Lift removes the limit until restore is called: for a job that needs more memory than the limit,
// the garbage collector would otherwise run all the time.
func Lift() (restore func()) { return Raise(math.MaxInt64) }

// Raise raises the limit to the given bytes, the memory that a job takes, until restore is called.
// Garbage and freed memory then add nothing. The limits of simultaneous jobs add up.
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
