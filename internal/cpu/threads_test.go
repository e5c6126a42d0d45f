package cpu

import (
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
