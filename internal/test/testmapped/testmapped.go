// Package testmapped tells how much of a mapped file is in the memory of a test.
package testmapped

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Resident is the size of the pages of the file at path that this process has mapped, over all maps
// of the file. Only Linux states the size; an emulated system states another one's.
func Resident(t testing.TB, path string) (n int64) {
	t.Helper()
	if runtime.GOOS != "linux" || testing.Short() && runtime.GOARCH == "arm64" {
		t.Skip("memory is read from /proc/self/smaps")
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	of := false // the lines are of a map of the file
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(f[0], "-"): // addresses, flags, offset, device, inode, path
			of = len(f) > 5 && strings.HasSuffix(strings.TrimSpace(line), " "+path)
		case of && f[0] == "Rss:":
			kilobytes, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += kilobytes << 10
		}
	}
	return n
}
