//go:build linux || darwin

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lowbit-go/gq/internal/filelock"
)

func TestMode(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	dir := t.TempDir()
	for _, c := range []struct {
		before fs.FileMode // 0: no file
		want   fs.FileMode
	}{{0, 0o640}, {0o600, 0o600}, {0o444, 0o444}, {0o666, 0o666}} {
		path := filepath.Join(dir, c.want.String())
		if c.before != 0 {
			put(t, path, "old")
			if err := os.Chmod(path, c.before); err != nil {
				t.Fatal(err)
			}
		}
		f := create(t, path)
		st, err := os.Stat(f.temp)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != c.want {
			t.Errorf("temporary for a target of mode %v: %v, want %v", c.before, got, c.want)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if st, err = os.Stat(path); err != nil || st.Mode().Perm() != c.want {
			t.Errorf("target of mode %v: %v (%v), want %v", c.before, st.Mode().Perm(), err, c.want)
		}
	}
}

func TestStaleReadOnly(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, tempName("out"))
	put(t, stale, "x")
	if err := os.Chmod(stale, 0o444); err != nil {
		t.Fatal(err)
	}
	create(t, filepath.Join(dir, "out")).Abort()
	wantNames(t, dir)
}

func TestUnwritableDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out")
	if _, err := Create(path); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestSymlink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(elsewhere, "target")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(link); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("dangling link: %v", err)
	}
	put(t, target, "old")
	f := create(t, link)
	writeAt(t, f, "new", 0)
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, target, "new")
	if got, err := os.Readlink(link); got != target || err != nil {
		t.Errorf("the link is now %q, %v", got, err)
	}
	wantNames(t, dir, "link")
	wantNames(t, elsewhere, "target")
}

func TestSpecialFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, os.DevNull} {
		if _, err := Create(p); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestStaleRace replays the moments in which a writer and a cleaner meet.
func TestStaleRace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")

	t.Run("cleaner opens, writer commits, cleaner locks", func(t *testing.T) {
		f := create(t, path)
		writeAt(t, f, "new", 0)
		cleaner, err := os.Open(f.temp)
		if err != nil {
			t.Fatal(err)
		}
		defer cleaner.Close()
		if held, err := filelock.Try(cleaner); held || err != nil {
			t.Fatalf("locked under the writer: %v, %v", held, err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if held, err := filelock.Try(cleaner); !held || err != nil {
			t.Fatalf("the lock outlived the writer: %v, %v", held, err)
		}
		if filelock.LeadsTo(f.temp, cleaner) {
			t.Error("the temporary's path still leads to the new target")
		}
		wantContent(t, path, "new")
	})

	t.Run("cleaner removes, writer locks", func(t *testing.T) {
		temp := filepath.Join(dir, tempName("out"))
		writer, err := os.Create(temp)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		removeIfFree(temp)
		if held, err := filelock.Try(writer); !held || err != nil {
			t.Fatalf("%v, %v", held, err)
		}
		if filelock.LeadsTo(temp, writer) {
			t.Error("the writer would go on with a removed file")
		}
	})
}
