package gguf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// shardSet writes three shards of a content, and returns their paths and tensors.
func shardSet(t *testing.T, dir, content string) (paths []string, tensors []TensorInfo) {
	t.Helper()
	pairs, tensors, data := layoutExample(12)
	l, err := NewLayout(pairs, tensors, 1250)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Shards) != 3 {
		t.Fatalf("%d shards, want 3", len(l.Shards))
	}
	l.NameSet([]byte(content))
	return writeFiles(t, l, dir, tensors, data), tensors
}

// edit replaces the only occurrence of old in a file.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(b), old) != 1 {
		t.Fatalf("%s has %q %d times", path, old, strings.Count(string(b), old))
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, new, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestOpenShardErrors(t *testing.T) {
	const no, count = "split.no\x02\x00\x00\x00", "split.count\x02\x00\x00\x00"
	for name, c := range map[string]struct {
		damage func(t *testing.T, paths []string) (open string)
		want   string
	}{
		"missing": {func(t *testing.T, paths []string) string {
			if err := os.Remove(paths[2]); err != nil {
				t.Fatal(err)
			}
			return paths[0]
		}, "shard 3 of 3: "},
		"not the first": {func(t *testing.T, paths []string) string { return paths[1] }, "it is shard 2 of 3 of a model: name the first shard, "},
		"renamed": {func(t *testing.T, paths []string) string {
			to := filepath.Join(filepath.Dir(paths[0]), "x.gguf")
			if err := os.Rename(paths[0], to); err != nil {
				t.Fatal(err)
			}
			return to
		}, "x.gguf: it is shard 1 of 3 of a model: name it NAME-00001-of-00003.gguf"},
		"another count in the name": {func(t *testing.T, paths []string) string {
			to := filepath.Join(filepath.Dir(paths[0]), "x-00001-of-00002.gguf")
			if err := os.Rename(paths[0], to); err != nil {
				t.Fatal(err)
			}
			return to
		}, "its content says shard 1 of 3: name it x-00001-of-00003.gguf"},
		"exchanged": {func(t *testing.T, paths []string) string {
			if err := os.Rename(paths[2], paths[1]); err != nil {
				t.Fatal(err)
			}
			return paths[0]
		}, "-00002-of-00003.gguf: byte 0: it says shard 3 of 3, want 2 of 3"},
		"number": {func(t *testing.T, paths []string) string {
			edit(t, paths[0], no+"\x00\x00", no+"\x03\x00")
			return paths[0]
		}, "split.no 3 and split.count 3: want a number below the count"},
		"count": {func(t *testing.T, paths []string) string {
			edit(t, paths[1], count+"\x03\x00", count+"\x04\x00")
			return paths[0]
		}, "it says shard 2 of 4, want 2 of 3"},
		"tensors": {func(t *testing.T, paths []string) string {
			edit(t, paths[0], "split.tensors.count\x05\x00\x00\x00\x0c", "split.tensors.count\x05\x00\x00\x00\x0d")
			return paths[0]
		}, "split.tensors.count says 13 tensors, the 3 shards have 12"},
		"no integer": {func(t *testing.T, paths []string) string {
			edit(t, paths[0], "split.tensors.count\x05\x00\x00\x00", "split.tensors.count\x06\x00\x00\x00")
			return paths[0]
		}, "split.tensors.count is no integer"},
		"no integer in a later shard": {func(t *testing.T, paths []string) string {
			edit(t, paths[1], "split.tensors.count\x05\x00\x00\x00", "split.tensors.count\x06\x00\x00\x00")
			return paths[0]
		}, "-00002-of-00003.gguf: byte 0: split.tensors.count is no integer"},
		"tensor twice": {func(t *testing.T, paths []string) string {
			edit(t, paths[2], "blk.11.weight", "blk.00.weight")
			return paths[0]
		}, `tensor "blk.00.weight" is in shard 1 too`},
		"another set": {func(t *testing.T, paths []string) string {
			others, _ := shardSet(t, t.TempDir(), "other")
			if err := os.Rename(others[2], paths[2]); err != nil {
				t.Fatal(err)
			}
			return paths[0]
		}, "-00003-of-00003.gguf: byte 0: gq.split.set is "},
		"no set": {func(t *testing.T, paths []string) string {
			edit(t, paths[1], keySplitSet, "gq.split.SET")
			return paths[0]
		}, `-00002-of-00003.gguf: byte 0: gq.split.set is "", and "`},
		"damaged": {func(t *testing.T, paths []string) string {
			if err := os.Truncate(paths[1], 100); err != nil {
				t.Fatal(err)
			}
			return paths[0]
		}, "-00002-of-00003.gguf: byte "},
	} {
		t.Run(name, func(t *testing.T) {
			paths, _ := shardSet(t, t.TempDir(), "one")
			if _, err := Open(c.damage(t, paths)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "missing.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	path := filepath.Join(dir, "x.gguf")
	if err := os.WriteFile(path, example().bytes()[:100], 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if e, ok := errors.AsType[*FormatError](err); !ok || e.File != path || !strings.HasPrefix(err.Error(), path+": byte ") {
		t.Errorf("a truncated file: %v", err)
	}
	bad := example()
	bad.version = 9
	if err := os.WriteFile(path, bad.bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if e, ok := errors.AsType[*UnsupportedError](err); !ok || e.File != path {
		t.Errorf("an unknown version: %v", err)
	}
}

// TestGuard reads a shard that was shortened after Open.
func TestGuard(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to shorten a mapped file")
	}
	paths, _ := shardSet(t, t.TempDir(), "one")
	f, err := Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(paths[1], 0); err != nil {
		t.Fatal(err)
	}
	err = f.Guard(func() error {
		for _, tensor := range f.Tensors {
			if err := tensor.Type.Decode(make([]float32, tensor.Elements()), f.Data(tensor)); err != nil {
				return err
			}
		}
		return nil
	})
	if e, ok := errors.AsType[*FormatError](err); !ok || e.File != paths[1] {
		t.Errorf("error %v, want a FormatError of %s", err, paths[1])
	}
}
