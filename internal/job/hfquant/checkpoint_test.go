package hfquant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// stored is a tensor of a checkpoint.
type stored struct {
	Part
	data []byte
}

func (p Part) bytes() int64 {
	n := int64(p.Dtype.Bits() / 8)
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// fileOf is a safetensors file of the tensors, whose data may be short.
func fileOf(metadata map[string]string, tensors ...stored) ([]byte, error) {
	header := map[string]any{}
	if metadata != nil {
		header["__metadata__"] = metadata
	}
	var data []byte
	for _, s := range tensors {
		at := len(data)
		data = append(append(data, s.data...), make([]byte, s.bytes()-int64(len(s.data)))...)
		header[s.Name] = map[string]any{"dtype": s.Dtype.String(), "shape": append([]int64{}, s.Shape...), "data_offsets": []int{at, len(data)}}
	}
	js, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(js))), js...), data...), nil
}

// storeIn writes a checkpoint into dir and opens it.
func storeIn(t testing.TB, dir string, metadata map[string]string, tensors ...stored) *safetensors.Checkpoint {
	t.Helper()
	file, err := fileOf(metadata, tensors...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), file, 0o666); err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// store is storeIn for a directory that the test does not look at.
func store(t testing.TB, tensors ...stored) *safetensors.Checkpoint {
	t.Helper()
	return storeIn(t, t.TempDir(), nil, tensors...)
}

