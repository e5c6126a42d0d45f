// Package memory watches the private memory of processes.
package memory

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Watch looks at the private memory of a process and its children a hundred times a second. The
// function that it returns ends that, and returns the greatest sum in GB, or 0 where there is no
// /proc.
func Watch(pid int) func() float64 {
	end, greatest := make(chan bool), make(chan float64)
	go func() {
		var most float64
		tick := time.NewTicker(time.Second / 100)
		defer tick.Stop()
		for {
			most = max(most, private(strconv.Itoa(pid)))
			select {
			case <-tick.C:
			case <-end:
				greatest <- most
				return
			}
		}
	}()
	return func() float64 { close(end); return <-greatest }
}

var rssAnon = regexp.MustCompile(`(?m)^RssAnon:\s+([0-9]+) kB$`)

// private is the private memory of a process and of all that it started, in GB. A process that has
// ended has none.
func private(pid string) (sum float64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%s/status", pid))
	if m := rssAnon.FindSubmatch(status); m != nil {
		kB, _ := strconv.ParseFloat(string(m[1]), 64) // digits
		sum = kB * 1024 / 1e9
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		sum += private(child)
	}
	return sum
}
