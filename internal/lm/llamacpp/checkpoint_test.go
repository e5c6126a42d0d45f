package llamacpp

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// storedModel writes the model of Describe as a GGUF file of F32 with the weights that
// value(source, element) has.
func storedModel(t *testing.T, m *Model, value func(name string, i int64) float32, sources []Source) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(storedBytes(t, m, nil, value, sources))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// storedBytes is the content of the file of storedModel, with more metadata.
func storedBytes(t testing.TB, m *Model, more []gguf.Pair, value func(name string, i int64) float32, sources []Source) []byte {
	t.Helper()
	infos := make([]gguf.TensorInfo, len(m.Tensors))
	for i, s := range m.Tensors {
		infos[i] = gguf.TensorInfo{Name: s.Name, Dims: s.Shape, Type: gguf.F32}
	}
	pairs := slices.Concat([]gguf.Pair{{Key: gguf.KeyArchitecture, Value: m.Architecture}}, m.Metadata, more)
	l, err := gguf.NewLayout(pairs, infos, 0)
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string][]int64{}
	for _, s := range sources {
		shapes[s.Name] = s.Shape
	}
	data := append(l.Shards[0].Header, make([]byte, l.Shards[0].Size-int64(len(l.Shards[0].Header)))...)
	for i, s := range m.Tensors {
		at := data[l.Places[i].Offset:]
		put := func(v float32) {
			binary.LittleEndian.PutUint32(at, math.Float32bits(v))
			at = at[4:]
		}
		for _, v := range s.Values {
			put(v)
		}
		for _, p := range s.Parts {
			cols, height := int64(1), int64(p.Rows)
			if shape := shapes[p.Source]; len(shape) > 1 {
				cols, height = shape[len(shape)-1], shape[len(shape)-2]
			}
			for r := range p.Rows {
				row := int64(p.Slice)*height + int64(p.Row(r))
				for c := range cols {
					put(value(p.Source, row*cols+c) + p.Add)
				}
			}
		}
	}
	return data
}

// rows is the number of rows, or of elements.
func (c *CheckpointTensor) rows() int {
	n := 1
	for i, d := range c.Shape {
		if i == 0 || i+1 < len(c.Shape) || c.Elements {
			n *= int(d)
		}
	}
	return n
}

// weights reads a checkpoint's tensor out of the file.
func (c *CheckpointTensor) weights(t *testing.T, f *gguf.File) []float32 {
	t.Helper()
	all := make([]float32, c.Stored.Elements())
	if err := c.Stored.Type.Decode(all, f.Data(c.Stored)); err != nil {
		t.Fatal(err)
	}
	cols := 1
	if len(c.Shape) > 1 {
		cols = int(c.Shape[len(c.Shape)-1])
	}
	var out []float32
	for r := range c.rows() {
		_, row := c.At(r)
		for _, v := range all[row*cols:][:cols] {
			out = append(out, v+c.Add)
		}
	}
	return out
}

