package cmdline

import (
	"math"
	"os"
	"runtime/debug"
)

// LiftMemoryLimit takes away the limit that main sets for jobs that only stream, for those that hold more: the garbage
// collector would work all the time to keep what cannot be kept. A limit of the environment's stays.
func LiftMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(math.MaxInt64)
	}
}
