package cpu

import "runtime"

// Threads is the meaning of an option "threads": n, or as many threads as this program may run at
// once if n is below 1.
func Threads(n int) int {
	if n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}
