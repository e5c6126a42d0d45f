package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// dirWith makes a directory with these files.
func dirWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tiny returns a file with a tensor of one byte for each name.
func tiny(names ...string) string {
	var h []string
	for i, n := range names {
		h = append(h, fmt.Sprintf(`%q:{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, n, i, i+1))
	}
	return string(image("{"+strings.Join(h, ",")+"}", len(names)))
}

// tensorNames lists "name file" of all tensors.
func tensorNames(c *Checkpoint) []string {
	var names []string
	for _, t := range c.Tensors() {
		names = append(names, t.Name+" "+c.Files()[t.File].Name)
	}
	return names
}

func TestFindFiles(t *testing.T) {
	const index = `{"metadata":{"total_size":2.5e0,"x":[null,true,false,-1,{"a":{}},[]]},"weight_map":{"b":"2.safetensors","a":"1.safetensors"},"other":{}}` + "\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		open  string
		want  []string // nil: an error
		err   string
	}{
		{name: "single", files: map[string]string{"model.safetensors": tiny("a"), "config.json": "{}"}, want: []string{"a model.safetensors"}},
		{name: "single among others", files: map[string]string{"model.safetensors": tiny("a"), "z.safetensors": "?"}, want: []string{"a model.safetensors"}},
		{name: "the only one", files: map[string]string{"x.safetensors": tiny("a"), ".model.safetensors.gq-0.tmp": "?"}, want: []string{"a x.safetensors"}},
		{name: "named file", files: map[string]string{"x.safetensors": tiny("a"), "y.bin": tiny("b")}, open: "y.bin", want: []string{"b y.bin"}},
		{name: "two", files: map[string]string{"x.safetensors": tiny("a"), "y.safetensors": tiny("b")}, err: "has 2 .safetensors files (x.safetensors, y.safetensors, ...)"},
		{name: "none", files: map[string]string{"x.bin": tiny("a")}, err: "has no .safetensors file"},
		{name: "pickles", files: map[string]string{"pytorch_model.bin": "PK\x03\x04"}, err: "no .safetensors file; pytorch_model.bin is a zip archive (as PyTorch's .bin, .pt and .pth files are): convert it"},
		{name: "GGUF", files: map[string]string{"m.gguf": "GGUF\x03\x00\x00\x00"}, err: "m.gguf is a GGUF file: name the file itself, or name the safetensors checkpoint that it was made of"},
		{name: "named GGUF", files: map[string]string{"m.gguf": "GGUF\x03\x00\x00\x00"}, open: "m.gguf", err: "this is a GGUF file, not a safetensors file: name the"},
		{name: "GGUF named .gqf", files: map[string]string{"m.gqf": "GGUF\x03\x00\x00\x00"}, err: "m.gqf is a GGUF file: rename it to m.gguf, because commands go by the ending"},
		{name: "named GGUF named .gqf", files: map[string]string{"m.gqf": "GGUF\x03\x00\x00\x00"}, open: "m.gqf", err: "this is a GGUF file, not a safetensors file: rename it to m.gguf, because"},
		{name: "GGUF named .safetensors", files: map[string]string{"model.safetensors": "GGUF\x03\x00\x00\x00"}, err: "this is a GGUF file, not a safetensors file: rename it to model.gguf, because"},
		{name: "named pickle", files: map[string]string{"m.pt": "\x80\x02}q\x00X\x00\x00\x00"}, open: "m.pt", err: "this is a Python pickle"},
		{name: "named .gqf", files: map[string]string{"m.gqf": "\x89GQF\r\n\x1a\n"}, open: "m.gqf", err: "this is a .gqf file, not a safetensors file: it is quantized already"},
		{name: "LFS pointer", files: map[string]string{"model.safetensors": "version https://git-lfs.github.com/spec/v1\n"}, err: "run git lfs pull"},
		{name: "missing", open: "y", err: "no such file"},
		{name: "shards", files: map[string]string{"model.safetensors.index.json": index, "2.safetensors": tiny("b"), "1.safetensors": tiny("a")},
			want: []string{"a 1.safetensors", "b 2.safetensors"}},
		{name: "tensor that the index leaves out", files: map[string]string{"model.safetensors.index.json": index, "2.safetensors": tiny("b", "c"), "1.safetensors": tiny("a"), "3.safetensors": "?"},
			want: []string{"a 1.safetensors", "b 2.safetensors", "c 2.safetensors"}},
		{name: "index of another name", files: map[string]string{"v.safetensors.index.json": index, "model.safetensors": "?", "2.safetensors": tiny("b"), "1.safetensors": tiny("a")},
			open: "v.safetensors.index.json", want: []string{"a 1.safetensors", "b 2.safetensors"}},
		{name: "index and another single file", files: map[string]string{"model.safetensors.index.json": index, "model.safetensors": tiny("z"), "2.safetensors": tiny("b"), "1.safetensors": tiny("a")},
			err: "also has model.safetensors"},
		{name: "index of the single file", files: map[string]string{"model.safetensors.index.json": `{"weight_map":{"a":"model.safetensors"}}`, "model.safetensors": tiny("a")},
			want: []string{"a model.safetensors"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := dirWith(t, tt.files)
			c, err := Open(filepath.Join(dir, tt.open), Options{})
			if is := IsCheckpoint(filepath.Join(dir, tt.open)); is != (err == nil) && !strings.HasPrefix(tt.name, "index and") && !strings.HasPrefix(tt.err, "this is") && tt.name != "LFS pointer" {
				t.Errorf("IsCheckpoint is %v, error %v", is, err)
			}
			if tt.want == nil {
				if err == nil || !strings.Contains(err.Error(), tt.err) && !(tt.name == "missing" && errors.Is(err, fs.ErrNotExist)) {
					t.Fatalf("error is %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if d := cmp.Diff(tt.want, tensorNames(c)); d != "" {
				t.Error(d)
			}
			if c.Dir() != dir {
				t.Errorf("directory %s, want %s", c.Dir(), dir)
			}
		})
	}
}

func TestMalformedIndex(t *testing.T) {
	const name = "model.safetensors.index.json"
	deep := strings.Repeat("[", 200)
	for _, tt := range []struct {
		name, index, file string
		at                int64
		want              string
	}{
		{"empty", "", name, 0, "expected '{'"},
		{"array", "[]", name, 0, "expected '{'"},
		{"byte order mark", "\ufeff{}", name, 0, "expected '{'"},
		{"no map", `{"metadata":{}}`, name, 0, "no weight_map"},
		{"empty map", `{"weight_map":{}}`, name, 0, "weight_map is empty"},
		{"map twice", `{"weight_map":{"a":"1.safetensors"},"weight_map":{}}`, name, 36, "weight_map appears twice"},
		{"map is an array", `{"weight_map":[]}`, name, 14, "expected '{'"},
		{"file is a number", `{"weight_map":{"a":1}}`, name, 19, "expected '\"'"},
		{"something after", `{"weight_map":{"a":"1.safetensors"}} x`, name, 37, "followed by 'x'"},
		{"invalid UTF-8", "{\"weight_map\":{\"\xff\":\"1.safetensors\"}}", name, 16, "invalid UTF-8"},
		{"deep", `{"metadata":` + deep, name, 12 + 101, "more than 100 deep"},
		{"bad word", `{"metadata":nil}`, name, 12, "expected a value"},
		{"bad number", `{"metadata":-}`, name, 12, "malformed number"},
		{"bad fraction", `{"metadata":1.}`, name, 12, "malformed number"},
		{"bad exponent", `{"metadata":1e+}`, name, 12, "malformed number"},
		{"leading zero", `{"metadata":01}`, name, 13, "expected ',' or '}'"},
		{"array without comma", `{"metadata":[1 2]}`, name, 15, "expected ',' or ']'"},
		{"missing file", `{"weight_map":{"a":"1.safetensors","x":"9.safetensors"}}`, name, 35, `"9.safetensors", which cannot be found`},
		{"missing tensor", `{"weight_map":{"a":"1.safetensors","x":"1.safetensors"}}`, name, 35, `tensor "x", which none of its files has`},
		{"wrong file", `{"weight_map":{"a":"2.safetensors","b":"1.safetensors"}}`, name, 15, `in "2.safetensors", but it is in 1.safetensors`},
		{"tensor twice", `{"weight_map":{"a":"1.safetensors","a":"1.safetensors"}}`, name, 35, "twice"},
		{"tensor in two shards", `{"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"3.safetensors"}}`, "3.safetensors", 9, `tensor "a" is in 1.safetensors as well`},
		{"file elsewhere", `{"weight_map":{"a":"../1.safetensors"}}`, name, 15, "not the name of a file beside the index"},
		{"absolute file", `{"weight_map":{"a":"/etc/passwd"}}`, name, 15, "not the name of a file"},
		{"no file", `{"weight_map":{"a":""}}`, name, 15, "not the name of a file"},
		{"a directory", `{"weight_map":{"a":".."}}`, name, 15, "not the name of a file"},
		{"backslash", `{"weight_map":{"a":"x\\y"}}`, name, 15, "not the name of a file"},
		{"bad shard", `{"weight_map":{"a":"bad.safetensors"}}`, "bad.safetensors", 0, "fewer than the 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := dirWith(t, map[string]string{name: tt.index, "1.safetensors": tiny("a"), "2.safetensors": tiny("b"), "3.safetensors": tiny("a", "c"), "bad.safetensors": "?"})
			_, err := Open(dir, Options{})
			wantFormatError(t, err, tt.file, tt.at, tt.want)
		})
	}
	dir := dirWith(t, map[string]string{name: `{"weight_map":{"a":"1.safetensors"}}`, "1.safetensors": tiny("a")})
	_, err := Open(dir, Options{MaxHeaderBytes: 35})
	wantFormatError(t, err, name, 0, "36 bytes, more than the limit")
	if err := os.Mkdir(filepath.Join(dir, "d.safetensors"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "d.safetensors"), Options{}); err == nil {
		t.Error("an empty directory was opened")
	}
}

func TestBytes(t *testing.T) {
	c, err := openImage(t, image(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F7","shape":[2],"data_offsets":[3,4]},"c":{"dtype":"I16","shape":[0],"data_offsets":[4,4]}}`, 4), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.Lookup("a")
	v, err := c.Bytes(a)
	if err != nil || !bytes.Equal(v, []byte{0, 1, 2}) || cap(v) != 3 {
		t.Errorf("view is %v of capacity %d, %v", v, cap(v), err)
	}
	empty, _ := c.Lookup("c")
	if v, err := c.Bytes(empty); err != nil || len(v) != 0 || cap(v) != 0 {
		t.Errorf("view is %v of capacity %d, %v", v, cap(v), err)
	}
	b, _ := c.Lookup("b")
	var ue *UnsupportedError
	if _, err := c.Bytes(b); !errors.As(err, &ue) || ue.Tensor != "b" || !strings.Contains(err.Error(), `"F7"`) {
		t.Errorf("unknown dtype: %v", err)
	}
	if _, ok := c.Lookup("d"); ok {
		t.Error("found a tensor that is not there")
	}
	for _, forged := range []Tensor{{Dtype: packing.U8, File: 1}, {Dtype: packing.U8, File: -1}, {Dtype: packing.U8, Offset: -1}, {Dtype: packing.U8, Size: 1 << 20}, {Dtype: packing.U8, Offset: 10, Size: math.MaxInt64}} {
		if _, err := c.Bytes(forged); err == nil {
			t.Errorf("a view of %+v", forged)
		}
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.Bytes(a); err == nil {
		t.Error("a view of a closed checkpoint")
	}
}

// TestRealModels checks known facts about real models, and that every value is readable and finite.
func TestRealModels(t *testing.T) {
	shared := filepath.Join(testshared.Dir(t), "models")
	for _, tt := range []struct {
		path    string
		tensors int
		dtype   packing.Dtype
		name    string
		shape   []int64
		bytes   int64
	}{
		{"books1.3M-bf16", 56, packing.BF16, "model.embed_tokens.weight", []int64{1024, 128}, 2624768},
		{"books3.7M-bf16", 38, packing.BF16, "model.norm.weight", []int64{256}, 7344640},
		{"stories260K-bf16", 47, packing.BF16, "model.layers.4.mlp.down_proj.weight", []int64{64, 172}, 520064},
		{"stories260K-f32", 47, packing.F32, "model.layers.0.mlp.gate_proj.weight", []int64{172, 64}, 1040128},
		{"weights/ppocrv4-rec-f32.safetensors", 122, packing.F32, "linear_85.w_0", []int64{120, 6625}, 10760436},
		{"weights/templategpt-llama3-1m-f32.safetensors", 48, packing.F32, "token_embedder.weight", []int64{2048, 128}, 4987904},
	} {
		t.Run(tt.path, func(t *testing.T) {
			c, err := Open(filepath.Join(shared, tt.path), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			total := int64(0)
			for _, ts := range c.Tensors() {
				total += ts.Size
				if ts.Dtype != tt.dtype {
					t.Errorf("%s is %v", ts.Name, ts.Dtype)
				}
				rows, cols := ts.Matrix()
				x := make([]float32, rows*cols)
				if err := c.ReadRows(x, ts, 0, int(rows)); err != nil {
					t.Error(err)
				}
				if i := slices.IndexFunc(x, func(v float32) bool { return v-v != 0 }); i >= 0 {
					t.Errorf("value %d of %s is %v", i, ts.Name, x[i])
				}
			}
			if len(c.Tensors()) != tt.tensors || total != tt.bytes {
				t.Errorf("%d tensors of %d bytes, want %d of %d", len(c.Tensors()), total, tt.tensors, tt.bytes)
			}
			ts, ok := c.Lookup(tt.name)
			if !ok || !slices.Equal(ts.Shape, tt.shape) {
				t.Errorf("%s: shape %v, want %v", tt.name, ts.Shape, tt.shape)
			}
			if err := c.Unchanged(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFixtureModel(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	c, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := c.Files()[0]
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw[:8+6136])
	if f.Name != "model.safetensors" || f.Size != 2630912 || f.HeaderSHA256 != sum || f.Metadata["format"] != "pt" {
		t.Errorf("file is %+v, want header %s", f, hex.EncodeToString(sum[:]))
	}
	ts, _ := c.Lookup("model.embed_tokens.weight")
	if ts.Offset != 8+6136 || ts.Size != 262144 || ts.Numel() != 131072 {
		t.Errorf("%+v", ts)
	}
}

// shrink truncates an open file, if the system allows it.
func shrink(t *testing.T, path string, size int64) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let mapped files shrink")
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedWhileRead(t *testing.T) {
	const rows, cols = 64, 4096
	header := one(fmt.Sprintf(`{"dtype":"%%s","shape":[%d,%d],"data_offsets":[0,%%d]}`, rows, cols))
	for _, d := range []packing.Dtype{packing.F64, packing.F32, packing.BF16, packing.F16, packing.F8E4M3} {
		t.Run(d.String(), func(t *testing.T) {
			size := rows * cols * d.Bits() / 8
			c, err := openImage(t, image(fmt.Sprintf(header, d, size), size), Options{})
			if err != nil {
				t.Fatal(err)
			}
			ts := c.Tensors()[0]
			keep := ts.Offset + ts.Size/2
			shrink(t, filepath.Join(c.Dir(), c.Files()[0].Name), keep)
			x := make([]float32, rows*cols)
			if err := c.ReadRows(x[:cols], ts, 0, 1); err != nil {
				t.Errorf("a row that is still there: %v", err)
			}
			var fe *FormatError
			err = c.ReadRows(x, ts, 0, rows)
			if !errors.As(err, &fe) || fe.Offset < keep || fe.Offset >= ts.Offset+ts.Size || !strings.Contains(err.Error(), "truncated while it was read") {
				t.Errorf("error is %v", err)
			}
			b, _ := c.Bytes(ts)
			sum := 0
			err = c.Guard(func() error {
				for _, v := range b {
					sum += int(v)
				}
				return nil
			})
			if !errors.As(err, &fe) {
				t.Errorf("error is %v, the sum %d", err, sum)
			}
		})
	}
}

// TestUnchanged: within its last page a shortened file reads as zeros, without a fault.
func TestUnchanged(t *testing.T) {
	path := writeFile(t, "x.safetensors", image(one(`{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}`), 1000))
	c, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Unchanged(); err != nil {
		t.Error(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	wantFormatError(t, c.Unchanged(), "x.safetensors", 0, "was changed while it was read")
	shrink(t, path, 500)
	wantFormatError(t, c.Unchanged(), "x.safetensors", 500, "was truncated")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := c.Unchanged(); err != nil {
		t.Errorf("a removed file is still mapped: %v", err)
	}
}
