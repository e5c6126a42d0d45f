package model

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/model/arch"
)

// load opens all weights.
func (m *Model) load() error {
	body, head, err := arch.Prefix(func(name string) bool {
		_, ok := m.source.shape(name)
		return ok
	})
	if err != nil {
		return err
	}
	m.body, m.headName = body, head
	c := &m.config
	embedding := body + "embed_tokens.weight"
	m.used[embedding] = true
	if m.embed, err = m.source.embedding(embedding, c.VocabSize, c.HiddenSize); err != nil {
		return err
	}
	if m.norm, err = m.loadNorm(body+"norm.weight", c.HiddenSize); err != nil {
		return err
	}
	for i, l := range c.Layers {
		loaded := layer{LayerConfig: l}
		if err := m.loadLayer(&loaded, fmt.Sprintf("%slayers.%d.", body, i)); err != nil {
			return err
		}
		m.layers = append(m.layers, loaded)
	}
	// A separate lm_head counts even if config.json says that it is tied. The quantizer decides the
	// same way, by content.
	if _, ok := m.source.shape(head); !ok {
		if !c.Tied {
			return arch.Missing(head)
		}
		head = embedding
	}
	m.head, err = m.linear(linearSpec{name: head, rows: c.VocabSize, cols: c.HiddenSize})
	return err
}

// norm is an RMSNorm with its gains.
type norm struct {
	Norm
	weights []float32 // the factors: 1 + gain if PlusOne
}

// loadNorm reads the gains of a norm.
func (m *Model) loadNorm(name string, width int) (*norm, error) {
	m.used[name] = true
	gains, err := m.source.vector(name, width)
	if err != nil {
		return nil, err
	}
	n := &norm{Norm{name, m.config.NormPlusOne, width}, make([]float32, width)}
	n.set(gains)
	m.norms = append(m.norms, n)
	return n, nil
}

// set sets the factors.
func (n *norm) set(gains []float32) {
	copy(n.weights, gains)
	if n.PlusOne {
		for i := range n.weights {
			n.weights[i]++
		}
	}
}

func (m *Model) loadLayer(l *layer, at string) error {
	c := &m.config
	before := "post_attention_layernorm.weight"
	if c.PostNorms {
		before = "pre_feedforward_layernorm.weight"
	}
	norms := []struct {
		dst  **norm
		name string
		n    int
		want bool
	}{
		{&l.inputNorm, "input_layernorm.weight", c.HiddenSize, true},
		{&l.attentionNorm, before, c.HiddenSize, true},
		{&l.postAttention, "post_attention_layernorm.weight", c.HiddenSize, c.PostNorms},
		{&l.postMLP, "post_feedforward_layernorm.weight", c.HiddenSize, c.PostNorms},
		{&l.qNorm, "self_attn.q_norm.weight", c.HeadDim, c.QKNorm},
		{&l.kNorm, "self_attn.k_norm.weight", c.HeadDim, c.QKNorm},
	}
	for _, n := range norms {
		if !n.want {
			continue
		}
		var err error
		if *n.dst, err = m.loadNorm(at+n.name, n.n); err != nil {
			return err
		}
	}
	if err := m.loadAttention(l, at+"self_attn."); err != nil {
		return err
	}
	var err error
	if l.Experts {
		err = m.loadExperts(l, at)
	} else {
		l.mlp, err = m.loadMLP(at + "mlp.")
	}
	return err
}

func (m *Model) loadAttention(l *layer, at string) error {
	c := &m.config
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	parts := []linearSpec{
		{name: at + "q_proj.weight", rows: q, cols: c.HiddenSize, bias: c.QKVBias},
		{name: at + "k_proj.weight", rows: kv, cols: c.HiddenSize, bias: c.QKVBias},
		{name: at + "v_proj.weight", rows: kv, cols: c.HiddenSize, bias: c.QKVBias},
	}
	if c.FusedQKV {
		parts = []linearSpec{{name: at + "qkv_proj.weight", rows: q + 2*kv, cols: c.HiddenSize, bias: c.QKVBias}}
	}
	for _, p := range parts {
		part, err := m.linear(p)
		if err != nil {
			return err
		}
		l.qkv = append(l.qkv, part)
	}
	var err error
	l.out, err = m.linear(linearSpec{name: at + "o_proj.weight", rows: c.HiddenSize, cols: q, bias: c.OutBias})
	return err
}

