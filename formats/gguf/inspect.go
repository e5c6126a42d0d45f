package gguf

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/packing"
)

// An Inspection is the content of a file's or a model's headers, for people and, as JSON, for
// programs: keys never change.
type Inspection struct {
	File     string        `json:"file"`           // the path, or the first shard's
	Version  uint32        `json:"format_version"` // of GGUF
	Files    []FileRow     `json:"files"`
	Metadata []MetadataRow `json:"metadata"` // in the file's order
	Types    []TypeTotal   `json:"types"`    // the types that occur, sorted by number
	Tensors  []TensorRow   `json:"tensors"`  // in the file's order
	Totals   Totals        `json:"totals"`
}

// A FileRow describes the file, or a shard.
type FileRow struct {
	Name       string `json:"name"` // without directory
	Bytes      int64  `json:"bytes"`
	Tensors    int    `json:"tensors"`
	DataOffset int64  `json:"data_offset"`
}

// A MetadataRow is a key and its value.
type MetadataRow struct {
	Key  string `json:"key"`
	Type string `json:"type"` // "uint32", "string"; of an array its elements', and Count is set
	// Value is a number, a boolean or a string; NaN and infinities are strings. Of an array it
	// is a list of the first 16 elements.
	Value any  `json:"value"`
	Count *int `json:"count,omitempty"` // of an array's elements
}

// shownElements is the number of elements of an array that an Inspection has.
const shownElements = 16

// A TypeTotal sums up the tensors of one type.
type TypeTotal struct {
	Type     string `json:"type"`
	Readable bool   `json:"readable"` // whether this program can read the weights
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// A TensorRow is a row of the table of tensors.
type TensorRow struct {
	Name          string  `json:"name"`
	Type          string  `json:"type"`
	Shape         []int64 `json:"shape"` // row-major: GGUF's dimensions in the other order
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	File          string  `json:"file"`
	Offset        int64   `json:"offset"` // of the first byte in that file
}

// Totals sums up the model.
type Totals struct {
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

// Inspect returns the content of the headers of f. It reads no data of tensors.
func Inspect(f *File) (*Inspection, error) {
	r := &Inspection{Version: f.Version, Files: make([]FileRow, len(f.shards)), Metadata: []MetadataRow{}, Tensors: []TensorRow{}}
	for i, s := range f.shards {
		row := FileRow{Bytes: int64(len(s.data)), DataOffset: s.start}
		if s.m != nil {
			row.Name = filepath.Base(s.m.Name())
		}
		r.Files[i] = row
	}
	if paths := f.Paths(); len(paths) > 0 {
		r.File = paths[0]
	}
	err := f.Guard(func() error { // arrays are in the file's memory
		for _, key := range f.Keys {
			r.Metadata = append(r.Metadata, metadataRow(key, f.Metadata[key]))
		}
		return nil
	})
	r.Totals.Files, r.Totals.FileBytes = len(f.shards), f.Size()
	byType := make(map[TensorType]*TypeTotal)
	for _, t := range f.Tensors {
		r.Files[t.Shard].Tensors++
		r.Tensors = append(r.Tensors, tensorRow(t, r.Files[t.Shard].Name))
		if byType[t.Type] == nil {
			byType[t.Type] = &TypeTotal{Type: t.Type.String(), Readable: t.Type.Decodable()}
		}
		byType[t.Type].add(t)
		r.Totals.add(t)
	}
	r.Types = make([]TypeTotal, 0, len(byType))
	for kind := range TensorType(len(typeTable)) {
		if byType[kind] != nil {
			r.Types = append(r.Types, *byType[kind])
		}
	}
	r.Totals.BitsPerWeight = packing.BitsPerWeight(r.Totals.Bytes, r.Totals.Elements)
	r.Totals.QuantBitsWeight = packing.BitsPerWeight(r.Totals.QuantBytes, r.Totals.QuantElements)
	return r, err
}

func tensorRow(t *Tensor, file string) TensorRow {
	shape := slices.Clone(t.Dims)
	slices.Reverse(shape)
	return TensorRow{Name: t.Name, Type: t.Type.String(), Shape: shape, Bytes: t.Size, BitsPerWeight: packing.BitsPerWeight(t.Size, t.Elements()), File: file, Offset: t.Offset}
}

func (s *TypeTotal) add(t *Tensor) {
	s.Tensors++
	s.Elements += t.Elements()
	s.Bytes += t.Size
}

func (s *Totals) add(t *Tensor) {
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

func metadataRow(key string, v any) MetadataRow {
	a, ok := v.(Array)
	if !ok {
		return MetadataRow{Key: key, Type: fmt.Sprintf("%T", v), Value: finite(v)}
	}
	row := MetadataRow{Key: key, Type: a.Type.String(), Count: &a.Len}
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

// finite returns v, or its name if it is a number that JSON does not have.
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
