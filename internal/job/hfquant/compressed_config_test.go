package hfquant

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestCompressedTargets finds the config group of each module: by name before pattern before class.
func TestCompressedTargets(t *testing.T) {
	config := `{"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
		"activations": {"targets": ["Attention"], "input_activations": {"num_bits": 8}},
		"class":   {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}},
		"pattern": {"targets": ["re:.*down_proj$", "re:layers.1"], "weights": {"num_bits": 6, "strategy": "channel"}},
		"names":   {"targets": ["layers.1.down_proj"], "weights": {"num_bits": 4, "strategy": "channel"}}}}}`
	want := map[string]int{
		"layers.0.down_proj.weight": 6, // a pattern
		"layers.1.down_proj.weight": 4, // its name
		"layers.1.up_proj.weight":   6, // a pattern matches the start
		"model.layers.1.up.weight":  8, // no pattern matches inside
		"lm_head.weight":            8,
	}
	var tensors []stored
	for name := range want {
		module := strings.TrimSuffix(name, "weight")
		for _, s := range []stored{int8Tensor("weight", []int64{2, 4}, make([]int8, 8)...), floatTensor("weight_scale", []int64{2, 1}, 1, 2)} {
			s.Name = module + strings.TrimPrefix(s.Name, "m.")
			tensors = append(tensors, s)
		}
	}
	q, err := Find(store(t, tensors...), []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range q.Weights {
		if w.Scheme.Bits != want[w.Name] {
			t.Errorf("%s has %d bits, want %d", w.Name, w.Scheme.Bits, want[w.Name])
		}
		if i > 0 && q.Weights[i-1].Name >= w.Name {
			t.Errorf("%s is behind %s", w.Name, q.Weights[i-1].Name)
		}
		for name, at := range q.Parts {
			if strings.HasPrefix(name, strings.TrimSuffix(w.Name, "weight")) != (at == i) {
				t.Errorf("%s is a part of weight %d", name, at)
			}
		}
	}

	for _, tt := range []struct{ old, new, want string }{
		{`"Linear"`, `"Conv1d"`, `no config group of quantization_config targets "`},
		{`re:layers.1`, `re:(?=layers)`, `target "re:(?=layers)" is not read: `},
		{`re:layers.1`, `re:` + strings.Repeat("x", maxPatternBytes), `bytes of patterns`},
		{`"re:layers.1"`, strings.Repeat(`"re:x",`, maxPatterns) + `"re:x"`, `more than 64 patterns`},
		{`"Linear"`, `"layers.1.down_proj"`, `two config groups target "layers.1.down_proj"`},
		{`"activations": {`, `"activations": null, "x": {`, `config group "activations" is null`},
	} {
		_, err := Find(store(t, tensors...), []byte(strings.Replace(config, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// entryOf is the quantization_config that a format writes.
func entryOf(t *testing.T, f Format, weights []ModelWeight) map[string]any {
	t.Helper()
	out, _, err := f.Config([]byte(`{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}`), weights)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Type  string         `json:"model_type"`
		Entry map[string]any `json:"quantization_config"`
	}
	if err := json.Unmarshal(out, &c); err != nil || c.Type != "llama" {
		t.Fatalf("%s: %v", out, err)
	}
	return c.Entry
}

// equalJSON compares a value with JSON.
func equalJSON(t *testing.T, what string, got any, want string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(want), &value); err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(value)
	if string(a) != string(b) {
		t.Errorf("%s is %s, want %s", what, a, b)
	}
}

// TestCompressedConfig compares the entry with the entries of the library and of Arm's recipe for
// vLLM.
func TestCompressedConfig(t *testing.T) {
	w4 := &Scheme{Bits: 4, Group: 32, Scales: packing.BF16}
	w8 := &Scheme{Bits: 8, Scales: packing.F32, Zeros: IntZeros}
	up := ModelWeight{Name: "model.layers.0.mlp.up_proj.weight", Scheme: w4, Linear: true}
	gate := ModelWeight{Name: "model.layers.0.mlp.gate.weight", Linear: true}
	others := []ModelWeight{{Name: "model.embed_tokens.weight"}, {Name: "model.norm.weight"}, {Name: "model.layers.0.self_attn.q_proj.bias"}}

	e := entryOf(t, IntQuantized, append(others, up, gate))
	equalJSON(t, "W4A8", e, `{"config_groups": {"group_0": {
		"input_activations": {"actorder": null, "block_structure": null, "dynamic": true, "group_size": null, "num_bits": 8,
			"observer": null, "observer_kwargs": {}, "strategy": "token", "symmetric": false, "type": "int"},
		"output_activations": null, "targets": ["Linear"],
		"weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": 32, "num_bits": 4,
			"observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int"}}},
		"format": "int-quantized", "global_compression_ratio": null, "ignore": ["model.layers.0.mlp.gate", "lm_head"],
		"kv_cache_scheme": null, "quant_method": "compressed-tensors", "quantization_status": "compressed"}`)

	head := ModelWeight{Name: "lm_head.weight", Scheme: w8, Linear: true}
	same := *w4
	same.Scales = packing.F16 // does not make another group
	e = entryOf(t, PackQuantized, append(others, head, up, ModelWeight{Name: "a.weight", Scheme: &same, Linear: true}))
	groups := e["config_groups"].(map[string]any)
	equalJSON(t, "the groups' targets", []any{groups["group_0"].(map[string]any)["targets"], groups["group_1"].(map[string]any)["targets"]},
		`[["lm_head"], ["model.layers.0.mlp.up_proj", "a"]]`)
	equalJSON(t, "the group of lm_head", groups["group_0"], `{"input_activations": null, "output_activations": null, "targets": ["lm_head"],
		"weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": null, "num_bits": 8,
			"observer": "minmax", "observer_kwargs": {}, "strategy": "channel", "symmetric": false, "type": "int"}}`)
	equalJSON(t, "ignore", e["ignore"], `[]`)

	for _, tt := range []struct {
		weights []ModelWeight
		want    string
	}{
		{others, "config.json for format pack-quantized: no weight is quantized"},
		{[]ModelWeight{{Name: "model.embed_tokens.weight", Scheme: w4}}, `tensor "model.embed_tokens.weight": only weights of linear layers can be quantized; leave it unquantized`},
		{[]ModelWeight{{Name: "experts.up_proj", Scheme: w4, Linear: true}}, `tensor "experts.up_proj": only weights of linear layers`},
	} {
		if _, _, err := PackQuantized.Config([]byte("{}"), tt.weights); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if _, _, err := PackQuantized.Config([]byte("[]"), []ModelWeight{up}); err == nil {
		t.Error("a config that is no object is taken")
	}
}

// TestKimi finds the experts of a checkpoint like Kimi-K2-Thinking's, the only weights that are
// quantized there.
func TestKimi(t *testing.T) {
	config := `{"model_type": "kimi_k2", "quantization_config": {"config_groups": {"group_0": {"input_activations": null,
		"output_activations": null, "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
		"group_size": 32, "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int"}}},
		"format": "pack-quantized", "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
		"kv_cache_scheme": null, "quant_method": "compressed-tensors", "quantization_status": "compressed"}}`
	scheme := Scheme{Bits: 4, Group: 32, Scales: packing.BF16}
	var tensors []stored
	var want []string
	for _, name := range []string{"0.down_proj", "0.gate_proj", "10.down_proj"} {
		name = "model.layers.1.mlp.experts." + name
		parts, _ := module(t, PackQuantized, scheme, 8, 64)
		for _, p := range tensorsOf(parts) {
			p.Name = name + strings.TrimPrefix(p.Name, "m")
			tensors = append(tensors, p)
		}
		want = append(want, name+".weight")
	}
	for _, name := range []string{"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.shared_experts.up_proj.weight", "lm_head.weight"} {
		tensors = append(tensors, stored{Part{Name: name, Dtype: packing.BF16, Shape: []int64{8, 64}}, make([]byte, 1024)})
	}
	q, err := Find(store(t, tensors...), []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range q.Weights {
		names = append(names, w.Name)
		if w.Scheme != scheme {
			t.Errorf("%s: %v, want %v", w.Name, w.Scheme, scheme)
		}
	}
	if !slices.Equal(names, want) || len(q.Parts) != 9 || q.Format != PackQuantized || string(q.Config) != `{"model_type": "kimi_k2"}` {
		t.Errorf("found %q, %d parts, %s, %s", names, len(q.Parts), q.Format, q.Config)
	}
}

// TestFindNothing reads checkpoints that no library quantized to integers.
func TestFindNothing(t *testing.T) {
	half := stored{Part{Name: "m.weight", Dtype: packing.BF16, Shape: []int64{2, 2}}, make([]byte, 8)}
	fp8 := stored{Part{Name: "m.weight", Dtype: packing.F8E4M3, Shape: []int64{2, 2}}, make([]byte, 4)}
	table := int32Tensor("gate.tid2eid", []int64{2, 2}, 0, 1, 2, 3)
	for _, tt := range []struct {
		name, config string
		tensors      []stored
	}{
		{"no entry", `{}`, []stored{half}},
		{"integers that are no weights", `{"x": Infinity}`, []stored{half, table}},
		{"block scales", `{"quantization_config": {"quant_method": "fp8"}}`, []stored{fp8, table, floatTensor("weight_scale_inv", []int64{1, 1}, 1)}},
		{"FP8 of compressed-tensors", weightsConfig("float-quantized", `{"type": "float"}`), []stored{fp8, floatTensor("weight_scale", []int64{1}, 1)}},
		{"weights that compressed-tensors decompressed", weightsConfig("pack-quantized", group16), []stored{half}},
		{"floats of another library", `{"quantization_config": {"quant_method": "bitsandbytes"}}`, []stored{half}},
		{"an entry without a method", `{"quantization_config": {}}`, []stored{half}},
		{"null", `{"quantization_config": null, "text_config": null}`, []stored{half, table}},
		{"no objects", `{"quantization_config": 1, "text_config": [2]}`, []stored{half, table}},
	} {
		if q, err := Find(store(t, tt.tensors...), []byte(tt.config)); q != nil || err != nil {
			t.Errorf("%s: %+v, %v", tt.name, q, err)
		}
	}
	if q, err := Find(store(t, half), nil); q != nil || err != nil {
		t.Errorf("no config: %+v, %v", q, err)
	}
}
