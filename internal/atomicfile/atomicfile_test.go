package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func create(t *testing.T, path string) *File {
	t.Helper()
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Abort)
	return f
}

func writeAt(t *testing.T, f *File, s string, off int64) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); n != len(s) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

// names lists dir.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
}

func TestCommit(t *testing.T) {
	for _, before := range []string{"", "old, and longer than the new content"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		if before != "" {
			put(t, path, before)
		}
		f := create(t, path)
		if f.Path() != path {
			t.Errorf("path %q", f.Path())
		}
		if err := f.Truncate(10); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i, s := range []string{"abc", "def"} {
			wg.Go(func() {
				writeAt(t, f, s, int64(1+4*i))
				f.StartWriteback(int64(1+4*i), 3)
			})
		}
		wg.Wait()
		if before != "" {
			wantContent(t, path, before)
		}
		if list := names(t, dir); len(list) == 0 || !isTempOf(list[0], "out") {
			t.Errorf("before Commit the directory holds %q", list)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		wantContent(t, path, "\x00abc\x00def\x00\x00")
		f.Abort()
		wantContent(t, path, "\x00abc\x00def\x00\x00")
		wantNames(t, dir, "out")
		if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second Commit: %v", err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("WriteAt after Commit: %v", err)
		}
	}
}

func TestCommitRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	f := create(t, "out")
	writeAt(t, f, "x", 0)
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, "out", "x")
	wantNames(t, ".", "out")
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	put(t, path, "old")
	f := create(t, path)
	writeAt(t, f, "new", 0)
	f.Abort()
	f.Abort()
	wantContent(t, path, "old")
	wantNames(t, dir, "out")
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Abort: %v", err)
	}
}

// TestCommitFails has the target become a directory while it is written.
func TestCommitFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	f := create(t, path)
	if err := os.MkdirAll(filepath.Join(path, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	err := f.Commit()
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != path {
		t.Errorf("got %v", err)
	}
	wantNames(t, dir, "out")
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "")
	for _, c := range []struct{ path, want string }{
		{"", "empty"},
		{dir, "is a directory"},
		{dir + string(os.PathSeparator), "names a directory"},
		{filepath.Join(dir, "missing", "out"), "directory " + filepath.Join(dir, "missing")},
		{filepath.Join(dir, "file", "out"), "file"},
		{filepath.Join(dir, strings.Repeat("x", 250)), strings.Repeat("x", 250)},
	} {
		f, err := Create(c.path)
		if err == nil {
			f.Abort()
			t.Errorf("%q: no error", c.path)
			continue
		}
		var pe *fs.PathError
		if !errors.As(err, &pe) || pe.Path != c.path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want it to say %q", c.path, err, c.want)
		}
		if strings.Contains(err.Error(), tempSuffix) {
			t.Errorf("%q: the error names a temporary: %v", c.path, err)
		}
	}
	if _, err := Create(filepath.Join(dir, "missing", "out")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v is not fs.ErrNotExist", err)
	}
}

func TestStale(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	stale := tempName("out")
	others := []string{
		".other.gq-0123456789abcdef.tmp",
		".out.gq-0123456789abcde.tmp",
		".out.gq-0123456789abcdeX.tmp",
		".out.gq-0123456789abcdef.tmp2",
		".out.x.gq-0123456789abcdef.tmp",
	}
	for _, name := range append(others, stale) {
		put(t, filepath.Join(dir, name), "x")
	}
	held := create(t, path) // removes stale, is kept by the second Create
	second := create(t, path)
	for _, f := range []*File{held, second} {
		if _, err := os.Stat(f.temp); err != nil {
			t.Errorf("a temporary in use was removed: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, stale)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale temporary is still there (%v)", err)
	}
	// Both may finish; the last one stays.
	writeAt(t, held, "first", 0)
	writeAt(t, second, "second", 0)
	if err := held.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, path, "second")
	if got := len(names(t, dir)); got != len(others)+1 {
		t.Errorf("%d files, want %d: %q", got, len(others)+1, names(t, dir))
	}
}

// TestManyWriters races creation, cleaning, aborts and commits on one target.
func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	content := bytes.Repeat([]byte("x"), 10_000)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 15 {
				f, err := Create(path)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.WriteAt(content, 0); err != nil {
					t.Error(err)
				}
				if (i+j)%3 == 0 {
					f.Abort()
				} else if err := f.Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantContent(t, path, string(content))
	wantNames(t, dir, "out")
}

func TestFreeSpace(t *testing.T) {
	if n, err := FreeSpace(t.TempDir()); n <= 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := FreeSpace(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing directory: %v", err)
	}
}

func isTempOf(name, base string) bool {
	of, ok := TempOf(name)
	return ok && of == base
}

func TestTempOf(t *testing.T) {
	for _, base := range []string{"out", "a.gq-0123456789abcdef", ".hidden", "a b"} {
		if got, ok := TempOf(tempName(base)); !ok || got != base {
			t.Errorf("the temporary of %q is that of %q, %v", base, got, ok)
		}
	}
	for _, name := range []string{"", "out", ".out.tmp", ".out.gq-.tmp", ".out.gq-0123456789abcde.tmp", ".out.gq-0123456789abcdeF.tmp", "out.gq-0123456789abcdef.tmp", ".out.gq-0123456789abcdef"} {
		if base, ok := TempOf(name); ok {
			t.Errorf("%q is the temporary of %q", name, base)
		}
	}
}
