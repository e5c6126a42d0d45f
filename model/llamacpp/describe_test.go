package llamacpp

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
)

var update = flag.Bool("update", false, "write the golden files")

// model reads a small checkpoint of package model's tests, with edited keys of its config.json and
// edited shapes of tensors, by the end of their names.
func model(t *testing.T, name string, keys map[string]any, shapes map[string][]int64) (config []byte, sources []Source) {
	t.Helper()
	dir := filepath.Join("..", "testdata", "torch", name)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, keys)
	if config, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tensor := range c.Tensors() {
		s := Source{Name: tensor.Name, Shape: tensor.Shape}
		for end, shape := range shapes {
			if strings.HasSuffix(s.Name, end) {
				s.Shape = shape
			}
		}
		sources = append(sources, s)
	}
	return config, sources
}

// text writes a model in one line per key and tensor.
func (m *Model) text() string {
	var b strings.Builder
	for _, p := range m.Metadata {
		fmt.Fprintf(&b, "%s %T %v\n", p.Key, p.Value, p.Value)
	}
	for _, t := range m.Tensors {
		fmt.Fprintf(&b, "%s %v", t.Name, t.Shape)
		if t.F32 {
			b.WriteString(" F32")
		}
		for _, p := range t.Parts {
			fmt.Fprintf(&b, " %s[%d][%d:%d]", p.Source, p.Slice, p.From, p.From+p.Rows)
			if p.HeadDim != 0 {
				fmt.Fprintf(&b, " heads of %d", p.HeadDim)
			}
			if p.Add != 0 {
				fmt.Fprintf(&b, " + %v", p.Add)
			}
		}
		if t.Values != nil {
			fmt.Fprintf(&b, " = %v", t.Values)
		}
		b.WriteByte('\n')
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func TestDescribe(t *testing.T) {
	type keys map[string]any
	for _, c := range []struct {
		name   string
		keys   keys
		shapes map[string][]int64
	}{
		{name: "llama-bias-tied"}, {name: "llama2-linear"}, {name: "llama3"}, {name: "mistral"}, {name: "mixtral"},
		{name: "qwen2"}, {name: "qwen2-window"}, {name: "qwen3"},
		// Heads of hidden_size / heads, as llama.cpp expects.
		{name: "qwen2-yarn", keys: keys{"num_attention_heads": 2}, shapes: map[string][]int64{
			"q_proj.weight": {32, 32}, "q_proj.bias": {32}, "o_proj.weight": {32, 32},
		}},
		{name: "gemma2", keys: keys{"query_pre_attn_scalar": 16}}, // the size of a head
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16}},
		{name: "phi3"}, {name: "phi4-mini"}, {name: "smollm3"},
	} {
		config, sources := model(t, c.name, c.keys, c.shapes)
		m, err := Describe(config, sources)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		golden := filepath.Join("testdata", c.name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(m.text()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != m.text() {
			t.Errorf("%s differs from %s:\n%s", c.name, golden, m.text())
		}
	}
}
