package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Describe returns llama.cpp's form of the model of config.json with the tensors of sources. The
// error is an *arch.UnsupportedError if llama.cpp or [arch.ParseForward] does not know the model.
func Describe(config []byte, sources []Source) (*Model, error) {
	c, err := arch.ParseForward(config)
	if err != nil {
		return nil, err
	}
	f, ok := familyOf(c.Architecture)
	if !ok {
		return nil, unsupported("model_type %q is not written to .gguf files: gq writes llama.cpp's %s. A .gqf file takes the model", c.Architecture, strings.Join(knownFamilies(), ", "))
	}
	m := &Model{Architecture: f.Name}
	if difference := c.AsLlamaCpp(); difference != "" {
		m.note("llama.cpp's %s %s", f.Name, difference)
	}
	if f.MixtureName != "" && mixtures(c) {
		m.Architecture = f.MixtureName
	}
	if err := m.describeConfig(&f, c); err != nil {
		return nil, err
	}
	m.describeDeepstack(config)
	d := &describer{family: f, config: c, sources: map[string]Source{}, used: map[string]bool{}}
	for _, s := range sources {
		d.sources[s.Name] = s
	}
	if err := d.tensors(); err != nil {
		return nil, err
	}
	if err := d.unused(sources, m); err != nil {
		return nil, err
	}
	m.Tensors = append(ropeTensors(c), d.list...)
	return m, nil
}

// describeDeepstack writes the number of layers to which images add features.
func (m *Model) describeDeepstack(config []byte) {
	var outer struct {
		Vision struct {
			Layers []int `json:"deepstack_visual_indexes"`
		} `json:"vision_config"`
	}
	if json.Unmarshal(config, &outer) == nil && len(outer.Vision.Layers) > 0 {
		m.set(keyDeepstack, len(outer.Vision.Layers))
	}
}

func unsupported(format string, args ...any) error {
	return &arch.UnsupportedError{Msg: fmt.Sprintf(format, args...)}
}

type describer struct {
	family
	config  *arch.ForwardConfig
	sources map[string]Source
	used    map[string]bool
	list    []Tensor
	err     error // the first
	// invent: a source that is used but missing is added with the shape that the model requires.
	invent bool
}

func (d *describer) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *describer) has(name string) bool {
	_, ok := d.sources[name]
	return ok
}

func (d *describer) tensors() error {
	names, err := arch.PrefixOf(d.has)
	if err != nil {
		return err
	}
	c := d.config
	body, embedding, head := names.Body, names.Embedding, names.Head
	d.matrix(Embedding, embedding, c.VocabSize, c.HiddenSize)
	d.multiply(c.EmbeddingScale)
	d.outside(body)
	for i := range c.Layers {
		d.layer(i, fmt.Sprintf("%slayers.%d.", body, i))
	}
	d.norm(d.final.GGUF+".weight", body+d.final.HF+".weight", c.HiddenSize)
	switch s, ok := d.sources[head]; {
	case !ok && !c.Tied:
		d.fail(arch.Missing(head))
	case !ok || s.Same == embedding:
		if d.used[head] = true; d.Multiplied && c.EmbeddingScale != c.LogitScale {
			d.matrix(headName, embedding, c.VocabSize, c.HiddenSize)
			d.multiply(c.LogitScale)
		}
	case d.Tied:
		d.fail(unsupported("tensor %q differs from the embedding, but llama.cpp's %s has no lm_head of its own", head, d.Name))
	default:
		d.matrix(headName, head, c.VocabSize, c.HiddenSize)
		d.multiply(c.LogitScale)
	}
	if c.HeadBias {
		d.vector(headBias, Part{Source: arch.BiasName(head), Rows: c.VocabSize})
	}
	return d.err
}

