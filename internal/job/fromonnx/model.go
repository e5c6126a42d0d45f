// Package fromonnx presents a graph for ONNX Runtime, whoever made it, as a checkpoint: its weights
// get the names that they have in a Hugging Face checkpoint.
package fromonnx

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
)

// Model is a graph with quantized weights.
type Model struct {
	*safetensors.Checkpoint
	Quantized *hfquant.Quantized
	// PlusOne says that gains of norms, the tensors with one dimension, have 1 added.
	PlusOne bool
}

// Open opens a graph. path is the .onnx file, or a directory with one such file, in itself or in
// its folder onnx. Open returns nil for every other path, and for a graph without quantized
// weights.
func Open(path string) (*Model, error) {
	file, err := find(path)
	if file == "" || err != nil {
		return nil, err
	}
	g, err := decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)
	if filepath.Base(dir) == folder {
		dir, name = filepath.Dir(dir), filepath.Join(folder, name)
	}
	config, err := files.Read(filepath.Join(dir, "config.json"), files.MaxModelFile)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	r := &reader{graph: g, files: []string{name}, tensors: map[string]*onnx.Tensor{}, makers: map[string]*onnx.Node{}}
	if r.config, err = arch.ParseForward(config); err != nil {
		r.config = nil // the weights keep the graph's names
	}
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(r.weights) == 0 {
		return nil, nil
	}
	m := &Model{PlusOne: r.config != nil && r.config.PlusOne}
	if m.Checkpoint, err = safetensors.OpenParts(dir, r.files, r.parts); err != nil {
		return nil, err
	}
	if config != nil {
		if config, err = hfquant.WithoutQuantization(config); err != nil {
			m.Close()
			return nil, err
		}
	}
	if m.Quantized, err = hfquant.FindONNX(m.Checkpoint, config, r.weights); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// folder is transformers.js' directory of graphs.
const folder = "onnx"

// find returns the graph's file, or "".
func find(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", nil // another reader reports the error
	}
	if !st.IsDir() {
		if strings.EqualFold(filepath.Ext(path), ".onnx") {
			return path, nil
		}
		return "", nil
	}
	for _, dir := range []string{path, filepath.Join(path, folder)} {
		list, err := filepath.Glob(filepath.Join(escape(dir), "*.onnx"))
		switch {
		case err != nil:
			return "", err
		case len(list) == 1:
			return list[0], nil
		case len(list) > 1:
			return "", fmt.Errorf("%s has %d graphs: name one of them: %s", dir, len(list), strings.Join(list, ", "))
		}
	}
	return "", nil
}

// escape makes a pattern of a directory's name.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// decode reads the graph, without values.
func decode(file string) (*onnx.Graph, error) {
	m, err := mmap.Open(file)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var model *onnx.Model
	err = mmap.Guard(func() error {
		model, err = onnx.Decode(m.Bytes())
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range model.Graph.Initializers {
		t := &model.Graph.Initializers[i]
		if len(t.External) == 0 && t.Bytes() != int64(len(t.Raw)) {
			t.RawAt = -1 // the values are in fields that only small tensors use
		}
		t.Raw = nil // a part of the file
	}
	return &model.Graph, nil
}

// reader finds the weights of a graph.
type reader struct {
	graph   *onnx.Graph
	config  *arch.ForwardConfig // nil: unknown
	tensors map[string]*onnx.Tensor
	makers  map[string]*onnx.Node // by output
	files   []string              // below the directory; the first has the graph
	parts   []safetensors.Tensor
	weights []hfquant.ONNXWeight
}

// rowsOf is a range of the rows of a tensor, with the name of the module that they are for.
type rowsOf struct {
	module      string
	first, rows int64
}

// place adds rows of a tensor to the checkpoint. The tensor has total rows, however it is shaped.
func (r *reader) place(suffix string, t *onnx.Tensor, total int64, list []rowsOf, shape func(rows, width int64) []int64) error {
	dtype, ok := map[onnx.DataType]packing.Dtype{onnx.Float: packing.F32, onnx.Float16: packing.F16, onnx.BFloat16: packing.BF16, onnx.Uint8: packing.U8}[t.Type]
	if !ok {
		return fmt.Errorf("tensor %q has the data type %d: expected FLOAT (1), UINT8 (2), FLOAT16 (10) or BFLOAT16 (16)", t.Name, t.Type)
	}
	elements := int64(1)
	for _, d := range t.Dims {
		if d <= 0 || elements > math.MaxInt64/16/d {
			return fmt.Errorf("tensor %q has the dimensions %v: positive numbers of a possible size were expected", t.Name, t.Dims)
		}
		elements *= d
	}
	if total <= 0 || elements%total != 0 {
		return fmt.Errorf("tensor %q has the dimensions %v: expected %d rows", t.Name, t.Dims, total)
	}
	location, off, err := t.Place()
	if err != nil {
		return err
	}
	file := 0
	switch {
	case location != "":
		name := filepath.Join(filepath.Dir(r.files[0]), filepath.FromSlash(location))
		if !filepath.IsLocal(filepath.FromSlash(location)) {
			return fmt.Errorf("tensor %q lies in %q: expected a file beside the graph", t.Name, location)
		}
		if file = slices.Index(r.files, name); file < 0 {
			file, r.files = len(r.files), append(r.files, name)
		}
	case t.RawAt < 0:
		return fmt.Errorf("tensor %q has no raw_data and no external data: write the graph again with onnx.save of a newer onnx", t.Name)
	default:
		off = t.RawAt
	}
	size := t.Type.Size()
	width := elements / total
	for _, l := range list {
		r.parts = append(r.parts, safetensors.Tensor{
			Name: l.module + suffix, Dtype: dtype, DtypeName: dtype.String(), Shape: shape(l.rows, width),
			File: file, Offset: off + l.first*width*size, Size: l.rows * width * size,
		})
	}
	return nil
}

func matrix(rows, width int64) []int64 { return []int64{rows, width} }
func vector(rows, width int64) []int64 { return []int64{rows * width} }
