package gq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/inspect"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/packing"
)

// Inspection describes a file or a checkpoint. Exactly one of File, GGUF and Checkpoint is set.
type Inspection struct {
	// Name is the file or checkpoint as the caller names it; a remote name without credentials, with
	// the commit.
	Name       string
	Summary    Summary
	File       *gqf.Inspection
	GGUF       *inspect.GGUF
	Checkpoint *inspect.Checkpoint
	// Quantized describes the quantized weights of a checkpoint; nil if there are none. Unreadable
	// says why gq cannot read quantized weights; "" if it can.
	Quantized  *fromquantized.Inspection
	Unreadable string
	// Adapters are merged into the checkpoint.
	Adapters []provenance.Adapter
}

// Summary is a short description of a model.
type Summary struct {
	// its name in config.json or a .gguf file, else of the file or directory
	Model string `json:"model"`
	// Architecture is the class that config.json names, else its model type; of a .gguf file,
	// llama.cpp's name; "" if there is none.
	Architecture string  `json:"architecture"`
	Parameters   int64   `json:"parameters"` // a tensor that several names share counts once
	Tensors      int     `json:"tensors"`
	Bits         float64 `json:"bits_per_weight"` // over all tensors
	// QuantizedBits counts only the quantized tensors; 0 if there are none.
	QuantizedBits float64 `json:"quantized_bits_per_weight"`
	Bytes         int64   `json:"bytes"` // of the file, or of all files of the checkpoint
	// of the tensors in the checkpoint; 0 if it is not known
	SourceBytes int64 `json:"source_bytes"`
	// Warning says why the tokenizer does not fit the model; "" if it does, or is not in the file.
	Warning string `json:"warning,omitempty"`
}

