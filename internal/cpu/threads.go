package cpu

import "runtime"

// Threads is what an option "threads" stands for: n, or below 1 as many as this program may run at
// once.
func Threads(n int) int {
	if n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}