// findOne returns the only weight of a checkpoint.
func findOne(t testing.TB, ck *safetensors.Checkpoint, config string) *Weight {
	t.Helper()
	q, err := Find(ck, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	if q == nil || len(q.Weights) != 1 {
		t.Fatalf("Find gives %+v, want one weight", q)
	}
	if len(q.Parts) != len(ck.Tensors()) {
		t.Errorf("%d of %d tensors are parts of the weight", len(q.Parts), len(ck.Tensors()))
	}
	return &q.Weights[0]
}

// readAll returns all rows of a weight.
func readAll(t testing.TB, w *Weight) []Row {
	t.Helper()
	rows := make([]Row, w.Shape[0])
	for n := range rows {
		if err := w.Read(&rows[n], int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	var again Row // keeps what it read last
	for n, row := range rows {
		if err := w.Read(&again, int64(n)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(again.Codes, row.Codes) || !slices.Equal(again.Scales, row.Scales) || !slices.Equal(again.Zeros, row.Zeros) || !slices.Equal(again.Offsets, row.Offsets) {
			t.Fatalf("row %d differs when it is read after row %d", n, n-1)
		}
	}
	return rows
}

// dequantize returns the weights that a row stands for.
func dequantize(s Scheme, r *Row) []float32 {
	out := make([]float32, len(r.Codes))
	for k, c := range r.Codes {
		g := 0
		if s.Group > 0 {
			g = k / int(s.Group)
		}
		switch s.Zeros {
		case NoZeros:
			out[k] = float32(float32(c) * r.Scales[g])
		case IntZeros:
			out[k] = float32(float32(int(c)-int(r.Zeros[g])) * r.Scales[g])
		case Offsets:
			out[k] = float32(float32(c)*r.Scales[g]) + r.Offsets[g]
		}
	}
	return out
}

// sumOf is the SHA-256 of rows of weights as little-endian float32 numbers, in hexadecimal.
// positive replaces -0 by 0.
func sumOf(s Scheme, rows []Row, positive bool) string {
	h := sha256.New()
	for i := range rows {
		for _, v := range dequantize(s, &rows[i]) {
			if positive && v == 0 {
				v = 0
			}
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// putAll returns the bytes of all parts of a layout, and fails if Put does not write each byte
// once.
func putAll(t testing.TB, l *Layout, rows []Row, step int64) []stored {
	t.Helper()
	parts := make([]stored, len(l.Parts))
	written := make([][]bool, len(l.Parts))
	for i, p := range l.Parts {
		parts[i] = stored{p, make([]byte, p.bytes())}
		if c := l.Constant(i); c != nil {
			parts[i].data = c
			if int64(len(c)) != p.bytes() {
				t.Fatalf("%s has %d bytes, want %d", p.Name, len(c), p.bytes())
			}
			continue
		}
		written[i] = make([]bool, p.bytes())
	}
	for first := int64(0); first < int64(len(rows)); first += step {
		err := l.Put(rows[first:min(first+step, int64(len(rows)))], first, func(part int, off int64, b []byte) error {
			copy(parts[part].data[off:], b)
			for i := range b {
				if written[part][off+int64(i)] {
					t.Fatalf("%s: byte %d is written twice", parts[part].Name, off+int64(i))
				}
				written[part][off+int64(i)] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range written {
		if at := slices.Index(w, false); at >= 0 {
			t.Fatalf("%s: byte %d is not written", parts[i].Name, at)
		}
	}
	return parts
}

// ownConfig fails unless the entry that Config gives says the same of the parts of w as their own.
func ownConfig(t testing.TB, f Format, w *Weight, parts []stored) {
	t.Helper()
	config, metadata, err := f.Config([]byte("{}"), []ModelWeight{{Name: w.Name, Shape: w.Shape, Scheme: &w.Scheme, Linear: f != MLX}})
	if err != nil {
		t.Fatal(err)
	}
	if again := findOne(t, storeIn(t, t.TempDir(), metadata, parts...), string(config)); again.Scheme != w.Scheme {
		t.Errorf("with the entry of Config the scheme is %v, want %v", again.Scheme, w.Scheme)
	}
}

// vector is a weight as a library packed it.
type vector struct {
	Config  json.RawMessage
	Tensors []struct {
		Name, Dtype string
		Shape       []int64
		Data        []byte
	}
	Bits        int
	Group, N, K int64
	Scales      string
	ZerosKind   Zeros  `json:"zeros_kind"`
	Codes       []byte // int8, rows of K
	Zeros       []byte // int8, rows of groups
	Dequantized string // SHA-256 of the weights as float32, see sumOf

	// Of torchao only.
	Linear   bool
	Metadata map[string]string
}

// vectors reads the vectors of a format. Each file names the library, its commit and the functions
// that packed the weights.
func vectors(t testing.TB, format string) []vector {
	t.Helper()
	var file struct{ Cases []vector }
	if err := json.Unmarshal(testshared.VectorsZst(t, "testdata/"+format+".json.zst"), &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func (v *vector) scheme() Scheme {
	d, _ := packing.ParseDtype(v.Scales)
	return Scheme{Bits: v.Bits, Group: v.Group, Zeros: v.ZerosKind, Scales: d}
}

func (v *vector) name() string {
	return fmt.Sprintf("%s [%d, %d] %s", v.Config, v.N, v.K, v.scheme())
}

// stored returns the tensors.
func (v *vector) stored() []stored {
	var all []stored
	for _, t := range v.Tensors {
		d, _ := packing.ParseDtype(t.Dtype)
		all = append(all, stored{Part{Name: t.Name, Dtype: d, Shape: t.Shape}, t.Data})
	}
	return all
}

// check compares a weight that was found, and its rows, with the vector.
func (v *vector) check(t *testing.T, w *Weight, rows []Row) {
	t.Helper()
	if w.Scheme != v.scheme() || !slices.Equal(w.Shape, []int64{v.N, v.K}) {
		t.Fatalf("%v of shape %v, want %v of [%d, %d]", w.Scheme, w.Shape, v.scheme(), v.N, v.K)
	}
	groups := w.Scheme.Groups(v.K)
	for n, row := range rows {
		for k, c := range row.Codes {
			if want := int8(v.Codes[int64(n)*v.K+int64(k)]); c != want {
				t.Fatalf("row %d, column %d: code %d, want %d", n, k, c, want)
			}
		}
		for g, z := range row.Zeros {
			if want := int8(v.Zeros[int64(n)*groups+int64(g)]); z != want {
				t.Fatalf("row %d, group %d: zero point %d, want %d", n, g, z, want)
			}
		}
	}
}

// equalParts compares what a layout wrote with the tensors of the vector.
func (v *vector) equalParts(t *testing.T, got []stored) {
	t.Helper()
	want := v.stored()
	if len(got) != len(want) {
		t.Fatalf("%d parts, want %d", len(got), len(want))
	}
	for i, p := range got {
		if p.Name != want[i].Name || p.Dtype != want[i].Dtype || !slices.Equal(p.Shape, want[i].Shape) {
			t.Fatalf("part %+v, want %+v", p.Part, want[i].Part)
		}
		if !bytes.Equal(p.data, want[i].data) {
			t.Errorf("%s: bytes differ", p.Name)
		}
	}
}
