package inspect

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// A GGUF is the content of a file's or a model's headers, for people and, as JSON, for
// programs: keys never change.
type GGUF struct {
	File     string       `json:"file"`           // the path, or the first shard's
	Version  uint32       `json:"format_version"` // of GGUF
	Files    []GGUFFile   `json:"files"`
	Metadata []GGUFPair   `json:"metadata"` // in the file's order
	Types    []GGUFType   `json:"types"`    // the types that occur, sorted by number
	Tensors  []GGUFTensor `json:"tensors"`  // in the file's order
	Totals   GGUFTotals   `json:"totals"`
}

type GGUFFile struct {
	Name       string `json:"name"` // without directory
	Bytes      int64  `json:"bytes"`
	Tensors    int    `json:"tensors"`
	DataOffset int64  `json:"data_offset"`
}

type GGUFPair struct {
	Key  string `json:"key"`
	Type string `json:"type"` // "uint32", "string"; of an array its elements', and Count is set
	// Value is a number, a boolean or a string; NaN and infinities are strings. The value of an array
	// is a list of the first 16 elements.
	Value any  `json:"value"`
	Count *int `json:"count,omitempty"` // of an array's elements
}

// shownElements is the number of elements of an array that an GGUF has.
const shownElements = 16

type GGUFType struct {
	Type     string `json:"type"`
	Readable bool   `json:"readable"` // whether this program can read the weights
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

type GGUFTensor struct {
	Name          string  `json:"name"`
	Type          string  `json:"type"`
	Shape         []int64 `json:"shape"` // row-major: GGUF's dimensions in the other order
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	File          string  `json:"file"`
	Offset        int64   `json:"offset"` // of the first byte in that file
}

type GGUFTotals struct {
	Files           int     `json:"files"`
	Tensors         int     `json:"tensors"`
	Quantized       int     `json:"quantized"`
	Elements        int64   `json:"elements"`
	Bytes           int64   `json:"bytes"`      // of the tensors
	FileBytes       int64   `json:"file_bytes"` // of the files, headers included
	BitsPerWeight   float64 `json:"bits_per_weight"`
	QuantElements   int64   `json:"quantized_elements"`
	QuantBytes      int64   `json:"quantized_bytes"`
	QuantBitsWeight float64 `json:"quantized_bits_per_weight"` // 0 if nothing is quantized
}

// OfGGUF returns the content of the headers of f and reads no data of tensors.
func OfGGUF(f *gguf.File) (*GGUF, error) {
	r := &GGUF{Version: f.Version, Files: make([]GGUFFile, f.Shards()), Metadata: []GGUFPair{}, Tensors: []GGUFTensor{}}
	for i := range r.Files {
		name, bytes, start := f.Shard(i)
		r.Files[i] = GGUFFile{Name: name, Bytes: bytes, DataOffset: start}
	}
	if paths := f.Paths(); len(paths) > 0 {
		r.File = paths[0]
	}
	err := f.Guard(func() error { // arrays are in the file's memory
		for _, key := range f.Keys {
			r.Metadata = append(r.Metadata, ggufPair(key, f.Metadata[key]))
		}
		return nil
	})
	r.Totals.Files, r.Totals.FileBytes = f.Shards(), f.Size()
	byType := make(map[gguf.TensorType]*GGUFType)
	for _, t := range f.Tensors {
		r.Files[t.Shard].Tensors++
		r.Tensors = append(r.Tensors, ggufTensor(t, r.Files[t.Shard].Name))
		if byType[t.Type] == nil {
			byType[t.Type] = &GGUFType{Type: t.Type.String(), Readable: t.Type.Decodable()}
		}
		byType[t.Type].add(t)
		r.Totals.add(t)
	}
	r.Types = make([]GGUFType, 0, len(byType))
	for _, kind := range slices.Sorted(maps.Keys(byType)) {
		r.Types = append(r.Types, *byType[kind])
	}
	r.Totals.BitsPerWeight = packing.BitsPerWeight(r.Totals.Bytes, r.Totals.Elements)
	r.Totals.QuantBitsWeight = packing.BitsPerWeight(r.Totals.QuantBytes, r.Totals.QuantElements)
	return r, err
}

func ggufTensor(t *gguf.Tensor, file string) GGUFTensor {
	shape := slices.Clone(t.Dims)
	slices.Reverse(shape)
	return GGUFTensor{Name: t.Name, Type: t.Type.String(), Shape: shape, Bytes: t.Size, BitsPerWeight: packing.BitsPerWeight(t.Size, t.Elements()), File: file, Offset: t.Offset}
}

func (s *GGUFType) add(t *gguf.Tensor) {
	s.Tensors++
	s.Elements += t.Elements()
	s.Bytes += t.Size
}

func (s *GGUFTotals) add(t *gguf.Tensor) {
	n := t.Elements()
	s.Tensors++
	s.Elements += n
	s.Bytes += t.Size
	if t.Type.BlockWeights() > 1 {
		s.Quantized++
		s.QuantElements += n
		s.QuantBytes += t.Size
	}
}

func ggufPair(key string, v any) GGUFPair {
	a, ok := v.(gguf.Array)
	if !ok {
		return GGUFPair{Key: key, Type: fmt.Sprintf("%T", v), Value: finite(v)}
	}
	row := GGUFPair{Key: key, Type: a.Type.String(), Count: &a.Len}
	list := make([]any, 0, shownElements)
	for x := range a.All() {
		if len(list) == shownElements {
			break
		}
		list = append(list, finite(x))
	}
	row.Value = list
	return row
}

// finite returns v, or the name of a number that JSON does not have.
func finite(v any) any {
	x := 0.0
	switch v := v.(type) {
	case float32:
		x = float64(v)
	case float64:
		x = v
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Sprint(v)
	}
	return v
}

// A Checkpoint is the headers, for people and, as JSON, for programs: keys never change.
type Checkpoint struct {
	Dir     string             `json:"dir"`
	Files   []CheckpointFile   `json:"files"`
	Dtypes  []CheckpointDtype  `json:"dtypes"`  // the dtypes that occur, sorted by name
	Tensors []CheckpointTensor `json:"tensors"` // sorted by name
	Totals  CheckpointTotals   `json:"totals"`
}

type CheckpointFile struct {
	Name         string            `json:"name"` // without directory
	Bytes        int64             `json:"bytes"`
	Tensors      int               `json:"tensors"`
	HeaderSHA256 string            `json:"header_sha256"` // hex, of the bytes before the data
	Metadata     map[string]string `json:"metadata"`      // __metadata__; null if absent
}

type CheckpointDtype struct {
	Dtype    string `json:"dtype"` // in the file's spelling
	Known    bool   `json:"known"` // whether this program can read the data
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

type CheckpointTensor struct {
	Name   string  `json:"name"`
	Dtype  string  `json:"dtype"` // in the file's spelling
	Shape  []int64 `json:"shape"` // row-major; empty for a scalar
	Bytes  int64   `json:"bytes"`
	File   string  `json:"file"`
	Offset int64   `json:"offset"` // of the first byte in that file
}

type CheckpointTotals struct {
	Files     int   `json:"files"`
	Tensors   int   `json:"tensors"`
	Elements  int64 `json:"elements"`
	Bytes     int64 `json:"bytes"`      // of the tensors
	FileBytes int64 `json:"file_bytes"` // of the files, headers included
}

// OfCheckpoint returns the content of the headers of c and reads no data.
func OfCheckpoint(c *safetensors.Checkpoint) *Checkpoint {
	r := &Checkpoint{Dir: c.Dir(), Files: make([]CheckpointFile, len(c.Files())), Dtypes: []CheckpointDtype{}, Tensors: make([]CheckpointTensor, len(c.Tensors()))}
	for i, f := range c.Files() {
		r.Files[i] = CheckpointFile{Name: f.Name, Bytes: f.Size, HeaderSHA256: hex.EncodeToString(f.HeaderSHA256[:]), Metadata: f.Metadata}
		r.Totals.FileBytes += f.Size
	}
	r.Totals.Files, r.Totals.Tensors = len(c.Files()), len(c.Tensors())
	index := map[string]int{} // indices in r.Dtypes
	for i, t := range c.Tensors() {
		r.Tensors[i] = CheckpointTensor{Name: t.Name, Dtype: t.DtypeName, Shape: t.Shape, Bytes: t.Size, File: c.Files()[t.File].Name, Offset: t.Offset}
		n := t.Numel()
		r.Files[t.File].Tensors++
		r.Totals.Elements += n
		r.Totals.Bytes += t.Size
		at, ok := index[t.DtypeName]
		if !ok {
			at = len(r.Dtypes)
			index[t.DtypeName] = at
			r.Dtypes = append(r.Dtypes, CheckpointDtype{Dtype: t.DtypeName, Known: t.Dtype != packing.DtypeNone})
		}
		d := &r.Dtypes[at]
		d.Tensors++
		d.Elements += n
		d.Bytes += t.Size
	}
	slices.SortFunc(r.Dtypes, func(a, b CheckpointDtype) int { return strings.Compare(a.Dtype, b.Dtype) })
	return r
}
