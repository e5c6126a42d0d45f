package memlimit

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
)

// TestOutside nests the functions that change the limit.
func TestOutside(t *testing.T) {
	if os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("the environment has a limit")
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer func() { limit = 0 }()
	want := func(n int64) {
		t.Helper()
		if got := debug.SetMemoryLimit(-1); got != n {
			t.Errorf("the limit is %d, want %d", got, n)
		}
	}
	before := debug.SetMemoryLimit(-1)
	first := Outside(10 << 20)
	want(before) // a program without a limit has none
	Set(200 << 20)
	want(190 << 20)
	second := Outside(50 << 20)
	want(140 << 20)
	lift := Lift()
	want(math.MaxInt64)
	first()
	want(math.MaxInt64)
	lift()
	want(150 << 20)
	first() // again
	small, large := Raise(300<<20), Raise(1<<30)
	want(1<<30 + 250<<20)
	lift = Lift()
	want(math.MaxInt64)
	lift()
	large()
	want(250 << 20)
	large() // again
	want(250 << 20)
	small()
	want(150 << 20)
	second()
	want(200 << 20)
	all := Outside(1 << 30)
	want(least)
	all()
	want(200 << 20)
}
