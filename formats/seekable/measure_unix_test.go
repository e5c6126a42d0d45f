//go:build unix

package seekable

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var measured = flag.String("measure", "", "measure sizes of frames and levels on the files of this pattern")

// TestMeasure prints the table of frame sizes and levels that docs/ARCHIVE.md cites:
// go test ./formats/seekable -run Measure -v -measure 'FILES'.
func TestMeasure(t *testing.T) {
	if *measured == "" {
		t.Skip("-measure names no files")
	}
	paths, err := filepath.Glob(*measured)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression} {
			for _, log2 := range []int{20, 22, 24} {
				before := cpuSeconds()
				n, err := compress(t.Context(), io.Discard, f, st.Size(), Options{Threads: 1}, 1<<log2, level)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s %s %d MiB: %.2f %% of %d bytes, %.2f s of CPU per GB", filepath.Base(path), level, 1<<(log2-20), 100*float64(n)/float64(st.Size()), st.Size(), (cpuSeconds()-before)/(float64(st.Size())/1e9))
			}
		}
		f.Close()
	}
}

// cpuSeconds is the user time of this process.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec) + float64(u.Utime.Usec)/1e6
}
