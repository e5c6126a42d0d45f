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

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"700MB": 700_000_000, "650MiB": 650 << 20, "1.5 GB": 1_500_000_000, "2gib": 2 << 30, "12k": 12_000, "3 T": 3e12, "123456": 123456, "99B": 99, "1e3kb": 1_000_000,
	} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MB", "-3MB", "0", "1.2.3GB", "5 bananas", "0x10MB", "1_000", "inf", "NaN", "9e30", "10000000TB"} {
		if got, err := ParseBytes(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}
