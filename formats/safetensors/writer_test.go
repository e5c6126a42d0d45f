package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// fill returns n bytes that depend on seed.
func fill(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed)
	}
	return b
}

func TestWriter(t *testing.T) {
	f4, _ := packing.ParseDtype("F4")
	tensors := []stored{
		{TensorSpec{"b", packing.BF16, []int64{3, 5}}, fill(30, 1)},
		{TensorSpec{"c\"\\\n\u2028é", packing.U8, []int64{7}}, fill(7, 2)},
		{TensorSpec{"a", packing.F32, nil}, fill(4, 3)},
		{TensorSpec{"d", packing.F64, []int64{0, 4}}, nil},
		{TensorSpec{"e", packing.I64, []int64{5}}, fill(40, 5)},
		{TensorSpec{"f", f4, []int64{2, 5}}, fill(5, 6)},
	}
	for _, tt := range []struct {
		max   int64
		files []string
	}{
		{0, []string{"model.safetensors"}},
		{86, []string{"model.safetensors"}},
		{81, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
		{40, []string{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"}},
		{1, nil},
	} {
		t.Run(fmt.Sprint(tt.max), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "dir")
			writeCheckpoint(t, dir, WriteOptions{MaxShardBytes: tt.max, Metadata: map[string]string{"k\t": "v"}}, tensors...)
			c, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var files []string
			for _, f := range c.Files() {
				files = append(files, f.Name)
				if d := cmp.Diff(map[string]string{"format": "pt", "k\t": "v"}, f.Metadata); d != "" {
					t.Error(d)
				}
			}
			if tt.files != nil && !cmp.Equal(files, tt.files) {
				t.Errorf("files are %v, want %v", files, tt.files)
			}
			if len(c.Tensors()) != len(tensors) {
				t.Errorf("%d tensors", len(c.Tensors()))
			}
			for _, want := range tensors {
				got, ok := c.Lookup(want.Name)
				if !ok {
					t.Fatalf("no tensor %q", want.Name)
				}
				data, err := c.Bytes(got)
				if err != nil {
					t.Fatal(err)
				}
				if got.Dtype != want.Dtype || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) || !bytes.Equal(data, want.data) {
					t.Errorf("%q: %+v, data %x, want %x", want.Name, got, data, want.data)
				}
				if align := int64(want.Dtype.Bits()+7) / 8; got.Offset%align != 0 {
					t.Errorf("%q begins at %d", want.Name, got.Offset)
				}
			}
			left, err := filepath.Glob(filepath.Join(dir, ".*"))
			if len(left) != 0 || err != nil {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// TestWriterGolden pins the exact bytes, so that no change of the writer goes unnoticed.
func TestWriterGolden(t *testing.T) {
	dir := t.TempDir()
	writeCheckpoint(t, dir, WriteOptions{MaxShardBytes: 2},
		stored{TensorSpec{"x", packing.U8, []int64{2}}, []byte("AB")}, stored{TensorSpec{"w", packing.U8, []int64{1}}, []byte("C")})
	for name, want := range map[string]string{
		"model-00001-of-00002.safetensors": "\x58\x00\x00\x00\x00\x00\x00\x00" + `{"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}` + strings.Repeat(" ", 4) + "AB",
		"model-00002-of-00002.safetensors": "\x58\x00\x00\x00\x00\x00\x00\x00" + `{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}` + strings.Repeat(" ", 4) + "C",
		"model.safetensors.index.json": `{
  "metadata": {
    "total_size": 3
  },
  "weight_map": {
    "w": "model-00002-of-00002.safetensors",
    "x": "model-00001-of-00002.safetensors"
  }
}
`,
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is\n%q, want\n%q", name, got, want)
		}
	}
}

// TestWriterReproduces: a real model that is read and written again has the same tensors and
// metadata.
func TestWriterReproduces(t *testing.T) {
	path := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16", "model.safetensors")
	c, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	tensors := make([]stored, len(c.Tensors()))
	for i, ts := range c.Tensors() {
		data, err := c.Bytes(ts)
		if err != nil {
			t.Fatal(err)
		}
		tensors[i] = stored{TensorSpec{ts.Name, ts.Dtype, ts.Shape}, data}
	}
	writeCheckpoint(t, dir, WriteOptions{Metadata: c.Files()[0].Metadata}, tensors...)
	again, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for i, ts := range again.Tensors() {
		data, err := again.Bytes(ts)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, tensors[i].data) {
			t.Errorf("%s differs", ts.Name)
		}
	}
	if d := cmp.Diff(c.Files()[0].Metadata, again.Files()[0].Metadata); d != "" {
		t.Error(d)
	}
}

func TestCreateRefuses(t *testing.T) {
	u8 := func(name string, shape ...int64) TensorSpec { return TensorSpec{name, packing.U8, shape} }
	for _, tt := range []struct {
		name  string
		files map[string]string
		specs []TensorSpec
		opts  WriteOptions
		want  string
	}{
		{"name twice", nil, []TensorSpec{u8("a", 1), u8("a", 1)}, WriteOptions{}, "or repeated"},
		{"empty name", nil, []TensorSpec{u8("", 1)}, WriteOptions{}, "empty"},
		{"reserved name", nil, []TensorSpec{u8("__metadata__", 1)}, WriteOptions{}, "reserved"},
		{"invalid UTF-8", nil, []TensorSpec{u8("\xff", 1)}, WriteOptions{}, "not valid UTF-8"},
		{"invalid UTF-8 in metadata", nil, []TensorSpec{u8("a", 1)}, WriteOptions{Metadata: map[string]string{"a": "\xff"}}, "not valid UTF-8"},
		{"no dtype", nil, []TensorSpec{{Name: "a"}}, WriteOptions{}, "cannot be of dtype"},
		{"negative shape", nil, []TensorSpec{u8("a", -1)}, WriteOptions{}, "cannot be of dtype"},
		{"too large", nil, []TensorSpec{u8("a", math.MaxInt64, 2)}, WriteOptions{}, "cannot be of dtype"},
		{"too large together", nil, []TensorSpec{u8("a", math.MaxInt64), u8("b", math.MaxInt64)}, WriteOptions{}, "exceed 2^63"},
		{"negative shards", nil, nil, WriteOptions{MaxShardBytes: -1}, "at most -1"},
		{"no space", nil, []TensorSpec{u8("a", 1<<60)}, WriteOptions{}, "are free"},
		{"an index is there", map[string]string{IndexName: "{}"}, []TensorSpec{u8("a", 1)}, WriteOptions{}, "in the way"},
		{"a single file is there", map[string]string{SingleName: ""}, []TensorSpec{u8("a", 1), u8("b", 1)}, WriteOptions{MaxShardBytes: 1}, "in the way"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := dirWith(t, tt.files)
			w, err := Create(dir, tt.specs, tt.opts)
			if err == nil {
				w.Abort()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != len(tt.files) {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// TestWriterAtomic: until Commit, and after a failure, the old file remains.
func TestWriterAtomic(t *testing.T) {
	dir := dirWith(t, map[string]string{SingleName: "old"})
	check := func(want string) {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(dir, SingleName))
		if err != nil || string(got[max(0, len(got)-3):]) != want {
			t.Errorf("file is %q, %v, want %q", got, err, want)
		}
	}
	specs := []TensorSpec{{"a", packing.U8, []int64{3}}}
	w, err := Create(dir, specs, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		n   int
		off int64
	}{{1, -1}, {4, 0}, {1, 3}, {1, math.MaxInt64}} {
		if err := w.WriteAt(0, make([]byte, bad.n), bad.off); err == nil {
			t.Errorf("%d bytes at %d were accepted", bad.n, bad.off)
		}
	}
	if err := w.WriteAt(0, []byte("ne"), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err == nil || !strings.Contains(err.Error(), `2 bytes of tensor "a" were written, not 3`) {
		t.Errorf("error is %v", err)
	}
	check("old")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
	if w, err = Create(dir, specs, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := w.WriteAt(0, []byte("new")[2-i:3-i], int64(2-i)); err != nil {
			t.Fatal(err)
		}
	}
	check("old")
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	check("new")
	w.Abort()
	check("new")
}
