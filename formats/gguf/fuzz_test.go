package gguf

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add(example().bytes())
	f.Add(example().add("general.alignment", typeUint32, 0, 1, 0, 0).bytes())
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			checkError(t, err, len(data))
			return
		}
		end := int64(0)
		for _, tensor := range file.Tensors {
			if tensor.Offset < max(end, file.shards[0].start) || int64(len(file.Data(tensor))) != tensor.Size || tensor.Elements() < 1 || file.Tensor(tensor.Name) != tensor {
				t.Fatalf("%+v", tensor)
			}
			if tensor.Rows()*tensor.RowBytes() != tensor.Size {
				t.Fatalf("%+v: %d rows of %d bytes", tensor, tensor.Rows(), tensor.RowBytes())
			}
			end = tensor.Offset + tensor.Size
		}
		for _, v := range file.Metadata {
			if a, ok := v.(Array); ok {
				for range a.All() {
				}
			}
		}
		rewrite(t, file)
	})
}

// checkError demands an error of this package with a position in the file.
func checkError(t *testing.T, err error, size int) {
	t.Helper()
	bad, isFormat := errors.AsType[*FormatError](err)
	_, isUnsupported := errors.AsType[*UnsupportedError](err)
	if !isFormat && !isUnsupported || isFormat && (bad.Offset < 0 || bad.Offset > int64(size)) {
		t.Fatal(err)
	}
}

// rewrite writes the metadata and tensors of a file and reads them back.
func rewrite(t *testing.T, file *File) {
	var pairs []Pair
	for _, key := range file.Keys {
		pairs = append(pairs, Pair{key, file.Metadata[key]})
	}
	var tensors []TensorInfo
	total := int64(0)
	for _, tensor := range file.Tensors {
		tensors = append(tensors, TensorInfo{tensor.Name, tensor.Dims, tensor.Type})
		total += tensor.Size
	}
	l, err := NewLayout(pairs, tensors, 0)
	if err != nil { // writing is stricter than reading
		return
	}
	s := l.Shards[0]
	again, err := Parse(append(s.Header, make([]byte, s.Size-int64(len(s.Header)))...))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Keys, file.Keys) || len(again.Tensors) != len(file.Tensors) {
		t.Fatalf("keys %q and %d tensors, want %q and %d", again.Keys, len(again.Tensors), file.Keys, len(file.Tensors))
	}
	for i, tensor := range again.Tensors {
		if want := file.Tensors[i]; tensor.Name != want.Name || tensor.Size != want.Size || tensor.Offset != l.Places[i].Offset {
			t.Fatalf("%+v, want %+v at %d", tensor, want, l.Places[i].Offset)
		}
	}
}

// FuzzShards opens two files as the shards of a model.
func FuzzShards(f *testing.F) {
	pairs, tensors, _ := layoutExample(8)
	l, err := NewLayout(pairs, tensors, 1250)
	if err != nil || len(l.Shards) != 2 {
		f.Fatalf("%d shards, error %v", len(l.Shards), err)
	}
	var seeds [2][]byte
	for i, s := range l.Shards {
		seeds[i] = append(s.Header, make([]byte, s.Size-int64(len(s.Header)))...)
	}
	f.Add(seeds[0], seeds[1])
	f.Add(seeds[1], seeds[0])
	f.Add(seeds[0], seeds[0])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first, err := Parse(a)
		if err != nil {
			return
		}
		if err := first.join("x-00001-of-00002.gguf", func(path string) (*File, error) {
			if filepath.Base(path) != "x-00002-of-00002.gguf" {
				return nil, fs.ErrNotExist
			}
			return Parse(b)
		}); err != nil {
			return
		}
		for _, tensor := range first.Tensors {
			if int64(len(first.Data(tensor))) != tensor.Size || first.Tensor(tensor.Name) != tensor {
				t.Fatalf("%+v", tensor)
			}
		}
		if len(first.byName) != len(first.Tensors) || len(first.Keys) != len(first.Metadata) {
			t.Fatalf("%d names of %d tensors, %d keys of %d values", len(first.byName), len(first.Tensors), len(first.Keys), len(first.Metadata))
		}
	})
}

// FuzzBlocks decodes any bytes: sizes are checked, and no bits depend on the CPU. What can be taken
// apart gives the same bytes again.
func FuzzBlocks(f *testing.F) {
	for kind := range TensorType(len(typeTable)) {
		f.Add(uint32(kind), kind.BlockWeights(), bytes.Repeat([]byte{0x3c}, kind.BlockBytes()))
	}
	f.Add(uint32(Q4_0), 33, make([]byte, 18))
	f.Fuzz(func(t *testing.T, number uint32, n int, src []byte) {
		kind := TensorType(number)
		if n < 0 || n > 1<<14 {
			return
		}
		dst := make([]float32, n)
		err := kind.Decode(dst, src)
		if fits := kind.Decodable() && n%kind.BlockWeights() == 0 && n/kind.BlockWeights()*kind.BlockBytes() == len(src); (err == nil) != fits {
			t.Fatalf("%d weights of %s in %d bytes: error %v", n, kind, len(src), err)
		}
		if err != nil {
			return
		}
		for i, w := range dst {
			if w != w && kind.BlockWeights() > 1 && math.Float32bits(w) != 0x7fc00000 {
				t.Fatalf("weight %d is NaN %#x", i, math.Float32bits(w))
			}
		}
		var fields Fields
		if !kind.Encodable() || kind.Unpack(&fields, src) != nil {
			return
		}
		again := make([]byte, len(src))
		if err := kind.Encode(again, fields); err != nil || !sameBlocks(kind, again, src) {
			t.Fatalf("%s: error %v, %x becomes %x", kind, err, src, again)
		}
	})
}
