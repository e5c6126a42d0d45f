package quantize

import "testing"

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"700MB": 700_000_000, "650MiB": 650 << 20, "1.5 GB": 1_500_000_000, "2gib": 2 << 30, "12k": 12_000, "3 T": 3e12, "123456": 123456, "99B": 99, "1e3kb": 1_000_000,
	} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MB", "-3MB", "0", "1.2.3GB", "5 bananas", "0x10MB", "1_000", "inf", "NaN", "9e30", "10000000TB"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}
