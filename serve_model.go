package gq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/internal/serve"
	"github.com/lowbit-go/gq/model/generate"
)

// openModel opens the model in file: at m.Path, or a temporary .gqf file of the model.
func (o *ServeOptions) openModel(ctx context.Context, m ServeModel, file readable) (s *serve.Model, err error) {
	about, err := Inspect(ctx, m.Path, InspectOptions{})
	if err != nil {
		return nil, err
	}
	s = &serve.Model{ID: m.ID}
	if s.Fingerprint, err = fingerprint(ctx, file); err != nil {
		return nil, err
	}
	if st, err := os.Stat(m.Path); err == nil {
		s.Created = st.ModTime().Unix()
	}
	generator, err := generate.Open(file.path, generate.OpenOptions{View: file.view, Threads: o.Threads, Activations: o.Activations, Verify: o.Verify, Name: m.from.Name})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, generator.Close())
		}
	}()
	s.Generator = generator
	if s.Template, err = chat.Open(generator.Asset); err != nil {
		return nil, fmt.Errorf("%s: %w", m.from.Name, err)
	}
	if s.Engine, err = generator.NewEngine(generate.EngineOptions{Context: o.Context, Parallel: o.Parallel, Queue: o.Queue, WholePages: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", m.from.Name, err)
	}
	stats := s.Engine.Stats()
	_, executed := generator.Model().Executed()
	s.Info = serve.ModelInfo{
		Architecture: about.Summary.Architecture, Scheme: scheme(about), Bits: about.Summary.Bits,
		Parameters: about.Summary.Parameters, Bytes: about.Summary.Bytes, Activations: strings.Replace(executed, " activations", "", 1),
		Context: s.Engine.Context(), Warning: generator.ContextWarning(s.Engine.Context()), Parallel: stats.Parallel, Queue: stats.Queue, Memory: s.Engine.Bytes(), Template: s.Template.Source,
	}
	return s, nil
}

// scheme describes how most of the weights are stored.
func scheme(in *Inspection) string {
	weights := map[string]int64{}
	switch {
	case in.File != nil:
		for i := range in.File.Tensors {
			t := &in.File.Tensors[i]
			weights[tensorScheme(t)] += safetensors.Tensor{Shape: t.Shape}.Numel()
		}
	case in.GGUF != nil:
		for _, t := range in.GGUF.Types {
			weights[t.Type] += t.Elements
		}
	case in.Quantized != nil:
		return in.Quantized.Schemes[0].Scheme
	default:
		for _, d := range in.Checkpoint.Dtypes {
			weights[d.Dtype] += d.Elements
		}
	}
	most := ""
	for name, n := range weights {
		if n > weights[most] || n == weights[most] && name < most {
			most = name
		}
	}
	return most
}

func tensorScheme(t *gqf.TensorRow) string {
	switch {
	case !t.Quantized:
		return t.Dtype
	case t.Group == 0:
		return fmt.Sprintf("%d bits, per channel", t.Bits)
	}
	return fmt.Sprintf("%d bits, group %d", t.Bits, t.Group)
}

// fingerprint identifies the program's version and the model's file: for a .gqf file by its front,
// which holds the checksums of all weights, and for a checkpoint or a GGUF file by its files'
// headers, sizes and times.
func fingerprint(ctx context.Context, m readable) (string, error) {
	h := sha256.New()
	in, err := Inspect(ctx, m.path, InspectOptions{})
	if err != nil {
		return "", err
	}
	if m.view != nil {
		sources, err := m.view.Asset(gqf.ProvenanceName) // sizes and hashes of the headers
		if err != nil {
			return "", err
		}
		h.Write(sources)
		for _, path := range gguf.Shards(m.path) {
			st, err := os.Stat(path)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, st.ModTime().UnixNano())
		}
	} else if in.File != nil {
		f, err := os.Open(m.path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := io.CopyN(h, f, in.File.DataOffset); err != nil {
			return "", err
		}
	} else {
		for _, f := range in.Checkpoint.Files {
			st, err := os.Stat(filepath.Join(in.Checkpoint.Dir, f.Name))
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, f.Name, f.HeaderSHA256, f.Bytes, st.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("gq-%s-%s", Version().Version, hex.EncodeToString(h.Sum(nil)[:8])), nil
}
