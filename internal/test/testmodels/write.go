package testmodels

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/packing"
)

// Write makes the checkpoint of a variant in dir, with float32 weights.
func (v Variant) Write(t testing.TB, dir string) {
	t.Helper()
	config, err := json.MarshalIndent(v.Config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	WriteModel(t, dir, config)
	for name, content := range v.Tokenizer.files(t) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// WriteModel makes a checkpoint with random float32 weights, without a tokenizer.
func WriteModel(t testing.TB, dir string, config []byte) {
	t.Helper()
	c, err := arch.ParseForward(config)
	if err != nil {
		t.Fatal(err)
	}
	m := synth.Model{Config: config, Tensors: tensors(c), Dtype: packing.F32}
	if err := synth.WriteModel(context.Background(), dir, m, nil); err != nil {
		t.Fatal(err)
	}
}

// A builder lists the tensors of a model.
type builder struct {
	c   *arch.ForwardConfig
	all []synth.Tensor
}

// tensors lists the tensors that package model reads for the configuration. Package model fails for
// a tensor too few or too many.
func tensors(c *arch.ForwardConfig) []synth.Tensor {
	b := &builder{c: c}
	b.linear("model.embed_tokens", c.VocabSize, c.HiddenSize, 1, false)
	for i, l := range c.Layers {
		b.layer(fmt.Sprintf("model.layers.%d.", i), l)
	}
	b.norm("model.norm", c.HiddenSize, 1.8)
	if !c.Tied {
		b.linear("lm_head", c.VocabSize, c.HiddenSize, 1, false)
	}
	return b.all
}

// linear adds a matrix with a standard deviation of gain / sqrt(cols), and its bias.
func (b *builder) linear(name string, rows, cols int, gain float64, bias bool) {
	b.all = append(b.all, synth.Matrix(name+".weight", rows, cols, gain))
	if bias {
		b.all = append(b.all, synth.Vector(name+".bias", rows, 0, 0.2))
	}
}

// norm adds a norm that multiplies by mean on average.
func (b *builder) norm(name string, n int, mean float64) {
	std := mean / 8
	if b.c.Norms == arch.GemmaNorms {
		mean--
	}
	b.all = append(b.all, synth.Vector(name+".weight", n, mean, std))
}

func (b *builder) layer(at string, l arch.LayerConfig) {
	c := b.c
	b.norm(at+"input_layernorm", c.HiddenSize, 0.8)
	b.norm(at+"post_attention_layernorm", c.HiddenSize, 0.7)
	if c.Norms != arch.PreNorms {
		b.norm(at+"pre_feedforward_layernorm", c.HiddenSize, 0.9)
		b.norm(at+"post_feedforward_layernorm", c.HiddenSize, 0.6)
	}
	b.attention(at + "self_attn.")
	if l.Experts {
		b.experts(at)
	} else {
		b.mlp(at + "mlp.")
	}
}

func (b *builder) attention(at string) {
	c := b.c
	q, kv, bias := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.AttentionBias >= arch.QKVBias
	if c.QKNorm {
		b.norm(at+"q_norm", c.HeadDim, 1.5)
		b.norm(at+"k_norm", c.HeadDim, 1.2)
	}
	if c.Fused {
		b.linear(at+"qkv_proj", q+2*kv, c.HiddenSize, 1.5, bias)
	} else {
		b.linear(at+"q_proj", q, c.HiddenSize, 1.5, bias)
		b.linear(at+"k_proj", kv, c.HiddenSize, 1.6, bias)
		b.linear(at+"v_proj", kv, c.HiddenSize, 0.9, bias)
	}
	b.linear(at+"o_proj", c.HiddenSize, q, 0.7, c.AttentionBias == arch.AllBias)
}

func (b *builder) mlp(at string) {
	c := b.c
	if c.Fused {
		b.linear(at+"gate_up_proj", 2*c.Intermediate, c.HiddenSize, 1, c.MLPBias)
	} else {
		b.linear(at+"gate_proj", c.Intermediate, c.HiddenSize, 1, c.MLPBias)
		b.linear(at+"up_proj", c.Intermediate, c.HiddenSize, 0.9, c.MLPBias)
	}
	b.linear(at+"down_proj", c.HiddenSize, c.Intermediate, 1.3, c.MLPBias)
}

func (b *builder) experts(at string) {
	c, e := b.c, b.c.Experts
	b.linear(at+e.Module+".gate", e.Count, c.HiddenSize, 2, false)
	for i := range e.Count {
		in := fmt.Sprintf("%s%s.experts.%d.", at, e.Module, i)
		b.linear(in+e.Gate, e.Intermediate, c.HiddenSize, 1, false)
		b.linear(in+e.Up, e.Intermediate, c.HiddenSize, 0.9, false)
		b.linear(in+e.Down, c.HiddenSize, e.Intermediate, 1.3, false)
	}
}
