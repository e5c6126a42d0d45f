package hfquant

import (
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestGPTQScales: BF16 numbers from the smallest scale on are F16 numbers, and the next smaller one
// is not.
func TestGPTQScales(t *testing.T) {
	least := GPTQ.SmallestScale(packing.ScaleBF16)
	for i := range 128 {
		v := least + least*float32(i)/128
		if packing.ScaleBF16.Round(v) != v || packing.ScaleF16.Round(v) != v {
			t.Errorf("%g is no BF16 or no F16 number", v)
		}
	}
	if v := least * 255 / 256; packing.ScaleBF16.Round(v) != v || packing.ScaleF16.Round(v) == v {
		t.Errorf("%g is an F16 number", v)
	}
}

func TestFormatMergedName(t *testing.T) {
	for _, c := range []struct {
		f          Format
		name, want string
	}{
		{GPTQ, "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.qkv_proj.weight"},
		{IntQuantized, "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_up_proj.weight"},
		{IntQuantized, "model.layers.0.mlp.up_proj.bias", "model.layers.0.mlp.up_proj.bias"},
		{IntQuantized, "model.layers.0.mlp.experts.0.up_proj.weight", "model.layers.0.mlp.experts.0.up_proj.weight"},
		{TorchAO, "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_up_proj.weight"},
		{MLX, "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
		{"", "q_proj.weight", "q_proj.weight"},
		{GPTQ, "q_proj.weight", "qkv_proj.weight"},
	} {
		if got := c.f.MergedName(c.name); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.f, c.name, got, c.want)
		}
	}
}
