package calib_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/testplan"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/calib"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// written writes a plan with the codes of a job and returns the file's bytes.
func written(t testing.TB, p *conversion.Plan, o conversion.WriteOptions) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := p.WriteWith(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openBytes(t testing.TB, b []byte) *gqf.File {
	t.Helper()
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func begin(int64) (func(int64), func()) { return func(int64) {}, func() {} }

// withOlder runs a job with the layers of an older file, and returns the new file's bytes and the report.
func withOlder(t testing.TB, p *conversion.Plan, text *text.Text, o calib.Options, older *gqf.File) ([]byte, *conversion.ReuseReport) {
	t.Helper()
	done := int64(0)
	o.Older, o.Progress = &conversion.Older{File: older, Name: "old.gqf", Begin: begin}, func(n int64) { done += n }
	r, err := calib.Run(t.Context(), p, text, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if all := calib.Work(p); done != all {
		t.Errorf("progress over %d of %d weights", done, all)
	}
	reuse, err := p.Reuse(t.Context(), older, "old.gqf", r.Older, begin)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	report, err := p.WriteWith(t.Context(), path, conversion.WriteOptions{Codes: r.Codes(), Reuse: reuse})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, report.Reuse
}

// change changes some bytes of a tensor of the checkpoint in dir.
func change(t *testing.T, dir, tensor string) {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	info, ok := ck.Lookup(tensor)
	if !ok {
		t.Fatalf("no tensor %q", tensor)
	}
	name := filepath.Join(dir, ck.Files()[info.File].Name)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[info.Offset+1] ^= 1
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestOlder makes files with layers of older files: they have the bytes of files without.
func TestOlder(t *testing.T) {
	const (
		scheme  = "another scheme, algorithm or layout"
		weights = "other weights"
	)
	ft := quantizer.Recipe{Bits: 3, Group: 16, Algorithm: gqf.AlgorithmGPTQFT}
	with := func(r quantizer.Recipe, rules ...quantizer.Rule) quantizer.Recipe { r.Rules = rules; return r }
	kleidi := ft
	kleidi.Bits, kleidi.Group, kleidi.Layouts = 4, 32, []quantizer.LayoutRequest{{Family: quantizer.FamilyKleidiAI}}
	four := kleidi
	four.Layouts = nil
	embedding := ft
	embedding.EmbeddingBits = 5
	gptq := ft
	gptq.Algorithm = gqf.AlgorithmGPTQ
	experts := quantizer.Rule{Match: `re:.*(_proj|w[123]|gate_up_proj|down_proj)(\.weight)?`, Bits: 4}
	for _, c := range []struct {
		name       string
		model      string // default: llama3, with 2 layers
		was, is    quantizer.Recipe
		tokens     []int         // lengths of both jobs' sequences; default: 32, 32
		text       []int         // lengths of the new job's sequences, if they differ
		options    calib.Options // of the new job
		change     string        // a tensor of the checkpoint
		layers, of int
		reason     string
	}{
		{name: "the same job", was: ft, is: ft, layers: 2, of: 2},
		{name: "the last layer", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.1.mlp.down_proj.weight", Bits: 4}), layers: 1, of: 2, reason: scheme},
		{name: "the first layer", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.0.self_attn.q_proj.weight", Bits: 4}), of: 2, reason: scheme},
		{name: "a rule less", was: with(ft, quantizer.Rule{Match: "model.layers.1.mlp.up_proj.weight", Skip: true}), is: ft, layers: 1, of: 2, reason: scheme},
		{name: "by search", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.1.mlp.up_proj.weight", Algorithm: gqf.AlgorithmSearch}), layers: 1, of: 2, reason: scheme},
		{name: "unquantized in both", was: with(ft, quantizer.Rule{Match: "model.layers.0.mlp.up_proj.weight", Skip: true}), is: with(ft, quantizer.Rule{Match: "model.layers.0.mlp.up_proj.weight", Algorithm: gqf.AlgorithmSearch}), layers: 2, of: 2},
		{name: "no attention", was: with(ft, quantizer.Rule{Match: "*self_attn*", Skip: true}), is: with(ft, quantizer.Rule{Match: "*self_attn*", Skip: true}, quantizer.Rule{Match: "model.layers.1.mlp.up_proj.weight", Bits: 4}), layers: 1, of: 2, reason: scheme},
		{name: "lm_head too", was: ft, is: with(ft, quantizer.Rule{Match: "lm_head.weight", Algorithm: gqf.AlgorithmGPTQFT}), layers: 2, of: 3, reason: scheme},
		{name: "lm_head in both", was: with(ft, quantizer.Rule{Match: "lm_head.weight", Algorithm: gqf.AlgorithmGPTQFT}), is: with(ft, quantizer.Rule{Match: "lm_head.weight", Algorithm: gqf.AlgorithmGPTQFT}), layers: 3, of: 3},
		{name: "gptq", was: gptq, is: with(gptq, quantizer.Rule{Match: "model.layers.1.*", Bits: 2}), layers: 1, of: 2, reason: scheme},
		{name: "another algorithm", was: gptq, is: ft, of: 2, reason: "it was calibrated with other parameters"},
		{name: "the embedding", was: ft, is: embedding, of: 2, reason: "another scheme of the embedding"},
		{name: "another layout", was: four, is: kleidi, layers: 2, of: 2},
		{name: "another text", was: ft, is: ft, text: []int{32, 31}, of: 2, reason: "another text calibrated it"},
		{name: "the same tokens in other sequences", was: ft, is: ft, text: []int{64}, of: 2, reason: "another text calibrated it"},
		{name: "refine", was: ft, is: ft, options: calib.Options{Refine: true}, of: 2, reason: "it was calibrated with other parameters"},
		{name: "factors", was: ft, is: ft, options: calib.Options{FollowInputs: 1}, of: 2, reason: "it was calibrated with other parameters"},
		{name: "threads", was: ft, is: ft, options: calib.Options{Threads: 3}, layers: 2, of: 2},
		{name: "a norm of the last layer", was: ft, is: ft, change: "model.layers.1.input_layernorm.weight", layers: 1, of: 2, reason: weights},
		{name: "weights of the first layer", was: ft, is: ft, change: "model.layers.0.mlp.gate_proj.weight", of: 2, reason: weights},
		{name: "rows of the embedding", was: ft, is: ft, change: "model.embed_tokens.weight", of: 2, reason: weights},
		{name: "lm_head", was: ft, is: ft, change: "lm_head.weight", layers: 2, of: 2},
		{name: "tied", model: "llama-bias-tied", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.1.*", Bits: 4}), layers: 1, of: 2, reason: scheme},
		{name: "tied embedding", model: "llama-bias-tied", was: ft, is: embedding, of: 2, reason: "another scheme of the embedding"},
		{name: "post norms", model: "gemma2", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.2.*", Bits: 4}), layers: 2, of: 3, reason: scheme},
		{name: "fused", model: "phi3", was: ft, is: with(ft, quantizer.Rule{Match: "model.layers.1.*", Bits: 4}), layers: 1, of: 2, reason: scheme},
		{name: "experts", model: "mixtral", was: with(ft, experts), is: with(ft, quantizer.Rule{Match: "model.layers.1.*.w2.weight", Bits: 2}, experts), layers: 1, of: 2, reason: scheme},
		{name: "experts without tokens", model: "qwen3-moe", tokens: []int{2}, was: with(ft, experts), is: with(ft, quantizer.Rule{Match: "model.layers.2.self_attn.*", Bits: 2}, experts), layers: 2, of: 3, reason: scheme},
		{name: "fused experts", model: "qwen3-moe", was: with(ft, experts), is: with(ft, quantizer.Rule{Match: "model.layers.2.self_attn.*", Bits: 2}, experts), layers: 2, of: 3, reason: scheme},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.model == "" {
				c.model = "llama3"
			}
			dir := filepath.Join(t.TempDir(), "model")
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(testshared.Root(t), "model", "testdata", "torch", c.model))); err != nil {
				t.Fatal(err)
			}
			m, err := model.OpenCheckpoint(dir, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			vocab := m.VocabSize()
			m.Close()
			lengths := c.tokens
			if lengths == nil {
				lengths = []int{32, 32}
			}
			old, _ := file(t, testplan.New(t, dir, c.was), testplan.Text(vocab, lengths...), calib.Options{})
			if c.change != "" {
				change(t, dir, c.change)
			}
			if c.text != nil {
				lengths = c.text
			}
			p, tokens := testplan.New(t, dir, c.is), testplan.Text(vocab, lengths...)
			want, _ := file(t, p, tokens, c.options)
			got, r := withOlder(t, p, tokens, c.options, openBytes(t, old))
			if !bytes.Equal(got, want) {
				t.Errorf("the file has other bytes than without: %s", r)
			}
			if l := r.Layers; l.Layers != c.layers || l.Of != c.of || l.Reason != c.reason {
				t.Errorf("%s; want %d of %d layers, and the reason %q", l, c.layers, c.of, c.reason)
			}
			t.Log(r)
		})
	}
}

// changedRows gives the codes of a matrix with one changed code.
type changedRows struct{ conversion.RowReader }

func (c changedRows) ReadRow(row int, dst rounding.Row) error {
	err := c.RowReader.ReadRow(row, dst)
	if row == 3 {
		dst.Codes[5] ^= 1
	}
	return err
}

// TestOlderVersion: a file whose codes are not those that this version chooses is found out, although all
// that it says of itself is the same.
func TestOlderVersion(t *testing.T) {
	p, tokens := testplan.New(t, tiny, jobRecipe), tinyText()
	r, err := calib.Run(t.Context(), p, tokens, calib.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	codes := r.Codes()
	want := written(t, p, conversion.WriteOptions{Codes: codes})
	for _, tensor := range []string{"model.layers.0.mlp.down_proj.weight", "model.layers.1.self_attn.k_proj.weight"} {
		changed := *codes
		changed.Rows = func(m conversion.Matrix) conversion.RowReader {
			rows := codes.Rows(m)
			if m.Tensor == tensor {
				return changedRows{rows}
			}
			return rows
		}
		old := written(t, p, conversion.WriteOptions{Codes: &changed})
		if bytes.Equal(old, want) {
			t.Fatalf("%s: the codes were not changed", tensor)
		}
		got, report := withOlder(t, p, tokens, calib.Options{}, openBytes(t, old))
		if l := report.Layers; !bytes.Equal(got, want) || l.Layers != 0 || l.Of != 2 || !strings.HasPrefix(l.Reason, "another version of gq") {
			t.Errorf("%s: the same file: %v; %s", tensor, bytes.Equal(got, want), report)
		}
	}
}

// TestOlderUndecided: layers of files that do not say enough of their calibration are made anew.
func TestOlderUndecided(t *testing.T) {
	p, tokens := testplan.New(t, tiny, jobRecipe), tinyText()
	r, err := calib.Run(t.Context(), p, tokens, calib.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	codes := r.Codes()
	want := written(t, p, conversion.WriteOptions{Codes: codes})
	for name, undo := range map[string]func(c *conversion.Calibration){
		"version":       func(c *conversion.Calibration) { c.Version = 0 },
		"other version": func(c *conversion.Calibration) { c.Version++ },
		"sequences":     func(c *conversion.Calibration) { c.SequencesSHA256 = "" },
		"layers":        func(c *conversion.Calibration) { c.LayerFallbacks = []int{0, 1} },
		"parameters":    func(c *conversion.Calibration) { c.Parameters = nil },
	} {
		account := *codes.Calibration
		undo(&account)
		c := *codes
		c.Calibration = &account
		got, report := withOlder(t, p, tokens, calib.Options{}, openBytes(t, written(t, p, conversion.WriteOptions{Codes: &c})))
		if !bytes.Equal(got, want) || report.Layers.Layers != 0 || report.Layers.Reason == "" {
			t.Errorf("%s: the same file: %v; %s", name, bytes.Equal(got, want), report)
		}
	}

	search := testplan.New(t, tiny, quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmSearch})
	got, report := withOlder(t, p, tokens, calib.Options{}, openBytes(t, written(t, search, conversion.WriteOptions{})))
	if !bytes.Equal(got, want) || report.Layers.Layers != 0 || report.Layers.Reason != "it was not calibrated" {
		t.Errorf("without calibration: the same file: %v; %s", bytes.Equal(got, want), report)
	}
}

// TestOlderRepacked: layers of a repacked file are made anew, because the layouts that calibration knew
// may have held other scales.
func TestOlderRepacked(t *testing.T) {
	p, tokens := testplan.New(t, tiny, jobRecipe), tinyText()
	want, _ := file(t, p, tokens, calib.Options{})
	repack, err := conversion.NewRepack(openBytes(t, want), "old.gqf", conversion.RepackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, report := withOlder(t, p, tokens, calib.Options{}, openBytes(t, written(t, repack, conversion.WriteOptions{})))
	if !bytes.Equal(got, want) || report.Layers.Layers != 0 || report.Layers.Reason != "it does not say which version of the algorithm calibrated it" {
		t.Errorf("the same file: %v; %s", bytes.Equal(got, want), report)
	}
}

// TestOlderDamaged: a damaged older file ends the job.
func TestOlderDamaged(t *testing.T) {
	p, tokens := testplan.New(t, tiny, jobRecipe), tinyText()
	b, _ := file(t, p, tokens, calib.Options{})
	tensor, _ := openBytes(t, b).Lookup("model.layers.1.mlp.up_proj.weight")
	payload, _ := tensor.Payload(0, 0, gqf.KindWeights)
	b[payload.Offset+payload.Length-3] ^= 1
	_, err := calib.Run(t.Context(), p, tokens, calib.Options{Older: &conversion.Older{File: openBytes(t, b), Name: "old.gqf", Begin: begin}})
	if err == nil || !strings.Contains(err.Error(), "checksum of the") {
		t.Errorf("%v", err)
	}
}

// TestOlderResumed: an interrupted job with an older file resumes, and one without it goes on from there.
func TestOlderResumed(t *testing.T) {
	r := quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmGPTQFT, ScaleDtype: packing.ScaleF32}
	old, _ := file(t, testplan.New(t, tiny, r), tinyText(), calib.Options{})
	r.Rules = []quantizer.Rule{{Match: "model.layers.1.*", Bits: 4}}
	p := testplan.New(t, tiny, r)
	want, _ := file(t, p, tinyText(), calib.Options{})
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	for range 2 {
		got, report := withOlder(t, p, tinyText(), calib.Options{Work: work}, openBytes(t, old))
		if !bytes.Equal(got, want) || report.Layers.Layers != 1 {
			t.Errorf("the same file: %v; %s", bytes.Equal(got, want), report)
		}
	}
	if got, _ := file(t, p, tinyText(), calib.Options{Work: work}); !bytes.Equal(got, want) {
		t.Error("without the older file: other bytes")
	}
}
