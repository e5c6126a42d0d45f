package mmap

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestRegion fills, reads and drops ranges of a region of 1 TB.
func TestRegion(t *testing.T) {
	size := int64(1<<40 + 5)
	if testing.Short() && runtime.GOARCH == "arm64" {
		size = 1<<30 + 5 // an emulator takes long to reserve more
	}
	r, err := Reserve("hf://a/b/model.safetensors", size)
	if err != nil {
		t.Fatal(err)
	}
	absent := func(off int64) {
		t.Helper()
		err := Guard(func() error { sum(r.Bytes()[off : off+1]); return nil })
		var fault *FaultError
		if !errors.As(err, &fault) || fault.Offset != off || !strings.Contains(err.Error(), "hf://a/b/model.safetensors: byte "+strconv.FormatInt(off, 10)+" was read before it was fetched") {
			t.Errorf("reading byte %d: %v", off, err)
		}
	}
	present := func(off, n int64, value byte) {
		t.Helper()
		err := Guard(func() error {
			if b := r.Bytes()[off : off+n]; !bytes.Equal(b, bytes.Repeat([]byte{value}, int(n))) {
				t.Errorf("bytes %d to %d are not %d", off, off+n, value)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	fill := func(off, n int64, value byte) {
		t.Helper()
		b, err := r.Fill(off, n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d holds %d before it is filled", off+int64(i), b[i])
			}
			b[i] = value
		}
		if err := r.Seal(off, n); err != nil {
			t.Fatal(err)
		}
	}
	last := size / Granule * Granule
	absent(0)
	absent(size - 1)
	fill(4*Granule, 2*Granule, 1)
	fill(last, size-last, 2)
	absent(4*Granule - 1)
	present(4*Granule, 2*Granule, 1)
	absent(6 * Granule)
	present(last, size-last, 2)
	if err := r.Drop(4*Granule, Granule); err != nil {
		t.Fatal(err)
	}
	absent(4 * Granule)
	present(5*Granule, Granule, 1)
	fill(4*Granule, Granule, 3)
	present(4*Granule, Granule, 3)
	for _, c := range [][2]int64{{1, Granule}, {0, 1}, {-Granule, Granule}, {last + Granule, Granule}, {0, 0}} {
		if _, err := r.Fill(c[0], c[1]); err == nil {
			t.Errorf("Fill(%d, %d) succeeded", c[0], c[1])
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if _, err := r.Fill(0, Granule); err == nil {
		t.Error("Fill succeeded after Close")
	}
}

// TestRegionMemory passes 1 GB through a region: dropped ranges take no memory.
func TestRegionMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	r, err := Reserve("x", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before, most := rssAnon(t), int64(0)
	for off := int64(0); off < r.Size(); off += 16 << 20 {
		b, err := r.Fill(off, 16<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		if err := r.Seal(off, 16<<20); err != nil {
			t.Fatal(err)
		}
		most = max(most, rssAnon(t)-before)
		if err := r.Drop(off, 16<<20); err != nil {
			t.Fatal(err)
		}
	}
	if most > 24<<20 || most < 12<<20 {
		t.Errorf("%d bytes of private memory, want about %d", most, 16<<20)
	}
}

// rssAnon is the private memory of this process.
func rssAnon(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Skip("the system does not state RssAnon")
	return 0
}

func TestReserveEmpty(t *testing.T) {
	r, err := Reserve("x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes() != nil {
		t.Error("an empty region has bytes")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Reserve("x", -1); err == nil {
		t.Error("a negative size was accepted")
	}
}