func (m *Model) loadMLP(at string) (mlp, error) {
	c := &m.config
	parts := []linearSpec{
		{name: at + "gate_proj.weight", rows: c.Intermediate, cols: c.HiddenSize, bias: c.MLPBias},
		{name: at + "up_proj.weight", rows: c.Intermediate, cols: c.HiddenSize, bias: c.MLPBias},
	}
	if c.FusedGateUp {
		parts = []linearSpec{{name: at + "gate_up_proj.weight", rows: 2 * c.Intermediate, cols: c.HiddenSize, bias: c.MLPBias}}
	}
	return m.gated(parts, linearSpec{name: at + "down_proj.weight", rows: c.HiddenSize, cols: c.Intermediate, bias: c.MLPBias})
}

func (m *Model) gated(gateUp []linearSpec, down linearSpec) (f mlp, err error) {
	for _, p := range gateUp {
		part, err := m.linear(p)
		if err != nil {
			return f, err
		}
		f.gateUp = append(f.gateUp, part)
	}
	f.down, err = m.linear(down)
	return f, err
}

// loadExperts opens a mixture's router and experts: one tensor per expert, as published, or fused
// tensors under mlp, as transformers 5 saves them.
func (m *Model) loadExperts(l *layer, at string) error {
	c, e := &m.config, m.config.Experts
	module := at + e.Module + "."
	_, fused := m.source.shape(at + "mlp.experts.gate_up_proj")
	if fused {
		module = at + "mlp."
	}
	var err error
	if l.router, err = m.linear(linearSpec{name: module + "gate.weight", rows: e.Count, cols: c.HiddenSize}); err != nil {
		return err
	}
	for i := range e.Count {
		in := module + "experts."
		gateUp := []linearSpec{
			{name: fmt.Sprintf("%s%d.%s.weight", in, i, e.Gate), rows: e.Intermediate, cols: c.HiddenSize},
			{name: fmt.Sprintf("%s%d.%s.weight", in, i, e.Up), rows: e.Intermediate, cols: c.HiddenSize},
		}
		down := linearSpec{name: fmt.Sprintf("%s%d.%s.weight", in, i, e.Down), rows: c.HiddenSize, cols: e.Intermediate}
		if fused {
			gateUp = []linearSpec{{name: in + "gate_up_proj", slice: i, slices: e.Count, rows: 2 * e.Intermediate, cols: c.HiddenSize}}
			down = linearSpec{name: in + "down_proj", slice: i, slices: e.Count, rows: c.HiddenSize, cols: e.Intermediate}
		}
		expert, err := m.gated(gateUp, down)
		if err != nil {
			return err
		}
		l.experts = append(l.experts, expert)
	}
	return nil
}

// linear opens a matrix and its bias.
func (m *Model) linear(spec linearSpec) (*linear, error) {
	m.used[spec.name] = true
	op, withBias, err := m.source.linear(spec)
	if err != nil {
		return nil, err
	}
	l := &linear{spec: spec, name: spec.label(), op: op, hasBias: spec.bias}
	if spec.bias {
		l.biasName = m.source.biasOf(spec.name)
		m.used[l.biasName] = true
		if !withBias {
			if l.bias, err = m.source.vector(l.biasName, spec.rows); err != nil {
				return nil, err
			}
		}
	}
	m.linears[l.name] = l
	m.names = append(m.names, l.name)
	return l, nil
}

// unused fails for tensors that the model of config.json does not use: the checkpoint must be for
// another model.
func (m *Model) unused() error {
	var names []string
	for _, name := range m.source.names() {
		if !m.used[name] && !arch.Ignorable(name) {
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
