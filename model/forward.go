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

// Activations says what the inputs of quantized linears are.
type Activations uint8

const (
	// Int8 is what runs on the device: each row of activations is quantized as the weights' layout demands.
	Int8 Activations = iota
	// Float32 multiplies the weights that the codes stand for with activations as they are: what is lost then, the
	// weights have lost.
	Float32
)

// ParseActivations reads "int8" or "float32".
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

// Options are the options of a Model. None of them changes a bit of what it computes but Activations.
type Options struct {
	Threads     int         // default runtime.NumCPU
	CPU         string      // as kernels.Options.CPU
	Activations Activations // of quantized linears; default Int8
	// Log is called as kernels.Options.Log. Default: its default.
	Log func(kernels.Choice)
	// Packed has float weights copied into memory in the order of their kernels, those that are dequantized for Float32
	// among them. That is faster, most of all for few tokens at a time. Default: they are read from the map each time.
	Packed bool
	// ForCPU takes, of a .gqf's variants, the one that is for this CPU: see [gqf.Tensor.VariantsFor]. Logits may then
	// differ between CPUs, as layouts may sum in different orders. Default: the first variant that there are kernels for.
	ForCPU bool
}

// Model is a language model that computes logits. Sessions of one Model share its threads: they may be used from several
// goroutines, but compute one at a time.
type Model struct {
	config  arch.ForwardConfig
	source  source
	pool    *kernels.Pool
	mu      sync.Mutex // held by the Session that computes
	embed   table
	head    *linear
	norm    []float32 // before the head
	layers  []layer
	linears map[string]*linear
	names   []string // of linears, in the order they were made
	used    map[string]bool
	// body is what the names of the language model's tensors begin with, headName what its head's is or would be.
	body, headName string
	math           *rowmath.Set
}

// linear is one matrix with its bias.
type linear struct {
	spec     linearSpec
	name     string
	op       kernels.Operator
	bias     []float32 // nil if there is none, or op adds it
	hasBias  bool
	biasName string // of the tensor with the bias, if there is one
}

// layer is a decoder layer's weights.
type layer struct {
	arch.LayerConfig
	inputNorm, attentionNorm []float32 // before attention and before the feed-forward network
	postAttention, postMLP   []float32 // after them, if PostNorms
	qNorm, kNorm             []float32
	qkv                      []*linear // q, k, v; or all in one
	out                      *linear
	mlp                      mlp // of a dense layer
	router                   *linear
	experts                  []mlp
}

// mlp is a gated feed-forward network.
type mlp struct {
	gateUp []*linear // gate, up; or both in one
	down   *linear
}

// OpenCheckpoint opens the checkpoint in a directory, with its config.json. It computes in float32, and reads weights
// from the map (see Options.Packed): Close ends that.
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

// OpenGQF opens a model in a .gqf, which has to hold its config.json. Quantized linears run on the packed bytes in place;
// a table that is also the head is there once. f must stay open as long as the Model is used.
func OpenGQF(f *gqf.File, o Options) (*Model, error) {
	raw, err := f.Asset("config.json")
	if err != nil {
		return nil, err
	}
	c, err := arch.ParseForward(raw)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
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

// newModel finds all weights. Reading them happens under the source's guard.
func newModel(c *arch.ForwardConfig, s source, o Options) (*Model, error) {
	features, err := cpu.UpTo(o.CPU)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	m := &Model{config: *c, source: s, linears: map[string]*linear{}, used: map[string]bool{}}
	m.math = rowmath.Sets.For(features).Code
	if err := s.guard(m.load); err != nil {
		return nil, err
	}
	if err := m.unused(); err != nil {
		return nil, err
	}
	m.used = nil
	if o.Threads < 1 {
		o.Threads = runtime.NumCPU()
	}
	m.pool = kernels.NewPool(o.Threads)
	return m, nil
}

// Config describes the model.
func (m *Model) Config() arch.ForwardConfig { return m.config }

// VocabSize is the number of logits of a token.
func (m *Model) VocabSize() int { return m.config.VocabSize }

// Close ends the Model's goroutines, and the map of a checkpoint. Its sessions must not be used any more.
func (m *Model) Close() error {
	m.pool.Close()
	return m.source.close()
}

// Linears lists the names by which [Model.SetLinear] and the hook of [Session.OnInput] know linears: their tensors'
// names, with the number of the expert in brackets for a slice of a fused tensor.
func (m *Model) Linears() []string { return slices.Clone(m.names) }

// Linear returns the operator of a linear; nil if there is none of that name. A bias is not always the operator's: where
// the weights' payload does not hold it, the Model adds it.
func (m *Model) Linear(name string) kernels.Operator {
	if l := m.linears[name]; l != nil {
		return l.op
	}
	return nil
}

// SetLinear puts an operator in the place of that of a linear, and tells how to undo it. Like the operator that was
// there, it adds the layer's bias only if withBias says so; else the Model does. It must not run while a Session computes.
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