// outside adds the tensors outside of layers.
func (d *describer) outside(body string) {
	c, h := d.config, d.config.HiddenSize
	if c.PerLayer == nil {
		return
	}
	width := len(c.Layers) * c.PerLayer.Width
	for _, n := range d.outer {
		switch ours, theirs := body+n.HF+".weight", n.GGUF+".weight"; n.Kind {
		case arch.PerLayerEmbedding:
			d.matrix(theirs, ours, c.PerLayer.Vocab, width)
			t := d.last()
			t.Shape[1] = int64(c.VocabSize)
			// Tokens beyond have row 0.
			t.Parts = append(t.Parts, slices.Repeat([]Part{{Source: ours, Rows: 1}}, c.VocabSize-c.PerLayer.Vocab)...)
		case arch.PerLayerModel:
			d.matrix(theirs, ours, width, h)
		case arch.PerLayerModelNorm:
			d.norm(theirs, ours, c.PerLayer.Width)
		default: // a matrix of each further stream
			t := Tensor{Name: theirs, Shape: []int64{int64(h), int64(h), int64(c.AltUp.Streams - 1)}}
			for i := range c.AltUp.Streams - 1 {
				t.Parts = append(t.Parts, Part{Source: strings.Replace(ours, "*", fmt.Sprint(i), 1), Rows: h})
				d.use(t.Parts[i].Source, h, h)
			}
			d.list = append(d.list, t)
		}
	}
}

