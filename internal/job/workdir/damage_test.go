package workdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, d *Dir, name, key string, content []byte) {
	t.Helper()
	err := d.Put(name, key, int64(len(content)), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// get reads an entry; ok is false if there is none.
func get(t *testing.T, d *Dir, name, key string) (content []byte, ok bool) {
	t.Helper()
	e := d.Get(name, key)
	if e == nil {
		return nil, false
	}
	defer e.Close()
	content, err := io.ReadAll(e)
	if err != nil {
		t.Fatal(err)
	}
	return content, true
}

// damaged returns a file after one kind of damage, and names the kind.
func damaged(r *rand.Rand, file []byte) (b []byte, how string) {
	b = bytes.Clone(file)
	i := r.IntN(len(b))
	switch r.IntN(6) {
	case 0:
		b[i] ^= 1 << r.IntN(8)
		how = fmt.Sprint("a flipped bit at ", i)
	case 1:
		b[i] += byte(1 + r.IntN(255))
		how = fmt.Sprint("another byte at ", i)
	case 2:
		b = b[:i]
		how = fmt.Sprint("truncated to ", i)
	case 3:
		b = append(b, byte(r.Uint32()))
		how = "a byte more"
	case 4: // as a file system leaves after a crash
		clear(b[i:])
		how = fmt.Sprint("zeros from ", i)
	case 5:
		b = append(b[:i], b[i+1:]...)
		how = fmt.Sprint("a byte less at ", i)
	}
	if bytes.Equal(b, file) { // zeros were there before
		return b[:i], fmt.Sprint("truncated to ", i)
	}
	return b, how
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedEntry damages entries of several sizes in hundreds of ways: Get must return none of
// them.
func TestDamagedEntry(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "work"))
	path := d.entryPath("layer-1")
	for _, size := range []int{0, 1, 31, 300, 5000} {
		r := rand.New(rand.NewPCG(uint64(size), 1))
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		put(t, d, "layer-1", "key", content)
		if got, ok := get(t, d, "layer-1", "key"); !ok || !bytes.Equal(got, content) {
			t.Fatalf("an entry of %d bytes is not there", size)
		}
		file := read(t, path)
		for range 200 {
			b, how := damaged(r, file)
			write(t, path, b)
			if _, ok := get(t, d, "layer-1", "key"); ok {
				t.Errorf("an entry of %d bytes with %s was taken", size, how)
			}
		}
	}
}

// TestForeignEntry puts entries in the place of others.
func TestForeignEntry(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "work"))
	other := mustOpen(t, filepath.Join(t.TempDir(), "work"))
	put(t, d, "layer-1", "key", []byte("one"))
	put(t, d, "layer-2", "key", []byte("two"))
	put(t, other, "layer-1", "other", []byte("one"))
	for _, c := range []struct{ name, key string }{{"layer-1", "other"}, {"layer-3", "key"}, {"", ""}} {
		if _, ok := get(t, d, c.name, c.key); ok {
			t.Errorf("entry %q of key %q was found", c.name, c.key)
		}
	}
	swap := func(from, to string) {
		t.Helper()
		write(t, to, read(t, from))
		if _, ok := get(t, d, "layer-1", "key"); ok {
			t.Errorf("%s was taken for %s", from, to)
		}
	}
	swap(d.entryPath("layer-2"), d.entryPath("layer-1"))
	swap(other.entryPath("layer-1"), d.entryPath("layer-1"))

	// Only entries of the key stay.
	put(t, d, "layer-3", "older", nil)
	put(t, d, "text", "older", nil)
	if err := d.Prune("layer-", "key"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"layer-1": false, "layer-2": true, "layer-3": false, "text": true} {
		if exists(d.entryPath(name)) != want {
			t.Errorf("%s is there: %v", name, !want)
		}
	}
}

// TestPut leaves the entry as it was if a new one fails.
func TestPut(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "work"))
	put(t, d, "a", "key", []byte("before"))
	fail := errors.New("no")
	if err := d.Put("a", "key", 3, func(io.Writer) error { return fail }); err != fail {
		t.Errorf("a failed writer: %v", err)
	}
	if err := d.Put("a", "key", 3, func(w io.Writer) error { _, err := w.Write([]byte("four")); return err }); err == nil {
		t.Error("4 bytes of 3 were accepted")
	}
	if got, _ := get(t, d, "a", "key"); string(got) != "before" {
		t.Errorf("the entry is %q", got)
	}
}

// TestTree damages each file of a tree, and its entry: it is made again, once.
func TestTree(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "work"))
	files := map[string]string{"a": "one", "sub/b": "two", "sub/deep/c": ""}
	made := 0
	fill := func(dir string) error {
		made++
		for name, content := range files {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
				return err
			}
		}
		return nil
	}
	tree := func(key string) (path string, found bool) {
		t.Helper()
		path, found, err := d.Tree(t.Context(), "fold", key, fill)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if got, err := os.ReadFile(filepath.Join(path, filepath.FromSlash(name))); err != nil || string(got) != want {
				t.Fatalf("%s holds %q (%v)", name, got, err)
			}
		}
		return path, found
	}
	path, found := tree("key")
	if found || made != 1 {
		t.Fatalf("a new tree: found %v, made %d times", found, made)
	}
	if _, found = tree("key"); !found || made != 1 {
		t.Fatalf("a tree that is there: found %v, made %d times", found, made)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 30 {
		file := []string{d.entryPath("fold"), filepath.Join(path, "a"), filepath.Join(path, "sub", "b")}[i%3]
		b, how := damaged(r, read(t, file))
		write(t, file, b)
		if _, found := tree("key"); found {
			t.Errorf("a tree with %s in %s was taken", how, file)
		}
	}
	for what, change := range map[string]func() error{
		"a missing file": func() error { return os.Remove(filepath.Join(path, "sub", "deep", "c")) },
		"one file more":  func() error { return os.WriteFile(filepath.Join(path, "d"), nil, 0o666) },
		"a renamed file": func() error { return os.Rename(filepath.Join(path, "a"), filepath.Join(path, "e")) },
		"no tree":        func() error { return os.RemoveAll(path) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, found := tree("key"); found {
			t.Errorf("a tree with %s was taken", what)
		}
	}
	if _, found := tree("other"); found {
		t.Error("another job's tree was taken")
	}

	// A tree that could not be made leaves nothing, not even the one before it.
	fail := errors.New("no")
	if _, _, err := d.Tree(t.Context(), "fold", "third", func(string) error { return fail }); err != fail || exists(path) || exists(d.entryPath("fold")) {
		t.Errorf("a tree that failed: %v, there: %v", err, exists(path))
	}
	ctx, cancel := context.WithCancel(t.Context())
	tree("key")
	cancel()
	if _, _, err := d.Tree(ctx, "fold", "key", fill); !errors.Is(err, context.Canceled) || !exists(path) {
		t.Errorf("cancelled: %v, there: %v", err, exists(path))
	}
	if err := d.Remove(); err != nil || exists(d.Path()) {
		t.Errorf("a removed directory is there (%v)", err)
	}
}

func TestKey(t *testing.T) {
	seen := map[string]int{}
	for i, parts := range [][]any{{}, {1}, {1, 2}, {12}, {"1", 2}, {[]int{1, 2}}, {map[string]int{"a": 1}}} {
		key, err := Key(parts...)
		again, _ := Key(parts...)
		if before, ok := seen[key]; ok || err != nil || key != again {
			t.Errorf("the key of %v is that of number %d (%v)", parts, before, err)
		}
		seen[key] = i
	}
	if _, err := Key(func() {}); err == nil {
		t.Error("a function has a key")
	}
}
