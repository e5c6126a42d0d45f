// Package fromonnx presents a graph for ONNX Runtime, whoever made it, as a checkpoint: its weights
// get the names that they have in a Hugging Face checkpoint.
package fromonnx

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
)

// Model is a graph with quantized weights.
type Model struct {
	*safetensors.Checkpoint
	Quantized *hfquant.Quantized
	// PlusOne says that gains of norms have 1 added.
	PlusOne bool
}

// Open opens a quantized graph. path is the .onnx file, or a directory with one such file, in
// itself or in its folder onnx. Open returns nil for every other path, and for a graph without
// quantized weights.
func Open(path string) (*Model, error) {
	file, err := find(path)
	if file == "" || err != nil {
		return nil, err
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
	m, err := OpenAt(dir, name, config, func(name string) string { return name })
	if err != nil || len(m.Quantized.Weights) > 0 {
		return m, err
	}
	return nil, m.Close()
}

// OpenAt opens the graph of that name below dir, quantized or not, and the files with its weights.
// at returns where a file lies below dir by the name that it will have.
func OpenAt(dir, name string, config []byte, at func(name string) string) (*Model, error) {
	r := &reader{files: []string{name}, tensors: map[string]*onnx.Tensor{}, makers: map[string]*onnx.Node{}, added: map[string]*onnx.Tensor{}, taken: map[*onnx.Tensor]bool{}}
	c, err := arch.ParseForward(config)
	if err == nil { // else the weights keep the graph's names
		r.config = c
	}
	m := &Model{PlusOne: r.config != nil && r.config.PlusOne}
	m.Checkpoint, err = safetensors.OpenParts(dir, at(name), func(file []byte) ([]string, []safetensors.Tensor, error) {
		model, err := onnx.Decode(file)
		if err == nil {
			r.graph = &model.Graph
			err = r.read()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, at(name)), err)
		}
		var others []string
		for _, name := range r.files[1:] {
			others = append(others, at(name))
		}
		return others, r.parts, nil
	})
	if err != nil {
		return nil, err
	}
	if err = m.Guard(func() error { return r.sameHead(m.Checkpoint) }); err == nil {
		m.Quantized, err = hfquant.FindONNX(m.Checkpoint, config, r.weights)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// folder is transformers.js' directory of graphs.
const folder = "onnx"

// find returns the graph's file, or "".
func find(path string) (string, error) {
	if st, err := os.Stat(path); err == nil && !st.IsDir() && strings.EqualFold(filepath.Ext(path), ".onnx") {
		return path, nil
	}
	for _, dir := range []string{path, filepath.Join(path, folder)} {
		list, _ := fs.Glob(os.DirFS(dir), "*.onnx") // another reader reports a path without a directory
		switch {
		case len(list) == 1:
			return filepath.Join(dir, list[0]), nil
		case len(list) > 1:
			return "", fmt.Errorf("%s has %d graphs: name one of them: %s", dir, len(list), strings.Join(list, ", "))
		}
	}
	return "", nil
}
