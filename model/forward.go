package model

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/internal/rowmath"
)

// Activations is the type of the inputs of quantized linear layers.
type Activations uint8

const (
	// Int8 is the device's arithmetic: each row of activations is quantized as the weights' layout
	// demands.
	Int8 Activations = iota
	// Float32 multiplies dequantized weights with float32 activations. This isolates the error of
	// the weights.
	Float32
)

// ParseActivations parses "int8" or "float32".
func ParseActivations(s string) (Activations, bool) {
	switch s {
	case "int8":
		return Int8, true
	case "float32":
		return Float32, true
	}
	return 0, false
}

func (a Activations) String() string {
	if a == Float32 {
		return "float32"
	}
	return "int8"
}

// Options are the options of a Model. Only Activations and ForCPU can change results.
type Options struct {
	Threads     int         // default runtime.NumCPU
	CPU         string      // see kernels.Options.CPU
	Activations Activations // inputs of quantized linear layers; default Int8
	// Log is kernels.Options.Log, with the same default.
	Log func(kernels.Choice)
	// Packed copies float weights into memory in the order of their kernels, including weights that
	// are dequantized for Float32. This is faster, especially for few tokens at a time. Default:
	// weights are read from the map each time.
	Packed bool
	// Layers, if not 0, is the number of layers to open, from the first: the lm_head reads the last of
	// them. Default (0): all.
	Layers int
	// ForCPU chooses the best variant of a .gqf for this CPU: see [gqf.Tensor.VariantsFor]. Logits
	// may then differ between CPUs, because layouts may sum in different orders. Default: the first
	// variant that has kernels.
	ForCPU bool
}

// Model is a language model that computes logits. Sessions of one Model share its threads: several
// goroutines may use them, but they compute one at a time.
type Model struct {
	config  arch.ForwardConfig
	source  source
	pool    *kernels.Pool
	mu      sync.Mutex // held by the computing Session
	embed   Embedding
	head    *linear
	norm    *norm // before the lm_head
	norms   []*norm
	layers  []layer
	linears map[string]*linear
	names   []string // of linear layers, in order of creation
	used    map[string]bool
	// body is the prefix of the language model's tensors; headName is the name of the lm_head,
	// whether it exists or not.
	body, headName string
	cpu            string // Options.CPU
	math           *rowmath.Set
}

// linear is a linear layer: a matrix with its bias.
type linear struct {
	spec     linearSpec
	name     string
	op       kernels.Operator
	bias     []float32 // nil without a bias, or if op adds it
	hasBias  bool
	biasName string // of the bias tensor, if there is one
}

// layer is the weights of a decoder layer.
type layer struct {
	arch.LayerConfig
	inputNorm, attentionNorm *norm // before attention and before the feed-forward network
	postAttention, postMLP   *norm // after them, if PostNorms
	qNorm, kNorm             *norm
	qkv                      []*linear // q, k, v; or one fused
	out                      *linear
	mlp                      mlp // of a dense layer
	router                   *linear
	experts                  []mlp
}

// mlp is a gated feed-forward network.
type mlp struct {
	gateUp []*linear // gate, up; or one fused
	down   *linear
}

// OpenCheckpoint opens the checkpoint in a directory, with its config.json. The model computes in
// float32 and reads weights from the map until Close (see Options.Packed).
func OpenCheckpoint(dir string, o Options) (*Model, error) {
	raw, err := files.Read(filepath.Join(dir, "config.json"), files.MaxModelFile)
	if err != nil {
		return nil, err
	}
	c, err := arch.ParseForward(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	facts, err := arch.ParseConfig(raw)
	if err != nil {
		return nil, err
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	m, err := newModel(c, &checkpointSource{ck: ck, block: facts.WeightBlockSize, floats: o.floats()}, o)
	if err != nil {
		ck.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}

// OpenGQF opens a model in a .gqf, which must hold its config.json. Quantized linear layers run on
// the packed bytes in place. A tied embedding is stored once. f must stay open as long as the Model
// is used.
func OpenGQF(f *gqf.File, o Options) (*Model, error) {
	raw, err := f.Asset("config.json")
	if err != nil {
		return nil, err
	}
	c, err := arch.ParseForward(raw)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	f.AdviseHugePages()
	s := &gqfSource{file: f, activations: o.Activations, floats: o.floats()}
	if o.ForCPU {
		features, err := cpu.UpTo(o.CPU)
		if err != nil {
			return nil, err
		}
		s.cpu = gqf.NewCPUFeatures(features)
	}
	return newModel(c, s, o)
}

func (o Options) floats() floats {
	return floats{kernels.Options{CPU: o.CPU, Log: o.Log}, o.Packed}
}

// newModel opens all weights, under the source's guard.
func newModel(c *arch.ForwardConfig, s source, o Options) (*Model, error) {
	features, err := cpu.UpTo(o.CPU)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	m := &Model{config: *c, source: s, cpu: o.CPU, linears: map[string]*linear{}, used: map[string]bool{}}
	some := o.Layers > 0 && o.Layers < len(c.Layers)
	if some {
		m.config.Layers = c.Layers[:o.Layers]
	}
	m.math = rowmath.Sets.For(features).Code
	if err := s.guard(m.load); err != nil {
		return nil, err
	}
	if !some {
		if err := m.unused(); err != nil {
			return nil, err
		}
	}
	m.used = nil
	if o.Threads < 1 {
		o.Threads = runtime.NumCPU()
	}
	m.pool = kernels.NewPool(o.Threads)
	return m, nil
}

// Config returns the model's configuration.
func (m *Model) Config() arch.ForwardConfig { return m.config }

// Pool returns the goroutines that the Model's passes run on, for the caller's work between passes.
func (m *Model) Pool() *kernels.Pool { return m.pool }

// VocabSize returns the number of logits per token.
func (m *Model) VocabSize() int { return m.config.VocabSize }

// Close ends the Model's goroutines, and unmaps a checkpoint. Its sessions must not be used
// afterwards.
func (m *Model) Close() error {
	m.pool.Close()
	return m.source.close()
}

// Linears returns the names of the linear layers for [Model.SetLinear] and the hook of
// [Session.OnInput]: the tensors' names, with the number of the expert in brackets for a slice of a
// fused tensor.
func (m *Model) Linears() []string { return slices.Clone(m.names) }

// Linear returns the operator of a linear layer, or nil for an unknown name. If the weights'
// payload does not hold the layer's bias, the Model adds the bias, not the operator.
func (m *Model) Linear(name string) kernels.Operator {
	if l := m.linears[name]; l != nil {
		return l.op
	}
	return nil
}

// SetLinear replaces the operator of a linear layer and returns a function that undoes it. withBias
// states that op adds the layer's bias; otherwise the Model adds it. It must not run while a
// Session computes.
func (m *Model) SetLinear(name string, op kernels.Operator, withBias bool) (undo func(), err error) {
	l := m.linears[name]
	if l == nil {
		return nil, fmt.Errorf("no linear %q in this model", name)
	}
	if op.Rows() != l.op.Rows() || op.Cols() != l.op.Cols() {
		return nil, fmt.Errorf("linear %q is %d x %d, not %d x %d", name, l.op.Rows(), l.op.Cols(), op.Rows(), op.Cols())
	}
	before := *l
	bias := l.bias
	if withBias {
		bias = nil
	} else if bias == nil && l.hasBias {
		if bias, err = m.source.vector(l.biasName, op.Rows()); err != nil {
			return nil, err
		}
	}
	l.op, l.bias = op, bias
	return func() { *l = before }, nil
}
