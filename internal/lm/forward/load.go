package forward

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
	"github.com/lowbit-go/gq/kernels"
)

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

// OpenGQF opens a model in a .gqf that holds its config.json. Quantized linear layers run on the
// packed bytes in place. A tied embedding is stored once. f must stay open as long as the Model is
// used.
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
	if o.LlamaCpp {
		c.AsLlamaCpp()
	}
	features, err := cpu.UpTo(o.CPU)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	m := &Model{config: *c, source: s, cpu: o.CPU, linears: map[string]*linear{}, used: map[string]bool{}, biases: map[string][]float32{}}
	m.side.arrange(c)
	some := o.Layers > 0 && o.Layers < len(c.Layers)
	if some {
		m.config.Layers = c.Layers[:o.Layers]
	}
	m.math = rowmath.Sets.For(features).Code
	if err := s.guard(m.load); err != nil {
		return nil, err
	}
	if o.Packed { // the copies are read instead of the map
		s.release()
	}
	if !some {
		if err := m.unused(); err != nil {
			return nil, err
		}
	}
	m.used = nil
	m.pool = kernels.NewPool(o.Threads)
	return m, nil
}

func (m *Model) load() error {
	names, err := arch.PrefixOf(func(name string) bool {
		_, ok := m.source.shape(name)
		return ok
	})
	if err != nil {
		return err
	}
	m.tensors = names
	c := &m.config
	body, embedding, head := names.Body, names.Embedding, names.Head
	m.used[embedding] = true
	if m.embed, err = m.source.embedding(embedding, c.VocabSize, c.HiddenSize); err != nil {
		return err
	}
	o := &opener{Model: m, at: body}
	m.norm = o.normOf(body+c.Facts.FinalNorm.HF+".weight", c.HiddenSize, c.PlusOne)
	o.side()
	for i, l := range c.Layers {
		o.at = fmt.Sprintf("%slayers.%d.", body, i)
		loaded := o.layer(l)
		if o.err != nil {
			return o.err
		}
		m.layers = append(m.layers, *loaded)
	}
	// A separate lm_head counts even if config.json calls the model tied. The quantizer decides the
	// same way, by content.
	if _, ok := m.source.shape(head); !ok {
		if !c.Tied {
			return arch.Missing(head)
		}
		head = embedding
	}
	m.head = o.open(linearSpec{name: head, rows: c.VocabSize, cols: c.HiddenSize, bias: c.HeadBias})
	return o.err
}

// opener opens the tensors of a layer, or those outside of layers. Behind the first error it opens
// nothing, and what it returns is of no use.
type opener struct {
	*Model
	at  string // prefix of the names
	err error
}

// do calls fn unless there was an error.
func (o *opener) do(fn func() error) {
	if o.err == nil {
		o.err = fn()
	}
}

// name returns the name of a kind of tensor, without a suffix.
func (o *opener) name(kind arch.Kind) string { return o.at + o.config.Facts.NameOf(kind) }

// values reads a parameter that is a tensor of this shape.
func (o *opener) values(name string, shape ...int64) (v []float32) {
	o.used[name] = true
	o.do(func() (err error) {
		v, err = o.source.tensor(name, shape...)
		return err
	})
	return v
}

// vector reads a parameter of n values.
func (o *opener) vector(name string, n int) (v []float32) {
	o.used[name] = true
	o.do(func() (err error) {
		v, err = readVector(o.source, name, n)
		return err
	})
	return v
}

// rates reads the logarithms of decays of heads, and returns the factors of the time.
func rates(logarithms []float32) (list []float64) {
	for _, v := range logarithms {
		list = append(list, -detmath.Exp(float64(v)))
	}
	return list
}

// norm opens a norm of a kind.
func (o *opener) norm(kind arch.Kind, width int) *norm {
	return o.normOf(o.name(kind)+".weight", width, o.config.PlusOne)
}

func (o *opener) normOf(name string, width int, plusOne bool) *norm {
	n := &norm{Norm: Norm{name, plusOne, width}, weights: make([]float32, width), eps: o.config.NormEps}
	n.set(o.vector(name, width))
	if o.config.NormBias {
		n.bias = o.vector(strings.TrimSuffix(name, "weight")+"bias", width)
	}
	o.norms = append(o.norms, n)
	return n
}

