package testshared

import (
	"os"
	"runtime/debug"
)

// Tests allocate much and keep little. A larger share of garbage costs them a few megabytes, and
// saves a tenth of their time. GOGC overrides the share, and tests that measure memory set another.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
