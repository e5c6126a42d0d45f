package safetensors

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/packing"
)

// An Inspection is the content of a checkpoint's headers, for people and, as JSON, for programs:
// keys never change.
type Inspection struct {
	Dir     string       `json:"dir"`
	Files   []FileRow    `json:"files"`
	Dtypes  []DtypeTotal `json:"dtypes"`  // the dtypes that occur, sorted by name
	Tensors []TensorRow  `json:"tensors"` // sorted by name
	Totals  Totals       `json:"totals"`
}

// A FileRow describes one file of the checkpoint.
type FileRow struct {
	Name         string            `json:"name"` // without directory
	Bytes        int64             `json:"bytes"`
	Tensors      int               `json:"tensors"`
	HeaderSHA256 string            `json:"header_sha256"` // hex, of the bytes before the data
	Metadata     map[string]string `json:"metadata"`      // __metadata__; null if absent
}

// A DtypeTotal sums up the tensors of one dtype.
type DtypeTotal struct {
	Dtype    string `json:"dtype"` // as the file spells it
	Known    bool   `json:"known"` // whether this program can read the data
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// A TensorRow is a row of the table of tensors.
type TensorRow struct {
	Name   string  `json:"name"`
	Dtype  string  `json:"dtype"` // as the file spells it
	Shape  []int64 `json:"shape"` // row-major; empty for a scalar
	Bytes  int64   `json:"bytes"`
	File   string  `json:"file"`
	Offset int64   `json:"offset"` // of the first byte in that file
}

// Totals sums up the checkpoint.
type Totals struct {
	Files     int   `json:"files"`
	Tensors   int   `json:"tensors"`
	Elements  int64 `json:"elements"`
	Bytes     int64 `json:"bytes"`      // of the tensors
	FileBytes int64 `json:"file_bytes"` // of the files, headers included
}

// Inspect returns the content of the headers of c. It reads no data.
func Inspect(c *Checkpoint) *Inspection {
	r := &Inspection{Dir: c.dir, Files: make([]FileRow, len(c.files)), Dtypes: []DtypeTotal{}, Tensors: make([]TensorRow, len(c.tensors))}
	for i, f := range c.files {
		r.Files[i] = FileRow{Name: f.Name, Bytes: f.Size, HeaderSHA256: hex.EncodeToString(f.HeaderSHA256[:]), Metadata: f.Metadata}
		r.Totals.FileBytes += f.Size
	}
	r.Totals.Files, r.Totals.Tensors = len(c.files), len(c.tensors)
	index := map[string]int{} // indices in r.Dtypes
	for i, t := range c.tensors {
		r.Tensors[i] = TensorRow{Name: t.Name, Dtype: t.DtypeName, Shape: t.Shape, Bytes: t.Size, File: c.files[t.File].Name, Offset: t.Offset}
		n := t.Numel()
		r.Files[t.File].Tensors++
		r.Totals.Elements += n
		r.Totals.Bytes += t.Size
		at, ok := index[t.DtypeName]
		if !ok {
			at = len(r.Dtypes)
			index[t.DtypeName] = at
			r.Dtypes = append(r.Dtypes, DtypeTotal{Dtype: t.DtypeName, Known: t.Dtype != packing.DtypeNone})
		}
		d := &r.Dtypes[at]
		d.Tensors++
		d.Elements += n
		d.Bytes += t.Size
	}
	slices.SortFunc(r.Dtypes, func(a, b DtypeTotal) int { return strings.Compare(a.Dtype, b.Dtype) })
	return r
}
