package cmdline

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes writes a number of bytes with three digits and a decimal unit: "999 B", "1.23 kB", "45.6
// MB".
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	x := float64(n)
	const units = "kMGTPE" // an int64 is below 9.3 EB
	unit := -1
	for x >= 999.5 { // would print as 1000
		x /= 1000
		unit++
	}
	decimals := 0
	switch {
	case x < 9.995:
		decimals = 2
	case x < 99.95:
		decimals = 1
	}
	return fmt.Sprintf("%.*f %cB", decimals, x, units[unit])
}

// byteUnits are units of sizes; longer ones before their endings.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}, {"b", 1}, {"", 1},
}

// ParseBytes reads a number of bytes: "700MB", "650 MiB", "1.5GB", "123456".
func ParseBytes(s string) (int64, error) {
	word := strings.ToLower(s)
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(word, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v > 0) || float64(v*u.bytes) >= 1<<62 || strings.ContainsAny(number, "xp_") {
			break
		}
		return int64(v * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is no size: write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", s)
}

// Count writes a number as Bytes does: "12.3 k".
func Count(n int64) string { return strings.TrimRight(strings.TrimSuffix(Bytes(n), "B"), " ") }
