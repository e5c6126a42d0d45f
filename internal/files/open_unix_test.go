//go:build unix

package files

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpecial: a named pipe that nobody writes to, and a device without an end.
func TestSpecial(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", "/dev/full"} {
		_, err := Read(path, 100)
		if _, ok := errors.AsType[*NotRegularError](err); !ok {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := KindOf(path); err == nil {
			t.Errorf("%s: KindOf gave no error", path)
		}
	}
}