// layer adds the tensors of layer i. at is the prefix of their names.
func (d *describer) layer(i int, at string) {
	own := *d.config // of this layer
	c, l := &own, &own.Layers[i]
	c.HeadDim, c.KVHeads, c.Intermediate = l.HeadDim, l.KVHeads, l.Intermediate
	orders := map[arch.Kind]Order{}
	if rope := (Order{c.HeadDim, 2, 1}); d.Permuted {
		orders = map[arch.Kind]Order{arch.Query: rope, arch.Key: rope}
	}
	if d.TiledValues {
		orders = d.valueOrders()
	}
	qNorm, kNorm := c.HeadDim, c.HeadDim
	if c.QKNorm == arch.WholeNorms {
		qNorm, kNorm = c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	}
	for _, n := range d.family.layer {
		ours, theirs := at+n.HF, fmt.Sprintf("blk.%d.%s", i, n.GGUF)
		if d.CopiesKeys && l.Borrow > 0 && slices.Contains([]arch.Kind{arch.Key, arch.Value, arch.KeyNorm}, n.Kind) {
			ours = strings.Replace(at, fmt.Sprintf("layers.%d.", i), fmt.Sprintf("layers.%d.", i-l.Borrow), 1) + n.HF
		} else if !l.Uses(n.Kind) || c.NameOf(n.Kind) == "" {
			continue
		}
		switch block := fmt.Sprintf("blk.%d.attn_", i); {
		case n.Kind == arch.KeyValueUp && d.SplitLatents:
			d.splitLatents(block, ours+".weight")
			continue
		case n.Kind == arch.DeltaQKVZ && d.SplitInputs:
			d.splitInputs(block, ours+".weight")
			continue
		}
		if shape, ok := matrices[n.Kind]; ok {
			rows, cols := shape(c)
			if names := strings.Fields(n.GGUF); len(names) == 2 { // of the halves
				for half, name := range names {
					d.add(fmt.Sprintf("blk.%d.%s.weight", i, name), Part{Source: ours + ".weight", From: half * rows / 2, Rows: rows / 2}, false, rows, cols)
				}
				continue
			}
			p := Part{Source: ours + ".weight", Rows: rows, Order: orders[n.Kind]}
			if n.Kind == arch.DeltaOut { // reads the values
				p.Order, p.Columns = Order{}, p.Order
			}
			d.add(theirs+".weight", p, false, rows, cols)
			d.multiply(d.factors(n.Kind)...)
			if c.BiasOf(n.Kind) {
				d.vector(theirs+".bias", Part{Source: ours + ".bias", Rows: rows, Order: orders[n.Kind]})
			}
			continue
		}
		switch n.Kind {
		case arch.InputNorm, arch.PostAttentionNorm, arch.FeedForwardNorm, arch.PostFeedForwardNorm, arch.PerLayerNorm, arch.StreamNorm, arch.LaurelNorm,
			arch.ExpertsNorm, arch.ExpertsPostNorm, arch.SharedPostNorm:
			d.norm(theirs+d.suffix(n.Kind), ours+".weight", c.HiddenSize)
		case arch.QueryNorm, arch.KeyNorm, arch.LatentQueryNorm, arch.LatentKeyNorm:
			a := cmp.Or(c.Latent, &arch.LatentConfig{})
			width := map[arch.Kind]int{arch.QueryNorm: qNorm, arch.KeyNorm: kNorm, arch.LatentQueryNorm: a.QueryRank, arch.LatentKeyNorm: a.KeyRank}
			d.norm(theirs+".weight", ours+".weight", width[n.Kind])
		case arch.ConvKernel:
			d.convolution(theirs+".weight", Part{Source: ours + ".weight", Rows: c.HiddenSize}, c.ShortConv.Kernel)
		case arch.DeltaConv:
			d.convolution(theirs+".weight", Part{Source: ours + ".weight", Rows: c.DeltaNet.Channels(), Order: orders[n.Kind]}, c.DeltaNet.Kernel)
		case arch.DeltaConvQuery, arch.DeltaConvKey, arch.DeltaConvValue:
			d.convolution(theirs+".weight", Part{Source: ours + ".weight", Rows: c.DeltaNet.Inner()}, c.DeltaNet.Kernel)
			d.last().Shape = []int64{int64(c.DeltaNet.Kernel), 1, int64(c.DeltaNet.Inner())}
		case arch.DeltaDecay:
			p := Part{Source: ours, Rows: c.DeltaNet.ValueHeads, Order: orders[n.Kind], Decay: true}
			if !c.DeltaNet.ChannelDecay {
				d.vector(theirs, p)
				continue
			}
			d.add(theirs, p, true, 1, 1, p.Rows, 1)
			d.last().Shape = []int64{1, int64(p.Rows)}
		case arch.DeltaBias:
			rows := c.DeltaNet.ValueHeads
			if c.DeltaNet.ChannelDecay {
				rows = c.DeltaNet.Inner()
			}
			d.vector(theirs+".bias", Part{Source: ours, Rows: rows, Order: orders[n.Kind]})
		case arch.DeltaNorm:
			d.vector(theirs+".weight", Part{Source: ours + ".weight", Rows: c.DeltaNet.ValueDim})
		case arch.MambaConv:
			d.convolution(theirs+".weight", Part{Source: ours + ".weight", Rows: c.Mamba.Channels()}, c.Mamba.Kernel)
			d.vector(theirs+".bias", Part{Source: ours + ".bias", Rows: c.Mamba.Channels()})
		case arch.MambaDecay, arch.MambaSkip:
			d.vector(theirs, Part{Source: ours, Rows: c.Mamba.Heads, Decay: n.Kind == arch.MambaDecay}, 1, c.Mamba.Heads)
		case arch.MambaBias:
			d.vector(theirs+".bias", Part{Source: ours, Rows: c.Mamba.Heads})
		case arch.MambaNorm:
			d.vector(theirs+".weight", Part{Source: ours + ".weight", Rows: c.Mamba.Inner()}, c.Mamba.Inner()/c.Mamba.Groups, c.Mamba.Groups)
		case arch.SharedRouter:
			d.add(theirs+".weight", Part{Source: ours + ".weight", Rows: 1}, true, 1, c.HiddenSize)
		case arch.RouterCorrection:
			if len(d.sources[ours].Shape) == 2 { // of a single row
				d.add(theirs, Part{Source: ours, Rows: 1}, true, 1, c.Experts.Count)
			} else {
				d.vector(theirs, Part{Source: ours, Rows: c.Experts.Count})
			}
		case arch.Sinks, arch.LayerScalar:
			d.vector(theirs+".weight", Part{Source: ours, Rows: map[arch.Kind]int{arch.Sinks: c.Heads, arch.LayerScalar: 1}[n.Kind]})
		case arch.StreamScale, arch.RouterScale:
			d.vector(theirs, Part{Source: ours, Rows: c.HiddenSize})
		case arch.ExpertScale:
			d.vector(theirs, Part{Source: ours, Rows: c.Experts.Count})
		case arch.GateUpExperts:
			if n.GGUF != "" {
				d.mixture(n, theirs+".weight", at)
				continue
			}
			d.mixture(arch.Naming{Kind: arch.GateExperts}, theirs+"ffn_gate_exps.weight", at)
			d.mixture(arch.Naming{Kind: arch.UpExperts}, theirs+"ffn_up_exps.weight", at)
		default:
			d.mixture(n, theirs+".weight", at)
		}
	}
}

