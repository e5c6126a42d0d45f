package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// reliable is the greatest part of the CPUs' time that others may take while a figure is measured.
const reliable = .1

// usage is CPU time since the machine and this program started.
type usage struct {
	total float64 // of all CPUs, idle time included
	busy  float64 // of all programs, with the time that the host took away
	own   float64 // of the commands that this program ran
}

// now returns the usage so far; own are the seconds that this program's commands took. Without
// /proc/stat it returns zeros.
func now(own float64) usage {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}
	}
	u, err := parseStat(string(raw))
	if err != nil {
		return usage{}
	}
	u.own = own
	return u
}

// parseStat reads the first line of /proc/stat: hundredths of seconds of user, nice, system, idle,
// iowait, irq, softirq and steal. Guests' time, which follows, is part of user.
func parseStat(stat string) (usage, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return usage{}, fmt.Errorf("no line of 8 times in %q", line)
	}
	var u usage
	for i, s := range f[1:9] {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return usage{}, err
		}
		u.total += v / 100
		if i != 3 && i != 4 {
			u.busy += v / 100
		}
	}
	return u, nil
}

// others is the part of the CPUs' time since before that neither was idle nor this program's.
func (u usage) others(before usage) float64 {
	if u.total <= before.total {
		return 0
	}
	return max(0, (u.busy-before.busy)-(u.own-before.own)) / (u.total - before.total)
}

// idle looks at the machine for two seconds.
func idle() float64 {
	before := now(0)
	time.Sleep(2 * time.Second)
	return now(0).others(before)
}
