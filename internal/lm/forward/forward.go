package forward

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
	"github.com/lowbit-go/gq/kernels"
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
	// ONNX multiplies dequantized weights with activations that have been rounded as ONNX Runtime
	// does for MatMulNBits with accuracy_level 4: to int8, with a scale for each block.
	ONNX
)

var activationNames = []string{"int8", "float32", "onnx"}

// ParseActivations parses "int8", "float32" or "onnx".
func ParseActivations(s string) (Activations, bool) {
	i := slices.Index(activationNames, s)
	return Activations(max(0, i)), i >= 0
}

func (a Activations) String() string { return activationNames[a] }

// Options are the options of a Model. Only Activations and ForCPU can change results.
type Options struct {
	Threads     int         // default GOMAXPROCS
	CPU         string      // see kernels.Options.CPU
	Activations Activations // inputs of quantized linear layers; default Int8
	// Log is kernels.Options.Log, with the same default.
	Log func(kernels.Choice)
	// Packed copies float weights into memory in the order of their kernels, including weights that
	// are dequantized for Float32. This is faster, especially for few tokens at a time. Default:
	// weights are read from the map each time.
	Packed bool
	// Layers, if not 0, opens only so many layers from the first: the lm_head reads the last open
	// layer. Default (0): all.
	Layers int
	// ForCPU chooses the best variant of a .gqf for this CPU: see [gqf.Tensor.VariantsFor]. Logits
	// may then differ between CPUs, because layouts may sum in different orders. Default: the first
	// variant that has kernels.
	ForCPU bool
	// LlamaCpp computes as llama.cpp does where llama.cpp differs from Transformers.
	LlamaCpp bool
}

// Model is a language model that computes logits. Sessions of a Model share its threads. Several
// goroutines may use sessions of the same Model, but only one computes at a time.
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
	side    side
	caches  []cache // of the parts that remember tokens: what caches of sessions are made of
	linears map[string]*linear
	names   []string // of linear layers, in order of creation
	used    map[string]bool
	biases  map[string][]float32 // of fused experts, all slices, as read
	tensors arch.Prefix
	cpu     string // Options.CPU
	math    *rowmath.Set
}

type linear struct {
	spec     linearSpec
	name     string
	op       kernels.Operator
	bias     []float32 // nil without a bias, or if op adds the bias
	hasBias  bool
	biasName string // tensor's name, or "" without a bias
}

type layer struct {
	arch.LayerConfig
	blocks []block
}

// Config returns the model's configuration.
func (m *Model) Config() arch.ForwardConfig { return m.config }

// Pool returns the goroutines that the Model's passes run on, for the caller's work between passes.
func (m *Model) Pool() *kernels.Pool { return m.pool }

// VocabSize returns the number of logits per token.
func (m *Model) VocabSize() int { return m.config.VocabSize }

// run calls fn, a pass, with the Model locked.
func (m *Model) run(fn func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pass(fn)
}

// pass calls fn under the source's guard, and returns the error that ended fn: see fail.
func (m *Model) pass(fn func()) error {
	return m.source.guard(func() (err error) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case failure:
				err = r.error
			default: // a fault of the map, for the guard
				panic(r)
			}
		}()
		fn()
		return nil
	})
}

// failure is the panic by which fail ends a pass.
type failure struct{ error }

// fail ends the running pass of this goroutine with an error, unless err is nil. Parts of a model
// depend on each other without a choice, so only [Model.pass] handles errors of their products.
func fail(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// checkTokens checks tokens from a position of a sequence on; sequence -1 has no number.
func (m *Model) checkTokens(sequence, from int, ids []int32) error {
	for p, id := range ids {
		if id < 0 || int(id) >= m.config.VocabSize {
			of := ""
			if sequence >= 0 {
				of = fmt.Sprintf("sequence %d: ", sequence)
			}
			return fmt.Errorf("model: %stoken %d at position %d: the vocabulary has %d tokens", of, id, from+p, m.config.VocabSize)
		}
	}
	return nil
}

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

// Executes returns the type of the activations that a linear layer multiplies, whatever Options
// asks for: int8 if the layer has a packed kernel, a type of ggml such as Q8_K for weights of a
// GGUF file, else float32.
func (m *Model) Executes(name string) string {
	return cmp.Or(quantizedAs(m.Linear(name)), Float32.String())
}

// quantizedAs is the type to which an operator quantizes activations, or "".
func quantizedAs(op kernels.Operator) string {
	if q, ok := op.(interface{ Activations() string }); ok {
		return q.Activations()
	}
	return ""
}

// Executed returns the activations of quantized linear layers, or Float32, and a description: "int8
// activations in 12 of 40 matrices", or without numbers if that holds for all linear layers.
// Weights of a GGUF file add ggml's types of the activations: "int8 activations (Q8_K, Q8_0)".
func (m *Model) Executed() (Activations, string) {
	n, a := 0, Float32
	var types []string
	for _, name := range m.names {
		as, own := quantizedAs(m.Linear(name)), false
		if as == "" {
			continue
		}
		if a, own = ParseActivations(as); !own && !slices.Contains(types, as) {
			types = append(types, as)
		}
		n++
	}
	what := a.String() + " activations"
	if types != nil {
		what += " (" + strings.Join(types, ", ") + ")"
	}
	if n == 0 || n == len(m.names) {
		return a, what
	}
	return a, fmt.Sprintf("%s in %d of %d matrices", what, n, len(m.names))
}

// SetLinear replaces the operator of a linear layer; undo restores the previous operator. withBias
// states that op adds the layer's bias; otherwise the Model does. SetLinear must not run while a
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
		if bias, err = m.storedBias(l); err != nil {
			return nil, err
		}
	}
	l.op, l.bias = op, bias
	return func() { *l = before }, nil
}
