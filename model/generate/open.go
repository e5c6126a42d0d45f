package generate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// OpenOptions are the options of Open.
type OpenOptions struct {
	Threads     int               // default runtime.NumCPU
	CPU         string            // as kernels.Options.CPU
	Activations model.Activations // inputs of the quantized linear layers of a .gqf; default model.Int8
	Verify      bool              // check the checksums of a .gqf's weights before the run; default false
	Name        string            // of the model in errors and results; default the path
}

// Generator is a model with its tokenizer. Several goroutines may use it; an [Engine] serves them
// better than Run, which computes one token of one of them at a time.
type Generator struct {
	path      string
	model     *model.Model
	file      *gqf.File // nil for a checkpoint
	tokenizer *tokenizer.Tokenizer
	read      func(name string) ([]byte, error) // one of the model's small files
	eos       []int32
	quantized bool
	options   OpenOptions
	kernels   kernelLog
	opening   time.Duration
}

// Open opens a .gqf file, or a checkpoint's directory, which computes in float32. Either must have
// a tokenizer.json.
func Open(path string, o OpenOptions) (*Generator, error) {
	start := time.Now()
	if o.Threads < 1 {
		o.Threads = runtime.NumCPU()
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	g := &Generator{path: cmp.Or(o.Name, path), options: o, quantized: !st.IsDir()}
	if st.IsDir() {
		g.read = func(name string) ([]byte, error) { return files.Read(filepath.Join(path, name), files.MaxModelFile) }
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
	g.opening = time.Since(start)
	return g, nil
}

// Tokenizer returns the model's tokenizer.
func (g *Generator) Tokenizer() *tokenizer.Tokenizer { return g.tokenizer }

// Model returns the model.
func (g *Generator) Model() *model.Model { return g.model }

// Asset returns one of the model's small files, such as tokenizer_config.json, from the .gqf or the
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
	o := model.Options{Threads: g.options.Threads, CPU: g.options.CPU, Activations: g.options.Activations, Log: g.kernels.add, ForCPU: true}
	if g.file == nil {
		g.model, err = model.OpenCheckpoint(path, o)
		return err
	}
	g.model, err = model.OpenGQF(g.file, o)
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

// A kernelLog counts the linear layers that run each kernel.
type kernelLog struct {
	mu   sync.Mutex
	uses []KernelUse
}

// list returns what ran so far.
func (k *kernelLog) list() []KernelUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]KernelUse{}, k.uses...)
}

// add is called by the computing goroutine, once for each kernel of a linear layer.
func (k *kernelLog) add(c kernels.Choice) {
	if slices.Contains(strings.Split(os.Getenv("GQ_LOG"), ","), "kernels") {
		fmt.Fprintln(os.Stderr, "kernels:", c) // the default of kernels.Options.Log
	}
	u := KernelUse{Kernel: c.Kernel, Weights: describe(c.Header), Rows: c.M, Linears: 1}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.uses {
		if have := &k.uses[i]; have.Kernel == u.Kernel && have.Weights == u.Weights {
			have.Linears++
			have.Rows = min(have.Rows, u.Rows)
			return
		}
	}
	k.uses = append(k.uses, u)
}