// linear opens a linear layer of a kind.
func (o *opener) linear(kind arch.Kind, rows, cols int) *linear {
	return o.open(o.spec(kind, rows, cols))
}

// spec names the linear layer of a kind.
func (o *opener) spec(kind arch.Kind, rows, cols int) linearSpec {
	return linearSpec{name: o.name(kind) + ".weight", rows: rows, cols: cols, bias: o.config.BiasOf(kind)}
}

func (o *opener) all(specs ...linearSpec) (list []*linear) {
	for _, spec := range specs {
		list = append(list, o.open(spec))
	}
	return list
}

func (o *opener) open(spec linearSpec) *linear {
	o.used[spec.name] = true
	l := &linear{spec: spec, name: spec.label(), hasBias: spec.bias}
	o.do(func() (err error) {
		if l.op, err = o.source.linear(&l.spec); err != nil || !spec.bias {
			return err
		}
		l.biasName = o.source.biasOf(spec.name)
		if o.used[l.biasName] = true; !l.spec.added {
			l.bias, err = o.storedBias(l)
		}
		return err
	})
	o.linears[l.name] = l
	o.names = append(o.names, l.name)
	return l
}

type norm struct {
	Norm
	weights []float32 // the factors: 1 + gain if PlusOne
	bias    []float32 // nil without a bias
	eps     float64
	groups  int // of neighbouring values that are normalized apart; 0: 1
}

// parts returns the number of parts of a row that are normalized apart, their width and eps.
func (n *norm) parts() (groups, width int, eps float64) {
	groups = max(1, n.groups)
	return groups, n.Width / groups, n.eps
}

// unitNorm is a norm without gains.
func (m *Model) unitNorm(width int) *norm {
	return &norm{Norm: Norm{Width: width}, weights: slices.Repeat([]float32{1}, width), eps: m.config.NormEps}
}

func (n *norm) set(gains []float32) {
	copy(n.weights, gains)
	if n.PlusOne {
		for i := range n.weights {
			n.weights[i]++
		}
	}
}

func (o *opener) layer(l arch.LayerConfig) *layer {
	c := &o.config
	width, keyWidth := l.HeadDim, l.HeadDim
	if c.QKNorm == arch.WholeNorms {
		width, keyWidth = c.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	}
	optional := func(kind arch.Kind, width int) *norm {
		if c.NameOf(kind) == "" || !l.Uses(kind) {
			return nil
		}
		return o.norm(kind, width)
	}
	before, fed := optional(arch.InputNorm, c.HiddenSize), optional(arch.FeedForwardNorm, c.HiddenSize)
	behind, fedBehind := optional(arch.PostAttentionNorm, c.HiddenSize), optional(arch.PostFeedForwardNorm, c.HiddenSize)
	query, key := optional(arch.QueryNorm, width), optional(arch.KeyNorm, keyWidth)
	if c.QKNorm == arch.UnitNorms && l.Rope >= 0 {
		query = o.unitNorm(l.HeadDim)
		key = query
	}
	all := &layer{LayerConfig: l}
	add := func(p part, by, post *norm, factor float64, beside bool) *block {
		all.blocks = append(all.blocks, block{part: p, norm: by, post: post, scale: float64(factor * c.ResidualScale), beside: beside, times: 1})
		return &all.blocks[len(all.blocks)-1]
	}
	if c.AltUp != nil {
		add(&prediction{o.altUp(arch.StreamPredict, c.AltUp.Streams*c.AltUp.Streams)}, nil, nil, 1, false).replace = true
	}
	if l.States() {
		add(o.recurrence(l), before, behind, c.Outputs.Mixer, false)
	}
	if l.Mixer == arch.AttentionMixer || l.Beside {
		add(o.attention(l, query, key), before, behind, c.Outputs.Attention, l.Beside)
	}
	if l.NoFeedForward {
		return all
	}
	if c.Laurel > 0 {
		h, rank := c.HiddenSize, c.Laurel
		path := &laurel{left: o.linear(arch.LaurelLeft, rank, h), right: o.linear(arch.LaurelRight, h, rank), by: o.norm(arch.LaurelNorm, h)}
		add(path, before, nil, 1, true).times = math.Sqrt2 / 2
	}
	if c.Parallel {
		fed = before
	}
	if l.Experts {
		e := o.mixture()
		if e.fed != nil {
			e.sharedFed, fed = fed, nil
		}
		add(e, fed, fedBehind, c.Outputs.FeedForward, c.Parallel)
	} else {
		add(o.network(&l), fed, fedBehind, c.Outputs.FeedForward, c.Parallel)
	}
	if c.PerLayer != nil {
		h, n := c.HiddenSize, o.Model.side.perInputs
		p := &ownInput{gate: o.linear(arch.PerLayerGate, n, h), project: o.linear(arch.PerLayerProjection, h, n), width: n}
		p.at = o.Model.side.inputs + len(o.layers)*n
		if post := o.norm(arch.PerLayerNorm, h); c.AltUp == nil {
			add(p, nil, post, 1, false)
		} else {
			a := &correction{altUp: o.altUp(arch.StreamCorrect, c.AltUp.Streams), own: p, post: post}
			if o.used[o.name(arch.StreamScale)] = true; c.AltUp.Scaled {
				a.scale = o.vector(o.name(arch.StreamScale), c.HiddenSize)
			}
			add(a, nil, nil, 1, false).replace = true
		}
	}
	if c.NameOf(arch.LayerScalar) != "" {
		if factor := o.vector(o.name(arch.LayerScalar), 1); o.err == nil {
			all.blocks[len(all.blocks)-1].times = float64(factor[0])
		}
	}
	return all
}

