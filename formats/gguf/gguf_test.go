package gguf

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// testTensor is a tensor of a file that a test writes.
type testTensor struct {
	name   string
	dims   []uint64
	kind   uint32
	data   []byte
	offset int64 // added to the right offset
}

// testFile is a file, written field by field according to the format.
type testFile struct {
	magic   string // default: GGUF
	version uint32 // default: 3
	align   int    // of the data; default: 32
	pairs   []byte // keys, types and values
	count   uint64 // of pairs
	tensors []testTensor
	number  uint64 // of tensors; default: len(tensors)
}

func text(s string) []byte { return append(le.AppendUint64(nil, uint64(len(s))), s...) }

// add appends a pair.
func (f testFile) add(key string, kind ValueType, value ...byte) testFile {
	f.pairs = append(le.AppendUint32(append(f.pairs[:len(f.pairs):len(f.pairs)], text(key)...), uint32(kind)), value...)
	f.count++
	return f
}

func (f testFile) bytes() []byte {
	if f.magic == "" {
		f.magic = Magic
	}
	if f.version == 0 {
		f.version = 3
	}
	if f.align == 0 {
		f.align = 32
	}
	if f.number == 0 {
		f.number = uint64(len(f.tensors))
	}
	b := le.AppendUint32([]byte(f.magic), f.version)
	b = append(le.AppendUint64(le.AppendUint64(b, f.number), f.count), f.pairs...)
	pad := func(b []byte) []byte { return append(b, make([]byte, (f.align-len(b)%f.align)%f.align)...) }
	var data []byte
	for _, t := range f.tensors {
		b = le.AppendUint32(append(b, text(t.name)...), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint64(le.AppendUint32(b, t.kind), uint64(int64(len(data))+t.offset))
		data = pad(append(data, t.data...))
	}
	return append(pad(b), data...)
}

// example has a value of each type, and tensors with and without blocks.
func example() testFile {
	f := testFile{tensors: []testTensor{
		{name: "a", dims: []uint64{3, 2}, kind: 0, data: []byte("aaaaBBBBccccDDDDeeeeFFFF")},
		{name: "scalar", kind: 26, data: []byte{1, 2, 3, 4}},
		{name: "q", dims: []uint64{64, 1}, kind: 2, data: []byte(strings.Repeat("0123456789abcdefgh", 2))},
	}}
	return f.add("u8", typeUint8, 200).add("i8", typeInt8, 200).add("u16", typeUint16, 1, 2).add("i16", typeInt16, 0, 255).
		add("u32", typeUint32, 1, 0, 0, 1).add("i32", typeInt32, 255, 255, 255, 255).add("f32", typeFloat32, 0, 0, 0x80, 0x3f).
		add("bool", typeBool, 1).add("string", typeString, text("täxt")...).add("u64", typeUint64, 1, 0, 0, 0, 0, 0, 0, 128).
		add("i64", typeInt64, 255, 255, 255, 255, 255, 255, 255, 255).add("f64", typeFloat64, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f).
		add("list", typeArray, append(le.AppendUint64(le.AppendUint32(nil, uint32(typeInt16)), 3), 1, 0, 2, 0, 3, 0)...).
		add("words", typeArray, append(append(le.AppendUint64(le.AppendUint32(nil, uint32(typeString)), 2), text("x")...), text("")...)...).
		add("none", typeArray, le.AppendUint64(le.AppendUint32(nil, uint32(typeString)), 0)...)
}

func TestParse(t *testing.T) {
	aligned := example().add("general.alignment", typeUint32, 0, 1, 0, 0)
	aligned.align = 256
	second := example()
	second.version = 2
	for name, file := range map[string]testFile{"plain": example(), "alignment": aligned, "version 2": second} {
		f, err := Parse(file.bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		delete(f.Metadata, "general.alignment")
		want := map[string]any{
			"u8": uint8(200), "i8": int8(-56), "u16": uint16(0x201), "i16": int16(-256), "u32": uint32(0x1000001), "i32": int32(-1),
			"f32": float32(1), "bool": true, "string": "täxt", "u64": uint64(1<<63 + 1), "i64": int64(-1), "f64": 1.0,
			"list":  Array{typeInt16, 3, []byte{1, 0, 2, 0, 3, 0}},
			"words": Array{typeString, 2, append(text("x"), text("")...)}, "none": Array{typeString, 0, []byte{}},
		}
		if !reflect.DeepEqual(f.Metadata, want) {
			t.Errorf("%s: %v\nwant %v", name, f.Metadata, want)
		}
		if len(f.Tensors) != 3 || int(f.shards[0].start)%max(file.align, 32) != 0 || f.Version != max(file.version, 2)+uint32(map[bool]int{true: 1}[file.version == 0]) {
			t.Fatalf("%s: %d tensors, data at %d, version %d", name, len(f.Tensors), f.shards[0].start, f.Version)
		}
		for i, tensor := range f.Tensors {
			from := file.tensors[i]
			elements := uint64(1)
			for j, d := range from.dims {
				elements *= d
				if tensor.Dims[j] != int64(d) {
					t.Errorf("%s: tensor %s has dimensions %d", name, from.name, tensor.Dims)
				}
			}
			if tensor.Name != from.name || uint32(tensor.Type) != from.kind || uint64(tensor.Elements()) != elements || string(f.Data(tensor)) != string(from.data) {
				t.Errorf("%s: tensor %+v with data %q, want %+v", name, tensor, f.Data(tensor), from)
			}
		}
	}
}

func TestParseErrors(t *testing.T) {
	edit := func(f func(f *testFile)) testFile {
		file := example()
		f(&file)
		return file
	}
	tensor := func(f func(t *testTensor)) testFile { return edit(func(file *testFile) { f(&file.tensors[0]) }) }
	whole := example().bytes()
	// Offset behind the pairs, where the tensors' descriptions begin.
	pairs := 24 + len(example().pairs)
	for _, c := range []struct {
		name   string
		file   testFile
		want   string
		offset int
	}{
		{"magic", testFile{magic: "GGML"}, "not a GGUF file", 0},
		{"version", testFile{version: 4}, "GGUF version 4 (0x4): only versions 2 and 3", 4},
		{"big-endian", testFile{version: 3 << 24}, "GGUF version 50331648 (0x3000000)", 4},
		{"too many tensors", edit(func(f *testFile) { f.number = 1 << 60 }), "1152921504606846976 tensors: more than the limit of 131072", 8},
		{"more tensors than bytes", edit(func(f *testFile) { f.number = 1 << 17 }), "131072 tensors: the rest of the file has room for ", 8},
		{"too many keys", edit(func(f *testFile) { f.count = math.MaxUint64 }), "18446744073709551615 keys: more than the limit of 65536", 16},
		{"more keys than bytes", edit(func(f *testFile) { f.count = 1 << 16 }), "65536 keys: the rest of the file has room for ", 16},
		{"alignment", example().add("general.alignment", typeUint32, 24, 0, 0, 0), "general.alignment 24: want a power of two", pairs + 8 + 17 + 4},
		{"alignment's type", example().add("general.alignment", typeUint8, 32), "general.alignment 32: want a power of two", pairs + 8 + 17 + 4},
		{"key twice", example().add("u8", typeUint8, 1), `key "u8" appears twice`, pairs},
		{"long key", example().add(strings.Repeat("k", 1<<16), typeUint8, 1), "a key has 65536 bytes", pairs},
		{"boolean", example().add("x", typeBool, 2), `the value of "x" is 2, want 0 or 1`, pairs + 13},
		{"boolean of an array", example().add("x", typeArray, append(le.AppendUint64([]byte{7, 0, 0, 0}, 3), 1, 0, 5)...), `the value of "x" has the boolean 5, want 0 or 1`, pairs + 13 + 12 + 2},
		{"long name", tensor(func(t *testTensor) { t.name = strings.Repeat("n", 1<<16) }), "a tensor's name has 65536 bytes", pairs},
		{"value type", example().add("x", 13), `the value of "x" has type 13`, pairs + 13},
		{"large value type", example().add("x", math.MaxUint32), `the value of "x" has type 4294967295`, pairs + 13},
		{"nested array", example().add("x", typeArray, append([]byte{9, 0, 0, 0}, make([]byte, 8)...)...), `the value of "x" is an array of type 9`, pairs + 13},
		{"long array", example().add("x", typeArray, le.AppendUint64([]byte{12, 0, 0, 0}, 1<<61)...), `2305843009213693952 values in the value of "x": the rest of the file has room for`, pairs + 17},
		{"array of long strings", example().add("x", typeArray, le.AppendUint64(le.AppendUint64([]byte{8, 0, 0, 0}, 1), 1<<63)...), `the value of "x" takes 9223372036854775808 bytes`, pairs + 33},
		{"long string", example().add("x", typeString, le.AppendUint64(nil, math.MaxUint64)...), `the value of "x" takes 18446744073709551615 bytes, the file has `, pairs + 21},
		{"dimensions", tensor(func(t *testTensor) { t.dims = []uint64{1, 1, 1, 1, 6} }), `tensor "a" has 5 dimensions, more than 4`, pairs},
		{"dimension 0", tensor(func(t *testTensor) { t.dims = []uint64{6, 0} }), `tensor "a" has a dimension of 0: want 1 or more`, pairs},
		{"product", tensor(func(t *testTensor) { t.dims = []uint64{1 << 32, 1 << 32} }), `tensor "a" has a dimension of 4294967296`, pairs},
		{"size", tensor(func(t *testTensor) { t.dims = []uint64{1 << 56} }), `tensor "a" takes 288230376151711744 bytes from offset 0 on`, pairs},
		{"type", tensor(func(t *testTensor) { t.kind = 4 }), `tensor "a": type 4 was Q4_2, which llama.cpp has removed`, pairs + 9 + 4 + 16},
		{"unknown type", tensor(func(t *testTensor) { t.kind = 43 }), `tensor "a": type 43 is not a type that this program knows`, pairs + 9 + 4 + 16},
		{"block", tensor(func(t *testTensor) { t.kind = 12 }), `tensor "a" has rows of [3] elements: Q4_K has blocks of 256`, pairs},
		{"offset", tensor(func(t *testTensor) { t.offset = 32 }), `the data of tensor "a" are at offset 32, want 0, behind`, pairs},
		{"twice", edit(func(f *testFile) { f.tensors[1].name = "a" }), `tensor "a" appears twice`, pairs + 41},
		{"cut off", edit(func(f *testFile) { f.tensors[2].dims[1] = 2 }), `the data of tensor "q" end at byte `, pairs + 41 + 30},
	} {
		_, err := Parse(c.file.bytes())
		var bad *FormatError
		var unsupported *UnsupportedError
		at := int64(-1)
		switch {
		case errors.As(err, &bad):
			at = bad.Offset
		case errors.As(err, &unsupported):
			at = unsupported.Offset
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || at != int64(c.offset) {
			t.Errorf("%s: error %v\nwant byte %d: %s", c.name, err, c.offset, c.want)
		}
	}
	for n := range whole[:len(whole)-28] { // without the last tensor's padding
		if _, err := Parse(whole[:n]); err == nil {
			t.Errorf("%d bytes of %d are a file", n, len(whole))
		}
	}
}
