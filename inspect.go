package gq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// Inspection describes a file or a checkpoint. Exactly one of File and Checkpoint is set.
type Inspection struct {
	Summary    Summary
	File       *gqf.Inspection
	Checkpoint *safetensors.Inspection
}

// Summary is a short description of a model.
type Summary struct {
	Model        string  `json:"model"`        // its name in config.json, else of the file or directory
	Architecture string  `json:"architecture"` // the class that config.json names, else its model type; "" if it has neither
	Parameters   int64   `json:"parameters"`   // a tensor that several names share counts once
	Tensors      int     `json:"tensors"`
	Bits         float64 `json:"bits_per_weight"` // over all tensors
	// QuantizedBits counts only the quantized tensors of a .gqf file; 0 if there are none.
	QuantizedBits float64 `json:"quantized_bits_per_weight"`
	Bytes         int64   `json:"bytes"`        // of the file, or of all files of the checkpoint
	SourceBytes   int64   `json:"source_bytes"` // of the tensors in the checkpoint
}

// describe fills in the fields that come from config.json.
func (s *Summary) describe(path string, config []byte) {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	var named struct {
		Name string `json:"_name_or_path"`
	}
	_ = json.Unmarshal(config, &named) // an invalid config.json names nothing
	s.Model = cmp.Or(named.Name, strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gqf"), ".safetensors"))
	if c, err := arch.ParseConfig(config); err == nil {
		s.Architecture = cmp.Or(strings.Join(c.Architectures, ", "), c.ModelType)
	}
}

// Inspect reads the directory and the metadata of a .gqf file, or the headers of the checkpoint at
// path. It reads no weights and checks no checksums of weights; Verify does.
func Inspect(path string) (*Inspection, error) {
	f, ck, err := open(path)
	if err != nil {
		return nil, err
	}
	r := &Inspection{}
	if f != nil {
		defer f.Close()
		if r.File, err = gqf.Inspect(f); err != nil {
			return nil, err
		}
		t := &r.File.Totals
		r.Summary = Summary{
			Parameters: t.Elements, Tensors: t.Tensors, Bits: t.BitsPerWeight, QuantizedBits: t.QuantBitsWeight,
			Bytes: r.File.FileBytes, SourceBytes: t.SourceBytes,
		}
		r.Summary.describe(path, r.File.Config)
		return r, nil
	}
	defer ck.Close()
	r.Checkpoint = safetensors.Inspect(ck)
	t := &r.Checkpoint.Totals
	r.Summary = Summary{Parameters: t.Elements, Tensors: t.Tensors, Bits: packing.BitsPerWeight(t.Bytes, t.Elements), Bytes: t.FileBytes, SourceBytes: t.Bytes}
	config, err := conversion.ReadConfig(ck)
	if err != nil {
		config = nil // the user asked for tensors
	}
	r.Summary.describe(path, config)
	return r, nil
}

// open opens a .gqf file or a checkpoint; the other one is nil.
func open(path string) (*gqf.File, *safetensors.Checkpoint, error) {
	ours, err := isGQF(path)
	if err != nil {
		return nil, nil, err
	}
	if ours {
		f, err := gqf.Open(path, gqf.Options{})
		return f, nil, err
	}
	ck, err := safetensors.Open(path, safetensors.Options{})
	return nil, ck, err
}

// TensorInspection describes the tensors whose names match a pattern: in Tensors for a .gqf file,
// in Sources for a checkpoint. If a single tensor of a .gqf file matches, One describes it in full.
type TensorInspection struct {
	One     *gqf.TensorInspection   `json:"-"`
	Tensors []gqf.TensorRow         `json:"tensors,omitempty"`
	Sources []safetensors.TensorRow `json:"sources,omitempty"`
}

// InspectTensors describes the tensors of a .gqf file or a checkpoint that have a matching name.
// The pattern is a name, a module, a glob or "re:" and a regular expression. slice is the expert to
// show of a single fused tensor, else 0. Data of a .gqf file is read, and its checksums checked,
// only for a single tensor.
func InspectTensors(path, match string, slice int) (*TensorInspection, error) {
	p, err := pattern.Parse(match)
	if err != nil {
		return nil, optionf("tensor", "%q: %w", match, err)
	}
	f, ck, err := open(path)
	if err != nil {
		return nil, err
	}
	r, names := &TensorInspection{}, []string{}
	if f != nil {
		defer f.Close()
		all, err := gqf.Inspect(f)
		if err != nil {
			return nil, err
		}
		for _, row := range all.Tensors {
			of := append([]string{row.Name}, row.SharedWith...)
			names = append(names, of...)
			if p.MatchAny(of...) {
				r.Tensors = append(r.Tensors, row)
			}
		}
	} else {
		defer ck.Close()
		r.Sources = safetensors.Inspect(ck).Tensors
		for _, row := range r.Sources {
			names = append(names, row.Name)
		}
		r.Sources = slices.DeleteFunc(r.Sources, func(row safetensors.TensorRow) bool { return !p.Match(row.Name) })
	}
	switch n := len(r.Tensors) + len(r.Sources); {
	case n == 0:
		return nil, fmt.Errorf("%s: no tensor matches %q%s", path, match, p.NoMatch(names))
	case slice != 0 && (n > 1 || f == nil):
		return nil, optionf("slice", "%d: shows an expert of a single tensor of a .gqf file; %d tensors of %s match %q", slice, n, path, match)
	case n == 1 && f != nil:
		r.One, err = gqf.InspectTensor(f, r.Tensors[0].Name, slice)
	}
	return r, err
}

// isGQF distinguishes the two kinds of input by name, else by the first bytes, so that a damaged
// .gqf file is reported as such.
func isGQF(path string) (bool, error) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return false, err
	}
	kind, err := files.KindOf(path)
	return err == nil && (kind == files.GQF || strings.HasSuffix(path, ".gqf")), err
}