// TestReadCheckpoint turns Describe's model of each architecture round: the same tensors with the
// same weights, and a config.json with the same meaning.
func TestReadCheckpoint(t *testing.T) {
	testshared.SlowEmulated(t, "configurations are read by the same code natively")
	type keys map[string]any
	for _, c := range []struct {
		name   string
		keys   keys
		shapes map[string][]int64
		change func(c *arch.ForwardConfig) // what GGUF cannot express
	}{
		{name: "llama-bias-tied"}, {name: "llama2-linear"},
		{name: "llama3", change: func(c *arch.ForwardConfig) {
			c.Ropes[0] = arch.RopeConfig{Type: "longrope", Theta: c.Ropes[0].Theta, Dims: c.Ropes[0].Dims, AttentionFactor: 1}
		}},
		{name: "llama3", keys: keys{"rope_scaling": keys{"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}}},
		{name: "mistral", change: func(c *arch.ForwardConfig) { c.Architecture = "llama"; noWindows(c) }},
		{name: "mixtral", change: noWindows},
		{name: "qwen2"}, {name: "qwen2-window", change: noWindows}, {name: "qwen3"},
		{name: "qwen2-yarn", keys: keys{"num_attention_heads": 2}, shapes: map[string][]int64{
			"q_proj.weight": {32, 32}, "q_proj.bias": {32}, "o_proj.weight": {32, 32},
		}},
		{name: "gemma2", keys: keys{"query_pre_attn_scalar": 16}},
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16}},
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16, "sliding_window_pattern": 1}},
		{name: "phi3"}, {name: "smollm3"},
		// 3.0999999999999996 in float64
		{name: "phi4-mini", change: func(c *arch.ForwardConfig) { c.Ropes[0].Long[3] = 3.1 }},
		{name: "qwen3-moe"},
	} {
		config, sources := model(t, c.name, c.keys, c.shapes)
		if c.name == "qwen3-moe" { // the small checkpoint has dense layers, which llama.cpp does not
			config, sources = mixture(t)
		}
		m, err := Describe(config, sources)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		// Weights tell their places; all are exact in float32 after 1 was added.
		places := map[string]float32{}
		for i, s := range sources {
			places[s.Name] = float32(i)
		}
		value := func(name string, i int64) float32 {
			place, ok := places[name]
			if !ok {
				t.Errorf("%s: a weight of %q, which the checkpoint lacks", c.name, name)
			}
			return place + float32(i)/4096
		}
		f := storedModel(t, m, value, sources)
		back, err := ReadCheckpoint(f, false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want, err := arch.ParseForward(config)
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(want)
		}
		got, err := arch.ParseForward(back.Assets[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		if c.name == "llama3" && want.Ropes[0].Type == "longrope" {
			r := &got.Ropes[0]
			want.Ropes[0].OriginalPositions, want.Ropes[0].Factor, want.Ropes[0].Short, want.Ropes[0].Long = r.OriginalPositions, r.Factor, r.Short, r.Long
		}
		want.Facts = got.Facts // Mistral comes back as Llama
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: config.json %s\nmeans %+v\nwant  %+v", c.name, back.Assets[0].Data, got, want)
		}
		checkTensors(t, c.name, f, back, sources, value)
	}
}

func noWindows(c *arch.ForwardConfig) {
	for i := range c.Layers {
		c.Layers[i].Window = 0
	}
}

func checkTensors(t *testing.T, name string, f *gguf.File, back *Checkpoint, sources []Source, value func(string, int64) float32) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range back.Tensors {
		names[c.Name] = true
		i := slices.IndexFunc(sources, func(s Source) bool { return s.Name == c.Name })
		if i < 0 || !slices.Equal(sources[i].Shape, c.Shape) {
			t.Errorf("%s: tensor %q %v", name, c.Name, c.Shape)
			continue
		}
		for i, v := range c.weights(t, f) {
			if v != value(c.Name, int64(i)) {
				t.Errorf("%s: tensor %q: element %d is %v, want %v", name, c.Name, i, v, value(c.Name, int64(i)))
				break
			}
		}
	}
	for _, s := range sources {
		if !names[s.Name] && s.Name != "lm_head.weight" {
			t.Errorf("%s: tensor %q is lost", name, s.Name)
		}
	}
}

