package forward

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// rewritten copies the checkpoint in dir with another config and other tensors. edit gets the
// tensors as F32.
func rewritten(t testing.TB, dir string, config func(string) string, edit func(map[string]tensorData)) string {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	tensors := map[string]tensorData{}
	for _, ct := range ck.Tensors() {
		rows, cols := ct.Matrix()
		values := make([]float32, rows*cols)
		if err := ck.ReadRows(values, ct, 0, int(rows)); err != nil {
			t.Fatal(err)
		}
		tensors[ct.Name] = tensorData{ct.Shape, values}
	}
	if edit != nil {
		edit(tensors)
	}
	names := slices.Sorted(maps.Keys(tensors))
	var specs []safetensors.TensorSpec
	for _, name := range names {
		specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: tensors[name].shape})
	}
	out := t.TempDir()
	w, err := safetensors.Create(out, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var b []byte
		for _, v := range tensors[name].values {
			u := math.Float32bits(v)
			b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if config != nil {
		text = config(text)
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return out
}

type tensorData struct {
	shape  []int64
	values []float32
}

func someTokens(n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(11, 12))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}

// TestFusedExperts stacks the experts of a checkpoint as transformers 5 does.
func TestFusedExperts(t *testing.T) {
	for _, c := range []struct{ dir, module, gate, up, down string }{
		{"testdata/torch/mixtral", "block_sparse_moe", "w1", "w3", "w2"},
		{"testdata/torch/qwen3-moe", "mlp", "gate_proj", "up_proj", "down_proj"},
	} {
		separate := openCase(t, c.dir, Options{})
		dir := rewritten(t, c.dir, nil, func(tensors map[string]tensorData) {
			for i, l := range separate.layers {
				if !l.Experts {
					continue
				}
				at := fmt.Sprintf("model.layers.%d.", i)
				var gateUp, down tensorData
				for e := range separate.config.Experts.Count {
					take := func(part string) tensorData {
						name := fmt.Sprintf("%s%s.experts.%d.%s.weight", at, c.module, e, part)
						defer delete(tensors, name)
						return tensors[name]
					}
					g, u, d := take(c.gate), take(c.up), take(c.down)
					gateUp = tensorData{[]int64{int64(e + 1), 2 * g.shape[0], g.shape[1]}, slices.Concat(gateUp.values, g.values, u.values)}
					down = tensorData{[]int64{int64(e + 1), d.shape[0], d.shape[1]}, slices.Concat(down.values, d.values)}
				}
				tensors[at+"mlp.experts.gate_up_proj"], tensors[at+"mlp.experts.down_proj"] = gateUp, down
				router := tensors[at+c.module+".gate.weight"]
				delete(tensors, at+c.module+".gate.weight")
				tensors[at+"mlp.gate.weight"] = router
			}
		})
		fused := openCase(t, dir, Options{})
		tokens := someTokens(20, fused.VocabSize())
		sameBits(t, c.dir, logitsOf(t, fused, tokens, 20), logitsOf(t, separate, tokens, 20))
		if !slices.Contains(fused.Linears(), "model.layers.0.mlp.experts.down_proj[2]") {
			t.Errorf("linears are %q", fused.Linears())
		}
	}
}

// TestNestedGemma3 wraps a language model as multimodal checkpoints do.
func TestNestedGemma3(t *testing.T) {
	const plain = "testdata/torch/gemma3"
	for _, prefix := range []string{"language_model.model.", "model.language_model."} {
		dir := rewritten(t, plain, func(config string) string {
			inner := strings.Replace(config, `"Gemma3ForCausalLM"`, `"Gemma3TextModel"`, 1)
			return `{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256,
				"vision_config": {"hidden_size": 16}, "text_config": ` + inner + `}`
		}, func(tensors map[string]tensorData) {
			for _, name := range slices.Collect(maps.Keys(tensors)) {
				tensors[prefix+strings.TrimPrefix(name, "model.")] = tensors[name]
				delete(tensors, name)
			}
			tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"] = tensorData{[]int64{1}, []float32{1}}
		})
		tokens := someTokens(20, 60)
		sameBits(t, prefix, logitsOf(t, openCase(t, dir, Options{}), tokens, 20), logitsOf(t, openCase(t, plain, Options{}), tokens, 20))
	}
}

// TestLongSequence fills several pages. A window releases some of them again.
func TestLongSequence(t *testing.T) {
	testshared.SlowEmulated(t, "TestGoldenLogits has the bits")
	n, names := 3*pageTokens+77, []string{"gemma3", "llama3", "mistral"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		m := openCase(t, "testdata/torch/"+name, Options{Threads: 2})
		tokens := someTokens(n, m.VocabSize())
		whole := logitsOf(t, m, tokens, n)
		sameBits(t, name+" in pieces", logitsOf(t, m, tokens, 5, 250, 1, 300, 17), whole)
		sameBits(t, name+" in the portable code", logitsOf(t, openCase(t, "testdata/torch/"+name, Options{Threads: 1, CPU: "generic"}), tokens, n), whole)
	}
	m := openCase(t, "testdata/torch/mistral", Options{})
	s := m.NewSession(n)
	if err := s.Forward(someTokens(n, m.VocabSize()), nil, false); err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, p := range s.caches[0].pages {
		if p != nil {
			used++
		}
	}
	if used > 2+prefillChunk/pageTokens {
		t.Errorf("%d pages in use for a window of %d", used, m.Config().Layers[0].Window)
	}
}

// TestTruncate removes tokens and appends them again, several times. The logits have the same bits
// as the logits of the whole sequence.
// In a layer with a window, keys and values that the next token sees may be gone.
func TestTruncate(t *testing.T) {
	testshared.SlowEmulated(t, "what is known of a sequence is the same natively")
	for _, c := range []struct {
		name                 string
		prefix, first, other int
		want                 bool
	}{
		{"llama3", 300, 200, 40, true},
		{"gemma3", 300, 10, 40, true},
		{"mistral", 300, 10, 40, true},
		{"mistral", 300, 2 * prefillChunk, 40, false},
		{"mistral", 10, 3 * prefillChunk, 40, false},
	} {
		m := openCase(t, "testdata/torch/"+c.name, Options{Threads: 2})
		tokens := someTokens(c.prefix+c.first, m.VocabSize())
		s := m.NewSession(c.prefix + c.first)
		if err := s.Forward(tokens[:c.prefix], nil, false); err != nil {
			t.Fatal(err)
		}
		if err := s.Forward(tokens[c.prefix:], nil, false); err != nil {
			t.Fatal(err)
		}
		if got := s.Truncate(c.prefix); got != c.want {
			t.Errorf("%s, %d tokens behind %d: %v, want %v", c.name, c.first, c.prefix, got, c.want)
		}
		if !c.want {
			continue
		}
		slices.Reverse(tokens[c.prefix:])
		tokens = tokens[:min(len(tokens), c.prefix+c.other)]
		got := make([]float32, m.VocabSize())
		if err := s.Forward(tokens[c.prefix:], got, false); err != nil {
			t.Fatal(err)
		}
		sameBits(t, c.name+" behind the prefix", got, logitsOf(t, m, tokens, len(tokens))[(len(tokens)-1)*m.VocabSize():])
	}
	m := openCase(t, "testdata/torch/llama3", Options{})
	if s := m.NewSession(4); s.Truncate(1) || s.Truncate(-1) || !s.Truncate(0) {
		t.Error("a length that the session does not have")
	}
}

func TestSessionResetAndLast(t *testing.T) {
	m := openCase(t, "testdata/torch/llama3", Options{})
	tokens := someTokens(200, m.VocabSize())
	all := logitsOf(t, m, tokens, 200)
	s := m.NewSession(200)
	last := make([]float32, m.VocabSize())
	for range 2 {
		if err := s.Forward(tokens[:150], nil, false); err != nil {
			t.Fatal(err)
		}
		if err := s.Forward(tokens[150:], last, false); err != nil {
			t.Fatal(err)
		}
		sameBits(t, "the last token's logits", last, all[199*m.VocabSize():])
		if s.Len() != 200 || s.Cap() != 200 {
			t.Errorf("Len %d, Cap %d", s.Len(), s.Cap())
		}
		s.Reset()
	}
}

// TestAppend: Append and Logits give the bits of Forward, whatever the pieces are.
func TestAppend(t *testing.T) {
	m := openCase(t, "testdata/torch/llama3", Options{})
	v := m.VocabSize()
	tokens := someTokens(MaxAppend+20, v)
	all := logitsOf(t, m, tokens, len(tokens))
	s := m.NewSession(len(tokens))
	got := make([]float32, len(tokens)*v)
	for first := 0; first < len(tokens); first += MaxAppend {
		n := min(MaxAppend, len(tokens)-first)
		if err := s.Append(tokens[first:][:n]); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < n; at += 7 {
			rows := min(7, n-at)
			if err := s.Logits(got[(first+at)*v:][:rows*v], at, rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	sameBits(t, "the logits", got, all)
	for _, c := range []struct{ logits, first, n int }{{v, 20, 1}, {2 * v, 19, 2}, {0, 0, 0}, {v, -1, 1}, {v, 0, 2}} {
		if err := s.Logits(got[:c.logits], c.first, c.n); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	s.Reset()
	if err := s.Logits(got[:v], 0, 1); err == nil {
		t.Error("logits after Reset")
	}
	for _, bad := range [][]int32{nil, tokens[:MaxAppend+1], {int32(v)}} {
		if err := s.Append(bad); err == nil || s.Len() != 0 {
			t.Errorf("%d tokens: error %v, %d were taken", len(bad), err, s.Len())
		}
	}
}

func TestForwardErrors(t *testing.T) {
	m := openCase(t, "testdata/torch/llama3", Options{})
	v := m.VocabSize()
	s := m.NewSession(4)
	for _, c := range []struct {
		tokens []int32
		logits int
		all    bool
		want   string
	}{
		{nil, v, false, "no tokens"},
		{[]int32{1, 2, 3, 4, 5}, v, false, "5 tokens after 0: the session was made for 4"},
		{[]int32{1, 2}, v, true, "logits"},
		{[]int32{1, 2}, 2 * v, false, "logits"},
		{[]int32{1, -2}, v, false, "token -2 at position 1"},
		{[]int32{int32(v)}, v, false, "the vocabulary has"},
	} {
		err := s.Forward(c.tokens, make([]float32, c.logits), c.all)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.tokens, err, c.want)
		}
		if s.Len() != 0 {
			t.Errorf("%v: %d tokens were taken", c.tokens, s.Len())
		}
	}
}

// TestHookAndReplacement records the inputs of all linear layers, and replaces the layers.
func TestHookAndReplacement(t *testing.T) {
	m := openCase(t, "testdata/torch/qwen2", Options{}) // q, k and v have biases
	tokens := someTokens(10, m.VocabSize())
	before := logitsOf(t, m, tokens, 10)
	s := m.NewSession(10)
	seen := map[string]bool{}
	s.OnInput(func(name string, x []float32, rows, k int) {
		seen[name] = true
		if rows != 10 || len(x) != rows*k || m.Linear(name).Cols() != k {
			t.Errorf("%s: %d values, %d x %d", name, len(x), rows, k)
		}
	})
	if err := s.Forward(tokens, make([]float32, 10*m.VocabSize()), true); err != nil {
		t.Fatal(err)
	}
	for _, name := range m.Linears() {
		if !seen[name] {
			t.Errorf("no input of %s was seen", name)
		}
	}
	const name = "model.layers.1.self_attn.q_proj.weight"
	old := m.Linear(name)
	factor := float32(1)
	op, err := kernels.NewRows(old.Rows(), old.Cols(), func(dst []float32, row int) {
		err := m.source.(*checkpointSource).ck.ReadRows(dst, must(m.source.(*checkpointSource).ck.Lookup(name)), row, 1)
		if err != nil {
			panic(err)
		}
		for i := range dst {
			dst[i] *= factor
		}
	}, nil, kernels.Options{})
	if err != nil {
		t.Fatal(err)
	}
	undo, err := m.SetLinear(name, op, false)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "the same weights", logitsOf(t, m, tokens, 10), before)
	factor = 2
	if slices.Equal(logitsOf(t, m, tokens, 10), before) {
		t.Error("other weights changed nothing")
	}
	undo()
	sameBits(t, "after undo", logitsOf(t, m, tokens, 10), before)
	if _, err := m.SetLinear("lm_head.weight", op, false); err == nil {
		t.Error("an operator of another shape was taken")
	}
	if _, err := m.SetLinear("x", op, false); err == nil || m.Linear("x") != nil {
		t.Error("there is a linear x")
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("not there")
	}
	return v
}

// TestTruncatedWhileOpen truncates a checkpoint's file while a model reads it.
func TestTruncatedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be made shorter")
	}
	for _, threads := range []int{1, 3} {
		dir := rewritten(t, "testdata/torch/llama3", nil, nil)
		m := openCase(t, dir, Options{Threads: threads})
		s := m.NewSession(8)
		if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 4096); err != nil {
			t.Fatal(err)
		}
		err := s.Forward(someTokens(8, m.VocabSize()), nil, false)
		var gone *safetensors.FormatError
		if !errors.As(err, &gone) {
			t.Errorf("error %v, want that of a truncated file", err)
		}
		m.Close() // one open file only: qemu does not say which file a fault was in
	}
}