// unused fails for tensors that the model of config.json does not use: the checkpoint must be for
// another model.
func (m *Model) unused() error {
	var names []string
	for _, name := range m.source.names() {
		if !m.used[name] && !arch.Ignorable(name) && !m.config.Unread(m.tensors.Body, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	more := ""
	if len(names) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(names)-1)
	}
	return fmt.Errorf("tensor %q%s has no place in the model that config.json describes (model_type %s)", names[0], more, m.config.Architecture)
}

// Embedding looks up rows of the token embedding. embedding.Table implements Embedding.
type Embedding interface {
	Lookup(dst []float32, row int) error
}

// Embedding returns the model's token embedding.
func (m *Model) Embedding() Embedding { return m.embed }

// SetEmbedding replaces the model's token embedding; undo restores the previous embedding. The
// lm_head of a tied model stays: see [Model.SetLinear]. SetEmbedding must not run while a Session
// computes.
func (m *Model) SetEmbedding(t Embedding) (undo func()) {
	before := m.embed
	m.embed = t
	return func() { m.embed = before }
}

// Table returns the place of the embedding that the model looks up in a tensor, of tokens or of
// inputs of single layers; nil for any other tensor.
func (m *Model) Table(tensor string) *Embedding {
	switch p := m.side.perLayer; {
	case m.IsEmbedding(tensor):
		return &m.embed
	case p != nil && tensor == p.name:
		return &p.table
	}
	return nil
}

// IsEmbedding reports whether a tensor is the token embedding.
func (m *Model) IsEmbedding(tensor string) bool {
	return tensor == m.tensors.Embedding
}

// Norms describes the norms: the norm before the lm_head, then the norms of each layer.
func (m *Model) Norms() []Norm {
	list := make([]Norm, len(m.norms))
	for i, n := range m.norms {
		list[i] = n.Norm
	}
	return list
}

// NormGains reads the gains of a norm as the checkpoint stores them, regardless of [Model.SetNorm].
func (m *Model) NormGains(tensor string) (gains []float32, err error) {
	n, err := m.findNorm(tensor)
	if err != nil {
		return nil, err
	}
	return gains, m.source.guard(func() (err error) {
		gains, err = readVector(m.source, tensor, n.Width)
		return err
	})
}

// SetNorm replaces the gains of a norm by a copy of gains; undo restores the previous gains. If the
// norm is PlusOne, it multiplies by 1 + gain. SetNorm must not run while a Session computes.
func (m *Model) SetNorm(tensor string, gains []float32) (undo func(), err error) {
	n, err := m.findNorm(tensor)
	if err != nil {
		return nil, err
	}
	if len(gains) != n.Width {
		return nil, fmt.Errorf("norm %q has %d gains, not %d", tensor, n.Width, len(gains))
	}
	before := slices.Clone(n.weights)
	n.set(gains)
	return func() { copy(n.weights, before) }, nil
}

func (m *Model) findNorm(tensor string) (*norm, error) {
	for _, n := range m.norms {
		if n.Tensor == tensor {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no norm %q in this model", tensor)
}