// factors returns the factors of the outputs of a linear layer.
func (d *describer) factors(kind arch.Kind) []float64 {
	c := d.config
	if !d.Multiplied {
		return nil
	}
	return map[arch.Kind][]float64{
		arch.Query: {c.AttentionScale * math.Sqrt(float64(c.HeadDim))}, arch.Output: {c.Outputs.Attention}, arch.Gate: {c.GateSlope},
		arch.Down: {c.Outputs.FeedForward / c.GateSlope}, arch.MambaIn: c.Mamba.Factors[:], arch.MambaOut: {c.Outputs.Mixer},
	}[kind]
}

// multiply multiplies the tensor that was added last by a factor, or the rows of a state space's
// gates, inputs, B, C and time steps by a factor each.
func (d *describer) multiply(factors ...float64) {
	if !d.Multiplied || !slices.ContainsFunc(factors, func(f float64) bool { return float32(f) != 1 }) {
		return
	}
	t := d.last()
	whole, rows := t.Parts[0], []int{t.Parts[0].Rows}
	if m := d.config.Mamba; len(factors) > 1 {
		rows = []int{m.Inner(), m.Inner(), m.Groups * m.State, m.Groups * m.State, m.Heads}
	}
	t.Parts, t.F32 = nil, true
	for i, f := range factors {
		whole.Factor, whole.Rows = float32(f), rows[i]
		t.Parts = append(t.Parts, whole)
		whole.From += whole.Rows
	}
}

// suffix follows llama.cpp's name of a norm or a linear layer.
func (f *family) suffix(kind arch.Kind) string {
	if f.Multiplied && kind == arch.FeedForwardNorm {
		return ""
	}
	return ".weight"
}

// mixture adds the router or a kind of experts.
func (d *describer) mixture(n arch.Naming, theirs, at string) {
	c, e := d.config, d.config.Experts
	fused, inputs, outputs := d.has(at+fusedInputs), at+fusedInputs, at+fusedDown
	own := c.NameOf(arch.GateUpExperts)
	if own != "" { // fused in each checkpoint
		fused, inputs, outputs = true, at+own, at+c.NameOf(arch.DownExperts)
		// Transformers saves gate_up_proj without a suffix.
		if !strings.HasSuffix(own, "gate_up_proj") || d.has(inputs+".weight") {
			inputs, outputs = inputs+".weight", outputs+".weight"
		}
	}
	if n.Kind == arch.Router {
		ours := n.HF
		if fused && own == "" {
			ours = fusedRouter
		}
		if d.add(theirs, Part{Source: at + ours + ".weight", Rows: e.Count}, true, e.Count, c.HiddenSize); e.Bias {
			d.vector(arch.BiasName(theirs), Part{Source: at + ours + ".bias", Rows: e.Count})
		}
		return
	}
	rows, cols := e.Intermediate, cmp.Or(e.Latent, c.HiddenSize)
	switch n.Kind {
	case arch.DownExperts:
		rows, cols = cols, rows
	case arch.GateUpExperts:
		rows *= 2
	}
	t := Tensor{Name: theirs, Shape: []int64{int64(cols), int64(rows), int64(e.Count)}}
	for i := range e.Count {
		p := Part{Rows: rows, Slice: i}
		switch {
		case !fused:
			p.Source, p.Slice = at+strings.Replace(n.HF, "*", fmt.Sprint(i), 1)+".weight", 0
			d.use(p.Source, rows, cols)
		case n.Kind == arch.DownExperts:
			p.Source = outputs
			d.use(p.Source, e.Count, rows, cols)
		default:
			p.Source = inputs
			d.use(p.Source, e.Count, 2*e.Intermediate, cols)
			if e.Interleaved {
				p.Step = 2
			}
			if n.Kind == arch.UpExperts && e.Interleaved {
				p.From = 1
			} else if n.Kind == arch.UpExperts {
				p.From = rows
			}
		}
		t.Parts = append(t.Parts, p)
	}
	if d.list = append(d.list, t); e.Bias { // in the order of the rows
		p := t.Parts[0]
		p.Source, p.Rows, p.Elements = arch.BiasName(p.Source), rows*e.Count, true
		d.use(p.Source, e.Count, rows*max(1, p.Step))
		d.list = append(d.list, Tensor{Name: arch.BiasName(theirs), Shape: []int64{int64(rows), int64(e.Count)}, Parts: []Part{p}, F32: true})
	}
}

