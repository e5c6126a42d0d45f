package inspect

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

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
