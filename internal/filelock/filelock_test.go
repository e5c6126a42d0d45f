package filelock

import (
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if held, err := Try(a); !held || err != nil {
		t.Fatalf("a free file: %v, %v", held, err)
	}
	if held, err := Try(b); held || err != nil {
		t.Fatalf("a locked file: %v, %v", held, err)
	}
	if _, err := b.WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("a locked file cannot be written: %v", err)
	}
	a.Close()
	if held, err := Try(b); !held || err != nil {
		t.Fatalf("after the other was closed: %v, %v", held, err)
	}
}

// TestTryShared: shared locks go together, and not beside an exclusive one.
func TestTryShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b, c := open(t, path), open(t, path), open(t, path)
	for _, f := range []*os.File{a, b} {
		if held, err := TryShared(f); !held || err != nil {
			t.Fatalf("a shared lock: %v, %v", held, err)
		}
	}
	a.Close()
	if held, err := Try(c); held || err != nil {
		t.Fatalf("an exclusive lock beside a shared one: %v, %v", held, err)
	}
	b.Close()
	if held, err := Try(c); !held || err != nil {
		t.Fatalf("after the others were closed: %v, %v", held, err)
	}
	if held, err := TryShared(open(t, path)); held || err != nil {
		t.Fatalf("a shared lock beside an exclusive one: %v, %v", held, err)
	}
}

func TestLeadsTo(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f := open(t, path)
	open(t, other)
	if !LeadsTo(path, f) || LeadsTo(other, f) || LeadsTo(filepath.Join(dir, "none"), f) {
		t.Error("a path leads to another file")
	}
}