func (d *describer) matrix(theirs, ours string, rows, cols int) {
	d.add(theirs, Part{Source: ours, Rows: rows}, false, rows, cols)
}

// convolution adds the weights of a convolution of each channel for itself.
func (d *describer) convolution(theirs string, p Part, taps int) {
	d.add(theirs, p, true, p.Rows, 1, taps)
}

// add adds a tensor with a single part, of a source of this shape.
func (d *describer) add(theirs string, p Part, f32 bool, shape ...int) {
	d.use(p.Source, shape...)
	dims := []int64{int64(p.Rows)}
	if last := len(shape) - 1; last > 0 {
		dims = []int64{int64(shape[last]), int64(p.Rows)}
	}
	parts := []Part{p}
	if keys := p.Rows - p.Head; d.TiledValues && p.Head > 0 && keys > 0 { // queries and keys first
		parts = []Part{{Source: p.Source, Rows: keys}, {Source: p.Source, From: keys, Rows: p.Head, Order: p.Order}}
	}
	d.list = append(d.list, Tensor{Name: theirs, Shape: dims, Parts: parts, F32: f32})
}

func (d *describer) norm(theirs, ours string, n int) {
	p := Part{Source: ours, Rows: n}
	if d.config.PlusOne {
		p.Add = 1
	}
	d.vector(theirs, p)
	if d.config.NormBias {
		d.vector(arch.BiasName(theirs), Part{Source: arch.BiasName(ours), Rows: n})
	}
}

func (d *describer) last() *Tensor { return &d.list[len(d.list)-1] }

// vector adds a vector, to which llama.cpp may give other dimensions.
func (d *describer) vector(theirs string, p Part, dims ...int) {
	d.add(theirs, p, true, p.Rows)
	if len(dims) == 2 {
		d.last().Shape = []int64{int64(dims[0]), int64(dims[1])}
	}
}

func (d *describer) use(name string, shape ...int) {
	d.used[name] = true
	want := make([]int64, len(shape))
	for i, n := range shape {
		want[i] = int64(n)
	}
	s, ok := d.sources[name]
	switch {
	case !ok && d.invent:
		d.sources[name] = Source{Name: name, Shape: want}
	case !ok:
		d.fail(arch.Missing(name))
	case !slices.Equal(s.Shape, want) && !slices.Equal(s.Shape, slices.DeleteFunc(slices.Clone(want), func(n int64) bool { return n == 1 })):
		d.fail(fmt.Errorf("tensor %q: shape %v, but config.json makes it %v", name, s.Shape, want))
	}
}

// unused fails for sources that have no place in the model, and notes parts that the file does not
// hold.
func (d *describer) unused(sources []Source, m *Model) error {
	towers, predictors := 0, 0
	names, err := arch.PrefixOf(d.has)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if d.used[s.Name] {
			continue
		}
		if d.config.Unread(names.Body, s.Name) {
			predictors++
			continue
		}
		if weight, ok := arch.ScaleOf(s.Name); ok && d.has(weight) {
			continue
		}
		if !arch.Ignorable(s.Name) {
			return fmt.Errorf("tensor %q has no place in the model that config.json describes (model_type %s)", s.Name, d.config.Architecture)
		}
		if arch.InTower(s.Name) {
			towers++
		}
	}
	if predictors > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("the tensors that no pass reads (%d), of layers that predict further tokens or of keys and values, are left out", predictors))
	}
	if towers > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("the tensors for images (%d) are left out: llama.cpp keeps them in a file of their own (mmproj)", towers))
	}
	return nil
}
