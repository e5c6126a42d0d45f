package testshared

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Dir returns the absolute path of the shared directory. Without it, the test is skipped, or fails
// if CI is set.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(Root(t), "..", "shared"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return dir
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s: no such directory, and CI is set: this test must not be skipped", dir)
	}
	t.Skipf("needs the shared test material at %s", dir)
	return ""
}

// SlowEmulated skips a test where CI emulates the CPU: with -short on arm64. why names the test
// that covers the same code there.
func SlowEmulated(t testing.TB, why string) {
	t.Helper()
	if testing.Short() && runtime.GOARCH == "arm64" {
		t.Skip("-short: minutes under emulation; " + why)
	}
}

// Root returns the absolute path of the module's root, the nearest directory
// upwards from the test's working directory that has a go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod in the working directory or above it")
		}
		dir = parent
	}
}

// VectorsZst returns the decompressed content of the fixture at path, a file with
// the suffix .zst; a relative path counts from the test's working directory.
func VectorsZst(t testing.TB, path string) []byte {
	t.Helper()
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	b, err := dec.DecodeAll(packed, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}