// modelName is the name of a file or directory without the endings of model files, and the name of
// the model for the directory of a snapshot of the Hugging Face cache.
func modelName(path string) string {
	if repo, commit, ok := hubpath.Of(path); ok && filepath.Base(path) == commit {
		return repo[strings.IndexByte(repo, '/')+1:]
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gqf"), ".gguf"), ".safetensors")
}

// describe fills in the fields that come from config.json. open opens the tokenizer.
func (s *Summary) describe(path string, config []byte, open func() (*tokenizer.Tokenizer, error)) {
	var named struct {
		Name string `json:"_name_or_path"`
	}
	_ = json.Unmarshal(config, &named) // an invalid config.json names nothing
	s.Model = cmp.Or(named.Name, modelName(path))
	if c, err := arch.ParseConfig(config); err == nil {
		s.Architecture = cmp.Or(strings.Join(c.Architectures, ", "), c.ModelType)
	}
	if err := misfit(config, open); err != nil {
		s.Warning = err.Error()
	}
}

// misfit returns an error if a token has no row in the embedding. It returns nil if gq cannot read
// config or the tokenizer. open opens the tokenizer.
func misfit(config []byte, open func() (*tokenizer.Tokenizer, error)) error {
	if c, err := arch.ParseForward(config); err == nil {
		if t, err := open(); err == nil {
			return t.Fits(c.VocabSize)
		}
	}
	return nil
}

// warnMisfit adds the error of misfit to the warnings of a plan.
func warnMisfit(warnings *[]string, config []byte, open func() (*tokenizer.Tokenizer, error)) {
	if err := misfit(config, open); err != nil {
		*warnings = append(*warnings, fmt.Sprintf("gq cannot run this file: %v", err))
	}
}

// InspectOptions are the options of Inspect and InspectTensors. The zero value is ready to use.
type InspectOptions struct {
	// Lora names adapters to merge into a checkpoint, as in quantizer.Recipe. Default: none.
	Lora []string
	// Progress is told how far the download of a remote file is. Default (nil): none.
	Progress Progress
}

// Inspect reads the directory and the metadata of a .gqf file, the headers of a .gguf file and its
// shards, or the headers of the checkpoint at path. It reads no codes and checks no checksums of
// weights; Verify does.
func Inspect(ctx context.Context, path string, o InspectOptions) (*Inspection, error) {
	return withContainer(ctx, path, false, o.Lora, o.Progress, func(from *location.Source, in container) (*Inspection, error) {
		r := &Inspection{Name: from.Name}
		switch {
		case in.gqf != nil:
			return r, r.addFile(from.Path, in.gqf)
		case in.gguf != nil:
			return r, r.addGGUF(from.Path, in.gguf)
		}
		r.addCheckpoint(from.Path, in.checkpoint)
		return r, nil
	})
}

func (r *Inspection) addFile(path string, f *gqf.File) (err error) {
	if r.File, err = gqf.Inspect(f); err != nil {
		return err
	}
	t := &r.File.Totals
	r.Summary = Summary{
		Parameters: t.Elements, Tensors: t.Tensors, Bits: t.BitsPerWeight, QuantizedBits: t.QuantBitsWeight,
		Bytes: r.File.FileBytes, SourceBytes: t.SourceBytes,
	}
	r.Summary.describe(path, r.File.Config, func() (*tokenizer.Tokenizer, error) { return tokenizer.Read(f.Asset) })
	return nil
}

func (r *Inspection) addGGUF(path string, f *gguf.File) (err error) {
	if r.GGUF, err = inspect.OfGGUF(f); err != nil {
		return err
	}
	t := &r.GGUF.Totals
	r.Summary = Summary{Parameters: t.Elements, Tensors: t.Tensors, Bits: t.BitsPerWeight, QuantizedBits: t.QuantBitsWeight, Bytes: t.FileBytes}
	r.Summary.describe(path, nil, nil)
	if _, err := llamacpp.ReadConfig(f); err == nil { // a model that gq can run
		if err := llamacpp.CheckTokens(f); err != nil {
			r.Summary.Warning = err.Error()
		}
	}
	name, _ := f.Text("general.name")
	r.Summary.Model = cmp.Or(name, r.Summary.Model)
	r.Summary.Architecture, _ = f.Text(gguf.KeyArchitecture)
	return nil
}

func (r *Inspection) addCheckpoint(path string, ck *safetensors.Checkpoint) {
	r.Checkpoint, r.Adapters = inspect.OfCheckpoint(ck), provenance.AdaptersOf(ck)
	t := &r.Checkpoint.Totals
	r.Summary = Summary{Parameters: t.Elements, Tensors: t.Tensors, Bits: packing.BitsPerWeight(t.Bytes, t.Elements), Bytes: t.FileBytes, SourceBytes: t.Bytes}
	config, err := assets.ReadConfig(ck)
	if err != nil {
		config = nil // the user asked for tensors
	}
	r.Summary.describe(path, config, func() (*tokenizer.Tokenizer, error) { return tokenizer.Open(ck.Dir()) })
	if r.Quantized, err = fromquantized.Inspect(ck, config); err != nil {
		r.Unreadable = err.Error()
	}
	if q := r.Quantized; q != nil {
		s := &r.Summary
		s.Parameters = q.Parameters(t.Elements)
		s.Bits, s.QuantizedBits = packing.BitsPerWeight(t.Bytes, s.Parameters), packing.BitsPerWeight(q.Totals.Bytes, q.Totals.Weights)
	}
}

// container is an open model file: gqf, gguf or checkpoint is set. A checkpoint with adapters has
// further files to close.
type container struct {
	gqf        *gqf.File
	gguf       *gguf.File
	checkpoint *safetensors.Checkpoint
	below      []io.Closer
}

// withContainer calls use with the .gqf file, .gguf file or checkpoint at path, open, and adapters
// merged. Unless whole is set, it reads only the headers of a checkpoint that is elsewhere.
func withContainer[T any](ctx context.Context, path string, whole bool, adapters []string, p Progress, use func(from *location.Source, m container) (*T, error)) (*T, error) {
	from, err := resolveSource(ctx, path, whole, stages{to: p})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	var m container
	kind := files.Safetensors
	if !from.Streams() {
		kind, err = kindOf(from.Path)
	}
	switch {
	case err != nil:
	case from.Streams():
		m.checkpoint, err = from.OpenCheckpoint(ctx)
	case kind == files.GQF:
		m.gqf, err = gqf.Open(from.Path, gqf.Options{})
	case kind == files.GGUF:
		m.gguf, err = gguf.Open(from.Path)
	default:
		m.checkpoint, err = safetensors.Open(from.Path, safetensors.Options{})
	}
	if err == nil && len(adapters) > 0 {
		m, err = m.merge(ctx, from.Name, adapters)
	}
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return use(from, m)
}

// merge gives the checkpoint name with the adapters merged. After an error, m is closed.
func (m container) merge(ctx context.Context, name string, adapters []string) (container, error) {
	if m.checkpoint == nil {
		return m, errors.Join(optionf("lora", loraSource, name), m.Close())
	}
	merged, err := openAdapters(ctx, m.checkpoint, adapters)
	if err != nil {
		return m, errors.Join(err, m.Close())
	}
	below := []io.Closer{merged, m.checkpoint}
	if m.checkpoint, err = merged.Checkpoint(ctx); err != nil {
		return m, errors.Join(err, closeAll(below))
	}
	m.below = below
	return m, nil
}

func closeAll(files []io.Closer) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Close closes the file.
func (m container) Close() error {
	switch {
	case m.gqf != nil:
		return m.gqf.Close()
	case m.gguf != nil:
		return m.gguf.Close()
	}
	return errors.Join(m.checkpoint.Close(), closeAll(m.below))
}

// TensorInspection describes the tensors whose names match a pattern: in Tensors for a .gqf file,
// in GGUF for a .gguf file, in Sources for a checkpoint. If a single tensor of a .gqf or .gguf file
// matches, One or OneGGUF describes it in full.
type TensorInspection struct {
	One     *gqf.TensorInspection      `json:"-"`
	OneGGUF *GGUFTensor                `json:"-"`
	Tensors []gqf.TensorRow            `json:"tensors,omitempty"`
	GGUF    []inspect.GGUFTensor       `json:"gguf,omitempty"`
	Sources []inspect.CheckpointTensor `json:"sources,omitempty"`
}

// InspectTensors describes the tensors of a .gqf file, a .gguf file or a checkpoint that have a
// matching name. The pattern is a name, a module, a glob or "re:" and a regular expression. slice
// is the expert to show of a single fused tensor of a .gqf file, else 0. Data of tensors is read,
// and checksums of a .gqf file checked, only for a single tensor.
func InspectTensors(ctx context.Context, path, match string, slice int, o InspectOptions) (*TensorInspection, error) {
	p, err := pattern.Parse(match)
	if err != nil {
		return nil, optionf("tensor", "%q: %w", match, err)
	}
	return withContainer(ctx, path, false, o.Lora, o.Progress, func(from *location.Source, m container) (*TensorInspection, error) {
		r := &TensorInspection{}
		names, err := r.match(m, p)
		if err != nil {
			return nil, err
		}
		switch n := len(r.Tensors) + len(r.GGUF) + len(r.Sources); {
		case n == 0:
			return nil, fmt.Errorf("%s: no tensor matches %q%s", from.Name, match, pattern.NoMatch(match, names))
		case slice != 0 && (n > 1 || m.gqf == nil):
			return nil, optionf("slice", "%d: shows an expert of a single tensor of a .gqf file; %d tensors of %s match %q", slice, n, from.Name, match)
		case n == 1 && m.gqf != nil:
			r.One, err = gqf.InspectTensor(m.gqf, r.Tensors[0].Name, slice)
		case n == 1 && m.gguf != nil:
			r.OneGGUF, err = inspectGGUF(m.gguf, r.GGUF[0])
		}
		return r, err
	})
}

// match keeps the tensors that the pattern matches and returns all names.
func (r *TensorInspection) match(m container, p pattern.Pattern) (names []string, err error) {
	switch {
	case m.gqf != nil:
		all, err := gqf.Inspect(m.gqf)
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
	case m.gguf != nil:
		all, err := inspect.OfGGUF(m.gguf)
		if err != nil {
			return nil, err
		}
		for _, row := range all.Tensors {
			names = append(names, row.Name)
			if p.Match(row.Name) {
				r.GGUF = append(r.GGUF, row)
			}
		}
	default:
		for _, row := range inspect.OfCheckpoint(m.checkpoint).Tensors {
			names = append(names, row.Name)
			if p.Match(row.Name) {
				r.Sources = append(r.Sources, row)
			}
		}
	}
	return names, nil
}

// kindOf distinguishes the kinds of input: files.GQF, files.GGUF, or files.Safetensors for
// everything else. The name decides first, then the first bytes, so that a damaged file is reported
// as such.
func kindOf(path string) (files.Kind, error) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return files.Safetensors, err
	}
	kind, err := files.KindOf(path)
	ext := filepath.Ext(path)
	switch {
	case err != nil:
		return files.Unknown, err
	case strings.EqualFold(ext, ".gqf"):
		return files.GQF, nil
	case strings.EqualFold(ext, ".gguf"):
		return files.GGUF, nil
	case kind == files.GQF || kind == files.GGUF:
		return kind, nil
	}
	return files.Safetensors, nil
}