func TestTensorsThatDoNotFit(t *testing.T) {
	const dir = "testdata/torch/llama3"
	for _, c := range []struct {
		want string
		edit func(map[string]tensorData)
	}{
		{`tensor "model.layers.0.mlp.up_proj.weight" is missing`, func(m map[string]tensorData) { delete(m, "model.layers.0.mlp.up_proj.weight") }},
		{`tensor "model.embed_tokens.weight" is missing`, func(m map[string]tensorData) { delete(m, "model.embed_tokens.weight") }},
		{`tensor "lm_head.weight" is missing`, func(m map[string]tensorData) { delete(m, "lm_head.weight") }},
		{`tensor "model.layers.0.self_attn.q_proj.bias" has no place in the model`, func(m map[string]tensorData) {
			m["model.layers.0.self_attn.q_proj.bias"] = tensorData{[]int64{2}, []float32{1, 2}}
		}},
		{`tensor "model.norm.weight": shape [2], but config.json makes it`, func(m map[string]tensorData) {
			m["model.norm.weight"] = tensorData{[]int64{2}, []float32{1, 2}}
		}},
		{`are both embeddings`, func(m map[string]tensorData) {
			m["model.language_model.embed_tokens.weight"] = m["model.embed_tokens.weight"]
		}},
	} {
		m, err := OpenCheckpoint(rewritten(t, dir, nil, c.edit), Options{})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	m := openCase(t, rewritten(t, dir, nil, func(m map[string]tensorData) {
		m["model.layers.0.self_attn.rotary_emb.inv_freq"] = tensorData{[]int64{2}, []float32{1, 2}}
		m["model.layers.0.self_attn.k_scale"] = tensorData{[]int64{1}, []float32{1}}
		m["model.layers.0.mlp.up_proj.input_scale"] = tensorData{[]int64{1}, []float32{1}}
	}), Options{})
	if m.VocabSize() == 0 {
		t.Error("no vocabulary")
	}
}
