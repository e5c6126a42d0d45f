package gguf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// writeFiles writes a layout's files to dir with data(i) as the data of tensor i, and returns their
// paths.
func writeFiles(t *testing.T, l *Layout, dir string, tensors []TensorInfo, data func(i int) []byte) []string {
	t.Helper()
	files := make([][]byte, len(l.Shards))
	for i, s := range l.Shards {
		files[i] = make([]byte, s.Size)
		copy(files[i], s.Header)
	}
	for i, p := range l.Places {
		if b := data(i); int64(copy(files[p.Shard][p.Offset:], b)) != tensors[i].Size() {
			t.Fatalf("tensor %d has %d bytes of data, want %d", i, len(b), tensors[i].Size())
		}
	}
	paths := l.Paths(filepath.Join(dir, "model.gguf"))
	for i, path := range paths {
		if err := os.WriteFile(path, files[i], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// layoutExample has values of all types and n tensors of 96 bytes each.
func layoutExample(n int) (pairs []Pair, tensors []TensorInfo, data func(i int) []byte) {
	pairs = []Pair{
		{"general.architecture", "llama"}, {"u8", uint8(200)}, {"i8", int8(-56)}, {"u16", uint16(0x201)}, {"i16", int16(-256)},
		{"u32", uint32(1 << 31)}, {"i32", int32(-1)}, {"f32", float32(1.5)}, {"bool", true}, {"u64", uint64(1 << 63)}, {"i64", int64(-1)}, {"f64", 0.1},
		{"strings", []string{"ä", "", "b"}}, {"no strings", []string{}}, {"floats", []float32{1, -2}}, {"ints", []int32{1, -2}}, {"bools", []bool{true, false}},
		{"bytes", []uint8{1, 2}}, {"raw", Array{typeString, 1, []byte("\x01\x00\x00\x00\x00\x00\x00\x00x")}},
	}
	for i := range n {
		tensors = append(tensors, TensorInfo{fmt.Sprintf("blk.%02d.weight", i), []int64{32, 5}, Q4_0})
	}
	return pairs, tensors, func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 90) }
}

// sameValue compares a value of Metadata with one that was written.
func sameValue(got, written any) bool {
	a, ok := got.(Array)
	if _, raw := written.(Array); raw || !ok {
		return reflect.DeepEqual(got, written)
	}
	want := reflect.ValueOf(written)
	if _, element := typeOf(written); element != a.Type || want.Len() != a.Len {
		return false
	}
	i := 0
	for v := range a.All() {
		if v != want.Index(i).Interface() {
			return false
		}
		i++
	}
	return i == a.Len
}

// checkFile checks that a file holds the pairs, tensors and data that were written.
func checkFile(t *testing.T, f *File, pairs []Pair, tensors []TensorInfo, data func(i int) []byte) {
	t.Helper()
	if len(f.Keys) != len(pairs) || len(f.Metadata) != len(pairs) {
		t.Errorf("keys %q and %d values, want %d", f.Keys, len(f.Metadata), len(pairs))
	}
	for i, p := range pairs {
		if got := f.Metadata[p.Key]; f.Keys[i] != p.Key || !sameValue(got, p.Value) {
			t.Errorf("key %d is %q = %v, want %v", i, f.Keys[i], got, p)
		}
	}
	if len(f.Tensors) != len(tensors) {
		t.Fatalf("%d tensors, want %d", len(f.Tensors), len(tensors))
	}
	for i, want := range tensors {
		got := f.Tensors[i]
		if got.Name != want.Name || !reflect.DeepEqual(got.Dims, want.Dims) || got.Type != want.Type || !bytes.Equal(f.Data(got), data(i)) || f.Tensor(want.Name) != got {
			t.Errorf("tensor %d is %+v, want %+v", i, got, want)
		}
	}
}

func TestLayout(t *testing.T) {
	for _, alignment := range []uint32{0, 64} {
		for _, split := range []int64{0, 1 << 20, 3000, 1200} {
			pairs, tensors, data := layoutExample(40)
			if alignment != 0 {
				pairs = append(pairs, Pair{keyAlignment, alignment})
			}
			l, err := NewLayout(pairs, tensors, split)
			if err != nil {
				t.Fatal(err)
			}
			paths := writeFiles(t, l, t.TempDir(), tensors, data)
			if want := map[int64]int{0: 1, 1 << 20: 1, 3000: 3, 1200: 8}[split]; alignment == 0 && len(l.Shards) != want {
				t.Errorf("split %d: %d shards, want %d", split, len(l.Shards), want)
			}
			for i, path := range paths {
				if s := l.Shards[i]; split > 0 && s.Size > split || int64(len(s.Header))%max(int64(alignment), 32) != 0 {
					t.Errorf("split %d: shard %d has %d bytes, a header of %d", split, i, s.Size, len(s.Header))
				}
				if i > 0 {
					if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "name the first shard, "+paths[0]) {
						t.Errorf("opening %s: error %v", path, err)
					}
				}
			}
			f, err := Open(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(f.Paths(), paths) {
				t.Errorf("paths %q, want %q", f.Paths(), paths)
			}
			checkFile(t, f, pairs, tensors, data)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLayoutSplit has shards that are as full as they may be: one more tensor would not fit.
func TestLayoutSplit(t *testing.T) {
	pairs, tensors, _ := layoutExample(200)
	for split := int64(1000); split < 3000; split += 37 {
		l, err := NewLayout(pairs, tensors, split)
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for i, s := range l.Shards {
			from := next
			for next < len(tensors) && l.Places[next].Shard == i {
				next++
			}
			if s.Size > split || next == from {
				t.Errorf("split %d: shard %d has %d bytes and tensors %d .. %d", split, i, s.Size, from, next)
			}
			if next == len(tensors) {
				continue
			}
			p, err := encodePairs(pairs)
			if err != nil {
				t.Fatal(err)
			}
			if larger, _ := p.shard(i, len(l.Shards), len(tensors)).layout(tensors[from : next+1]); larger.Size <= split {
				t.Errorf("split %d: shard %d has %d bytes, but tensor %d would fit", split, i, s.Size, next)
			}
		}
		if next != len(tensors) {
			t.Errorf("split %d: %d of %d tensors are in shards", split, next, len(tensors))
		}
	}
}

func TestLayoutErrors(t *testing.T) {
	good := TensorInfo{"a", []int64{32}, Q4_0}
	deep := TensorInfo{"a", []int64{32, 1, 1, 1, 1}, Q4_0}
	for _, c := range []struct {
		pairs   []Pair
		tensors []TensorInfo
		split   int64
		want    string
	}{
		{nil, []TensorInfo{{"", []int64{1}, F32}}, 0, `tensor "": the name has 0 bytes`},
		{nil, []TensorInfo{{strings.Repeat("n", 64), []int64{1}, F32}}, 0, "the name has 64 bytes: llama.cpp takes 1 to 63"},
		{nil, []TensorInfo{{"a\x00", []int64{1}, F32}}, 0, "none of them zero"},
		{nil, []TensorInfo{good, good}, 0, `tensor "a" is given twice`},
		{nil, []TensorInfo{deep}, 0, `tensor "a": it has 5 dimensions: llama.cpp takes 1 to 4`},
		{nil, []TensorInfo{{"a", nil, F32}}, 0, "it has 0 dimensions"},
		{nil, []TensorInfo{{"a", []int64{32, 0}, Q4_0}}, 0, "its shape is [32 0]: want dimensions of 1 or more"},
		{nil, []TensorInfo{{"a", []int64{-32, -1}, Q4_0}}, 0, "its shape is [-32 -1]"},
		{nil, []TensorInfo{{"a", []int64{1 << 40, 1 << 40}, Q4_0}}, 0, "at most 2^56 elements"},
		{nil, []TensorInfo{{"a", []int64{128}, Q4_K}}, 0, "its rows of 128 weights are no whole number of blocks: Q4_K has blocks of 256"},
		{nil, []TensorInfo{{"a", []int64{32}, 5}}, 0, "type 5 was Q4_3, which llama.cpp has removed"},
		{nil, []TensorInfo{{"a", []int64{1 << 56}, f64}, {"b", []int64{1 << 56}, f64}, {"c", []int64{1 << 56}, f64}, {"d", []int64{1 << 56}, f64},
			{"e", []int64{1 << 56}, f64}, {"f", []int64{1 << 56}, f64}, {"g", []int64{1 << 56}, f64}, {"h", []int64{1 << 56}, f64}}, 0, "more than 2^62 bytes"},
		{[]Pair{{"", true}}, nil, 0, `key "" has 0 bytes`},
		{[]Pair{{strings.Repeat("k", 65536), true}}, nil, 0, "has 65536 bytes"},
		{[]Pair{{"k", true}, {"k", false}}, nil, 0, `key "k" is given twice`},
		{[]Pair{{"k", 1}}, nil, 0, `key "k": a value of Go type int: want an integer type with a size`},
		{[]Pair{{"k", [][]int32{}}}, nil, 0, "a value of Go type [][]int32"},
		{[]Pair{{"k", Array{Type: typeArray}}}, nil, 0, "an array of type 9"},
		{[]Pair{{"k", Array{typeInt32, 2, make([]byte, 9)}}}, nil, 0, "1 bytes behind the values"},
		{[]Pair{{"k", Array{typeString, 1, []byte("\x09\x00\x00\x00\x00\x00\x00\x00x")}}}, nil, 0, "takes 9 bytes"},
		{[]Pair{{"split.no", uint16(0)}}, nil, 0, `key "split.no" belongs to shards`},
		{[]Pair{{keyAlignment, uint32(48)}}, nil, 0, "general.alignment 48: want a power of two"},
		{nil, []TensorInfo{good, {"b", []int64{3200}, Q4_0}}, 1000, `tensor "b" makes a file of 2048 bytes alone, more than the 1000 bytes of a shard`},
		{nil, []TensorInfo{good}, -1, "shards of -1 bytes"},
	} {
		if _, err := NewLayout(c.pairs, c.tensors, c.split); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: error %v\nwant %s", c.pairs, c.tensors, err, c.want)
		}
	}
}

func TestShardLike(t *testing.T) {
	for _, c := range []struct{ path, name, want string }{
		{"b/y.gguf", "x-00001-of-00003.gguf", "b/y-00001-of-00003.gguf"},
		{"b/y.GGUF", "X-00001-OF-123456.GGUF", "b/y-00001-of-123456.gguf"},
		{"y", "y-00001-of-00003.gguf", "y-00001-of-00003.gguf"},
		{"y.gguf", "y.gguf", ""},
		{"y.gguf", "y-00001-of-00003.gqf", ""},
		{"y.gguf", "y-1-of-3.gguf", ""},
	} {
		if got := ShardLike(c.path, c.name); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.path, c.name, got, c.want)
		}
	}
	l := Layout{Shards: make([]ShardLayout, 2)}
	for _, path := range l.Paths("b/y.gguf") {
		if got := ShardLike("b/y.gguf", path[2:]); got != path {
			t.Errorf("%s: %q", path, got)
		}
	}
}
