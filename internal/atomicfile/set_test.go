package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// errKilled ends a job of a test in the middle.
var errKilled = errors.New("killed")

// killAfter lets n operations on names succeed, and no other until restore is called.
func killAfter(n int) (restore func()) {
	oldRename, oldRemove := rename, remove
	step := func() error {
		if n == 0 {
			return errKilled
		}
		n--
		return nil
	}
	rename = func(from, to string) error {
		if err := step(); err != nil {
			return err
		}
		return oldRename(from, to)
	}
	remove = func(path string) error {
		if err := step(); err != nil {
			return err
		}
		return oldRemove(path)
	}
	return func() { rename, remove = oldRename, oldRemove }
}

// TestCommitSet: between any two operations the set is the old one, has no first file, or is the
// new one.
func TestCommitSet(t *testing.T) {
	const count = 4
	for n := range count + 2 { // the removal of the first, and each renaming
		dir := t.TempDir()
		var list []*File
		for i := range count {
			path := filepath.Join(dir, fmt.Sprint(i))
			put(t, path, "old")
			f := create(t, path)
			writeAt(t, f, "new", 0)
			list = append(list, f)
		}
		restore := killAfter(n)
		err := CommitSet(list)
		restore()
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		var contents []string
		for i := range count {
			b, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
			contents = append(contents, string(b))
		}
		got := strings.Join(contents, " ")
		switch whole := got == "old old old old" || got == "new new new new"; {
		case (err == nil) != (n == count+1), err == nil && got != "new new new new", n == 0 && got != "old old old old", !whole && contents[0] != "":
			t.Errorf("after %d operations (%v): %q", n, err, got)
		}
	}
}

// makeDir makes a directory by a Dir.
func makeDir(t *testing.T, path string) (*Dir, error) {
	t.Helper()
	if err := CheckDir(path); err != nil {
		return nil, err
	}
	d, err := CreateDir(path)
	if err != nil {
		return nil, err
	}
	t.Cleanup(d.unlock)
	for _, name := range []string{"a", filepath.Join("folder", "b")} {
		f, err := d.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, "new", 0)
		if err := CommitSet([]*File{f}); err != nil {
			t.Fatal(err)
		}
	}
	return d, nil
}

// TestDir: the directory appears with all files, in place of nothing or of an empty directory.
func TestDir(t *testing.T) {
	for _, before := range []string{"nothing", "empty", "link"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		switch before {
		case "empty":
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		case "link":
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o777), os.Symlink("real", path)); err != nil {
				t.Skip(err)
			}
		}
		d, err := makeDir(t, path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, "a")); err == nil {
			t.Errorf("%s: a file is there too early", before)
		}
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		wantNames(t, path, "a", "folder")
		d.Abort()
		wantNames(t, path, "a", "folder")
		if st, err := os.Stat(path); before == "empty" && (err != nil || st.Mode().Perm()&0o077 != 0) && canRenameOpen {
			t.Errorf("mode %v (%v), expected that of the empty directory", st.Mode(), err)
		}
		if list := names(t, dir); len(list) > 2 {
			t.Errorf("%s: %q is left", before, list)
		}
	}
}

// TestDirInTheWay: nothing is replaced, not even what another process puts there in the meantime.
func TestDirInTheWay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	d, err := makeDir(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(path, "theirs"), "x")
	if err := d.Commit(); err == nil {
		t.Error("a directory with a file was replaced")
	}
	d.Abort()
	wantNames(t, path, "theirs")
	if _, err := makeDir(t, path); err == nil || !strings.Contains(err.Error(), "holds files already (theirs)") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "file"), "x")
	if _, err := makeDir(t, filepath.Join(dir, "file")); err == nil {
		t.Error("a file was accepted")
	}
	wantNames(t, dir, "file", "out")
}

// TestDirFixed: a directory that cannot be renamed, as a mount point, is refused before any work.
func TestDirFixed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	defer killAfter(0)()
	if err := CheckDir(path); err == nil || !strings.Contains(err.Error(), "a new directory cannot take its place (killed): name a directory in it") {
		t.Error(err)
	}
}

// TestStaleDir: what a killed job left is removed, and the directory of a running one stays.
func TestStaleDir(t *testing.T) {
	if !canRenameOpen {
		t.Skip("directories have no locks here")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	d, err := makeDir(t, path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := makeDir(t, path)
	if err != nil {
		t.Fatal(err)
	}
	second.Abort()
	wantNames(t, dir, filepath.Base(d.temp))
	d.unlock() // as a kill does
	third, err := makeDir(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Commit(); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, "out")
}
