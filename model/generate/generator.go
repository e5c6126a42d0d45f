package generate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// OpenOptions are the options of Open.
type OpenOptions struct {
	Threads     int                 // default GOMAXPROCS
	CPU         string              // as kernels.Options.CPU
	Activations forward.Activations // inputs of a .gqf's quantized linear layers; default forward.Int8
	Verify      bool                // check a .gqf's checksums before the run; default false
	Name        string              // of the model in errors and results; default the path
	View        *gqf.File           // a view of the GGUF file at path; default nil
	Since       time.Time           // when the caller began to open the model; default now
}

// Generator is a model with its tokenizer. Several goroutines may call Run, but it computes a token
// of a single call at a time; an [Engine] computes tokens of many calls together.
type Generator struct {
	path      string
	model     *forward.Model
	file      *gqf.File // nil for a checkpoint
	tokenizer *tokenizer.Tokenizer
	read      func(name string) ([]byte, error) // one of the model's small files
	eos       []int32
	options   OpenOptions
	kernels   kernelLog
	opening   time.Duration
}

// Open opens a .gqf file, a view or a checkpoint's directory, with a tokenizer.json. A checkpoint
// computes in float32.
func Open(path string, o OpenOptions) (*Generator, error) {
	if o.Since.IsZero() {
		o.Since = time.Now()
	}
	o.Threads = cpu.Threads(o.Threads)
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	g := &Generator{path: cmp.Or(o.Name, path), options: o}
	if st.IsDir() {
		g.read = func(name string) ([]byte, error) { return files.Read(filepath.Join(path, name), files.MaxModelFile) }
	} else if o.View != nil {
		g.file, g.read = o.View, o.View.Asset
	} else {
		if g.file, err = gqf.Open(path, gqf.Options{}); err != nil {
			if e, ok := errors.AsType[*gqf.ForeignError](err); ok && e.What == files.Safetensors.String() {
				e.Advice = "name the directory of the checkpoint, which has config.json and the tokenizer too"
			}
			return nil, err
		}
		if o.Verify {
			g.file.CheckSums()
		}
		g.read = g.file.Asset
	}
	if err := g.open(path); err != nil {
		g.Close()
		return nil, err
	}
	g.opening = time.Since(o.Since)
	return g, nil
}

func (g *Generator) Tokenizer() *tokenizer.Tokenizer { return g.tokenizer }

func (g *Generator) Model() *forward.Model { return g.model }

// Asset returns a small file of the model, such as tokenizer_config.json, from the .gqf or the
// directory. The error of a missing file is fs.ErrNotExist.
func (g *Generator) Asset(name string) ([]byte, error) { return g.read(name) }

// open reads everything, the tokenizer and the model at the same time.
func (g *Generator) open(path string) error {
	config, err := g.read("config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s holds no config.json: the model's architecture is unknown", g.path)
	}
	if err != nil {
		return err
	}
	var tokens error
	var wg sync.WaitGroup
	wg.Go(func() { g.tokenizer, tokens = tokenizer.Read(g.read) })
	err = g.openModel(path)
	wg.Wait()
	switch {
	case errors.Is(tokens, fs.ErrNotExist):
		return fmt.Errorf("%s holds no tokenizer.json: a prompt cannot be turned into tokens", g.path)
	case tokens != nil:
		return fmt.Errorf("%s: %w", g.path, tokens)
	case err != nil:
		return err
	}
	if err := g.tokenizer.Fits(g.model.VocabSize()); err != nil {
		return fmt.Errorf("%s: %w", g.path, err)
	}
	ids, err := configEOS(config)
	if err != nil {
		return fmt.Errorf("%s: config.json: %w", g.path, err)
	}
	g.eos = append(g.tokenizer.EOSIDs(), ids...)
	slices.Sort(g.eos)
	g.eos = slices.Compact(g.eos)
	return nil
}

func (g *Generator) openModel(path string) (err error) {
	o := forward.Options{Threads: g.options.Threads, CPU: g.options.CPU, Activations: g.options.Activations, Log: g.kernels.add, ForCPU: true}
	if g.file == nil {
		g.model, err = forward.OpenCheckpoint(path, o)
		return err
	}
	g.model, err = forward.OpenGQF(g.file, o)
	if _, named := errors.AsType[*gqf.FormatError](err); err != nil && !named {
		return fmt.Errorf("%s: %w", g.path, err)
	}
	return err
}

// configEOS reads eos_token_id, a number or a list of numbers, from config.json or from its part
// for the language model.
func configEOS(raw []byte) ([]int32, error) {
	type level struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	var config struct {
		level
		Text level `json:"text_config"`
	}
	if err := json.Unmarshal(jsonscan.Finite(raw), &config); err != nil {
		return nil, err
	}
	var ids []int32
	for _, v := range []json.RawMessage{config.EOS, config.Text.EOS} {
		if len(v) == 0 || string(v) == "null" {
			continue
		}
		if v[0] != '[' {
			v = slices.Concat([]byte{'['}, v, []byte{']'})
		}
		var list []int32
		if err := json.Unmarshal(v, &list); err != nil {
			return nil, fmt.Errorf("eos_token_id is not a token, nor a list of tokens")
		}
		ids = append(ids, list...)
	}
	return ids, nil
}

// Run continues the prompt. If ctx is cancelled or a callback fails, Run returns the error and the
// Result so far. Other errors come without a Result.
func (g *Generator) Run(ctx context.Context, o Options) (*Result, error) {
	start := time.Now()
	a, err := g.newAnswer(o, 0)
	if err != nil {
		return nil, err
	}
	out := g.newOutput(a, start)
	if err := out.prompt(); err != nil {
		return out.finish(err, false, "")
	}
	q := newRequest(ctx, a)
	return q.result(out, g.compute(q, out))
}

// echoStep is the number of tokens of a prompt per block of logits. Logits of a large vocabulary
// take half a megabyte per token.
const echoStep = 64

// compute computes a request alone. It returns the error of a callback; other errors are q.err.
func (g *Generator) compute(q *request, out *output) error {
	s, vocab, size := g.model.NewSession(q.o.Context), g.model.VocabSize(), prefillAlone
	if q.echo() {
		size = echoStep
	}
	var buf []float32
	for q.begun = time.Now(); !q.ends(false); {
		tokens, all := q.next[:], false
		if !q.decodes() {
			tokens, all = q.ids[q.at:][:min(size, q.left())], q.echo()
		}
		var logits []float32
		if n := q.wants(len(tokens)); n > 0 {
			logits = buffer.Grow(&buf, n*vocab)
		}
		if q.err = s.Forward(tokens, logits, all); q.err == nil {
			q.computed(len(tokens), logits, vocab)
		}
		steps, _ := q.take()
		if err := out.steps(steps); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the model's goroutines and closes its files.
func (g *Generator) Close() error {
	var err error
	if g.model != nil {
		err = g.model.Close()
	}
	if g.file != nil {
		err = errors.Join(err, g.file.Close())
	}
	return err
}
