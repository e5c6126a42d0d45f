package generate

import (
	"bufio"
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Memory is the memory of the process at the end of the text.
type Memory struct {
	// Source is the origin of the numbers: "linux" is /proc/self/status, "go" the Go runtime, which
	// does not count maps.
	Source  string `json:"source"`
	Private int64  `json:"private_bytes"` // RssAnon: memory of the process itself, including keys and values
	File    int64  `json:"file_bytes"`    // RssFile: pages of mapped files in memory, including the program's
}

func readMemory() Memory {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		if m, ok := parseStatus(status); ok {
			return m
		}
	}
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return Memory{Source: "go", Private: int64(s[0].Value.Uint64() - s[1].Value.Uint64())}
}

// parseStatus parses /proc/self/status, see proc(5).
func parseStatus(status []byte) (m Memory, ok bool) {
	m.Source = "linux"
	found := 0
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		to := map[string]*int64{"RssAnon": &m.Private, "RssFile": &m.File}[name]
		if to == nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return m, false
		}
		*to = n << 10
		found++
	}
	return m, found == 2
}
