package cmdline

import (
	"math"
	"testing"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		n    int64
		want string
	}{
		{0, "0 B"},
		{999, "999 B"},
		{1000, "1.00 kB"},
		{9_994, "9.99 kB"},
		{9_996, "10.0 kB"},
		{99_960, "100 kB"},
		{999_499, "999 kB"},
		{999_500, "1.00 MB"},
		{45_600_000, "45.6 MB"},
		{2_470_000_000, "2.47 GB"},
		{999_999_999_999, "1.00 TB"},
		{math.MaxInt64, "9.22 EB"},
	} {
		if got := Bytes(c.n); got != c.want {
			t.Errorf("Bytes(%d) = %q, want %q", c.n, got, c.want)
		}
	}
}