// TestReadCheckpointErrors: what cannot be turned round is named.
func TestReadCheckpointErrors(t *testing.T) {
	config, sources := model(t, "qwen3", nil, nil)
	m, err := Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	zero := func(string, int64) float32 { return 0 }
	for _, c := range []struct {
		name string
		edit func(f *gguf.File)
		want string
	}{
		{"architecture", func(f *gguf.File) { f.Metadata["general.architecture"] = "bert" }, `general.architecture is "bert", which this program does not know. Known are arcee, chatglm, cohere2, command-r, deepseek2, dots1,`},
		{"no architecture", func(f *gguf.File) { delete(f.Metadata, "general.architecture") }, "general.architecture is missing"},
		{"an imatrix", func(f *gguf.File) { f.Metadata["general.type"] = "imatrix" }, `general.type is "imatrix": a model was expected`},
		{"unknown key", func(f *gguf.File) { f.Metadata["qwen3.logit_scale"] = float32(2) }, "qwen3.logit_scale is a key that this program does not know: it may change the model"},
		{"missing key", func(f *gguf.File) { delete(f.Metadata, "qwen3.block_count") }, "qwen3.block_count is missing"},
		{"type", func(f *gguf.File) { f.Metadata["qwen3.block_count"] = "2" }, `qwen3.block_count is "2": an integer from 0`},
		{"layers", func(f *gguf.File) { f.Metadata["qwen3.block_count"] = uint32(1 << 30) }, "qwen3.block_count is 1073741824: at most 512"},
		{"more layers", func(f *gguf.File) { f.Metadata["qwen3.block_count"] = uint32(3) }, `tensor "blk.2.attn_norm.weight" is missing`},
		{"fewer layers", func(f *gguf.File) { f.Metadata["qwen3.block_count"] = uint32(1) }, `tensor "blk.1.attn_norm.weight" has no place`},
		{"heads", func(f *gguf.File) { f.Metadata["qwen3.attention.head_count"] = uint32(2) }, `tensor "blk.0.attn_q.weight" has the dimensions [32 64]: the metadata give it [32 32]`},
		{"heads by layer", func(f *gguf.File) { f.Metadata["qwen3.attention.head_count_kv"] = intArray([]int32{1, 2}) }, "qwen3.attention.head_count_kv differs between layers 0 (1) and 1 (2)"},
		{"value length", func(f *gguf.File) { f.Metadata["qwen3.attention.value_length"] = uint32(8) }, "qwen3.attention.value_length is 8, and qwen3.attention.key_length is 16"},
		{"epsilon", func(f *gguf.File) { f.Metadata["qwen3.attention.layer_norm_rms_epsilon"] = float32(math.NaN()) }, "qwen3.attention.layer_norm_rms_epsilon is NaN"},
		{"rope", func(f *gguf.File) { f.Metadata["qwen3.rope.scaling.type"] = "longrope" }, `qwen3.rope.scaling.type is longrope, but tensors "rope_factors_long.weight"`},
		{"rope dimensions", func(f *gguf.File) { f.Metadata["qwen3.rope.dimension_count"] = uint32(8) }, "qwen3.rope.dimension_count is 8: the 16 dimensions of a head"},
		{"layers that tell Gemma 2 27B", func(f *gguf.File) { renamed(f, "gemma2"); f.Metadata["gemma2.block_count"] = uint32(46) }, "gemma2.block_count is 46: at most"},
		{"a list by layer", func(f *gguf.File) { renamed(f, "smollm3"); f.Metadata["smollm3.block_count"] = uint32(1<<31 - 1) }, "smollm3.block_count is 2147483647: at most"},
		{"tokenizer", func(f *gguf.File) { f.Metadata["tokenizer.ggml.model"] = "bert" }, `tokenizer.ggml.model is "bert": this program turns round`},
	} {
		f := storedModel(t, m, zero, sources)
		c.edit(f)
		if _, err := ReadCheckpoint(f, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
}

// TestManyExperts: a small file whose metadata have many experts in many layers takes little
// memory.
func TestManyExperts(t *testing.T) {
	config, sources := model(t, "mixtral", nil, nil)
	m, err := Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	f := storedModel(t, m, func(string, int64) float32 { return 0 }, sources)
	for i := range 200 { // the number of layers may not exceed the number of tensors
		f.Tensors = append(f.Tensors, &gguf.Tensor{Name: strconv.Itoa(i), Dims: []int64{1}})
	}
	f.Metadata["llama.expert_count"] = uint32(maxExperts)
	for _, c := range []struct {
		layers uint32
		want   string
	}{
		{200, `tensor "blk.0.ffn_gate_exps.weight" has the dimensions [`}, {2, "the metadata give it 1024 experts"},
	} {
		f.Metadata["llama.block_count"] = c.layers
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadCheckpoint(f, false)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d layers: %d bytes", c.layers, n)
		}
	}
}

// renamed makes f a file of another architecture.
func renamed(f *gguf.File, arch string) {
	f.Metadata["general.architecture"] = arch
	for key, v := range f.Metadata {
		if rest, ok := strings.CutPrefix(key, "qwen3."); ok {
			delete(f.Metadata, key)
			f.Metadata[arch+"."+rest] = v
		}
	}
}

// mixture is a model of Qwen3's mixtures.
func mixture(t *testing.T) (config []byte, sources []Source) {
	t.Helper()
	dir := t.TempDir()
	testmodels.Mixture(t).Write(t, dir)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	for _, tensor := range ck.Tensors() {
		sources = append(sources, Source{Name: tensor.Name, Shape: tensor.Shape})
	}
	return config, sources
}
