package cmdline

import "fmt"

// Bytes writes a number of bytes with three digits and a decimal unit: "999 B",
// "1.23 kB", "45.6 MB", "2.47 GB".
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	x := float64(n)
	const units = "kMGTPE" // an int64 is below 9.3 EB
	unit := -1
	for x >= 999.5 { // what would print as 1000
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
