package alloc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

const bundled = "../../../testdata/books1.3M-bf16"

// openJob opens a checkpoint with arbitrary tokens.
func openJob(t testing.TB, dir string, threads int) Job {
	t.Helper()
	ck, config := testplan.Open(t, dir)
	m, err := forward.OpenCheckpoint(dir, forward.Options{Threads: threads, Log: func(kernels.Choice) {}, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	j := Job{Checkpoint: ck, Config: config, Model: m, Options: conversion.Options{Threads: threads}}
	var sequences [][]int32
	id := uint32(1)
	for range 3 {
		var w []int32
		for range 24 {
			id = id*1664525 + 1013904223
			w = append(w, int32(id>>8)%int32(m.VocabSize()))
		}
		sequences = append(sequences, w)
	}
	j.Reference = reference(t, dir, sequences)
	return j
}

// reference computes the float model's predictions of sequences.
func reference(t testing.TB, dir string, sequences [][]int32) *eval.Reference {
	t.Helper()
	m, err := forward.OpenCheckpoint(dir, forward.Options{Log: func(kernels.Choice) {}, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r, err := eval.NewReference(t.Context(), m, text.WindowsOf(sequences))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func probe(t testing.TB, j Job) *Sensitivities {
	t.Helper()
	p, err := j.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// half is the allocation halfway between the least and the most bytes.
func half(t testing.TB, p *Sensitivities) *Allocation {
	t.Helper()
	least, most := p.Bytes()
	a, err := p.Budget((least + most) / 2)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// long skips a test that quantizes whole models in an emulator. TestSameChoiceEverywhere covers it:
// results are the same everywhere.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under emulation")
	}
}

// TestProbed tests choices for targets of all kinds, from one probe of a model.
func TestProbed(t *testing.T) {
	long(t)
	p := probe(t, openJob(t, testmodels.Books(t, 2), 2))
	t.Run("targets are met", func(t *testing.T) { targetsAreMet(t, p) })
	t.Run("KL", func(t *testing.T) { maxKL(t, p) })
	t.Run("KL that jumps", func(t *testing.T) { maxKLNear(t, p) })
	t.Run("best", func(t *testing.T) { bestOf(t, *p) })
}

func targetsAreMet(t *testing.T, p *Sensitivities) {
	if p.Decisions[0].Name != "model.embed_tokens.weight" || !p.Decisions[0].Embedding || p.Decisions[0].ProbeKL <= 0 {
		t.Errorf("the table, which is the head too, is not the first decision: %+v", p.Decisions[0])
	}
	last := 0.0
	for _, bpw := range []float64{8.2, 5, 4.5, 3.3, 2.6} {
		a, err := p.BitsPerWeight(bpw)
		if err != nil {
			t.Fatal(err)
		}
		if a.BitsPerWeight > bpw || a.BitsPerWeight < bpw-.01 || a.PredictedKL <= last {
			t.Errorf("%g bits per weight were asked for: %.4f, KL %.4g after %.4g", bpw, a.BitsPerWeight, a.PredictedKL, last)
		}
		last = a.PredictedKL
		r, err := a.Plan.Write(t.Context(), filepath.Join(t.TempDir(), "a.gqf"))
		if err != nil {
			t.Fatal(err)
		}
		if r.BitsPerWeight != a.BitsPerWeight || r.OutputBytes != a.OutputBytes {
			t.Errorf("%.5f bits per weight and %d bytes were promised, the file has %.5f and %d", a.BitsPerWeight, a.OutputBytes, r.BitsPerWeight, r.OutputBytes)
		}
	}
	for _, bytes := range []int64{300_000, 400_001, 444_444, 500_000} {
		a, err := p.FileBytes(bytes)
		if err != nil {
			t.Fatal(err)
		}
		if a.OutputBytes > bytes || a.OutputBytes < bytes-2048 {
			t.Errorf("a file of %d bytes was asked for: %d", bytes, a.OutputBytes)
		}
	}
	a, err := p.FileBytes(1 << 40)
	if _, most := p.Bytes(); err != nil || a.PayloadBytes != most {
		t.Errorf("with any number of bytes: %d of %d, %v", a.PayloadBytes, most, err)
	}
	for _, f := range []func() (*Allocation, error){
		func() (*Allocation, error) { return p.BitsPerWeight(1.5) },
		func() (*Allocation, error) { return p.FileBytes(100_000) },
	} {
		var short *TargetError
		if _, err := f(); !errors.As(err, &short) {
			t.Errorf("a target that is too small: %v", err)
		}
	}
	if now, err := p.job.Reference.KL(t.Context(), p.job.Model); err != nil || now != 0 {
		t.Errorf("the model is not what it was: KL %g, %v", now, err)
	}
}

func TestRules(t *testing.T) {
	long(t)
	j := openJob(t, testmodels.Books(t, 2), 2)
	rule := func(s string) quantizer.Rule {
		r, err := quantizer.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	channel := quantizer.Rule{Match: "re:.*down_proj", Group: new(quantizer.PerChannel)}
	j.Options.Rules = []quantizer.Rule{rule("lm_head=8,64"), rule("re:.*layers.0.*=5,32"), rule("model.layers.1.mlp.up_proj=skip"), channel}
	p := probe(t, j)
	for _, d := range p.Decisions {
		if d.Embedding || strings.Contains(d.Name, "layers.0.") || d.Name == "model.layers.1.mlp.up_proj.weight" {
			t.Errorf("%s was to be decided, though a rule does", d.Name)
		}
		if strings.Contains(d.Name, "down_proj") && (len(d.Options) != 7+6+1 || slices.ContainsFunc(d.Options, func(o Option) bool { return o.Group != 0 })) {
			t.Errorf("%s: a rule says per channel, options are %+v", d.Name, d.Options)
		}
	}
	a, err := p.BitsPerWeight(6)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]*plan.Tensor{}
	for _, l := range a.Plan.Tensors {
		lines[l.Name] = l
	}
	for name, want := range map[string]string{
		"model.embed_tokens.weight": "8 64", "model.layers.0.self_attn.q_proj.weight": "5 32", "model.layers.1.mlp.up_proj.weight": "0 0",
	} {
		if got := fmt.Sprint(lines[name].Bits, " ", lines[name].Group); got != want {
			t.Errorf("%s: bits and group are %s, the rule says %s", name, got, want)
		}
	}
}

func TestExpertsAreOneDecision(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	for dir, want := range map[string]string{
		"qwen3-moe": `model.layers.0.mlp.experts.*.down_proj.weight`, "mixtral": `model.layers.0.block_sparse_moe.experts.*.w2.weight`,
	} {
		j := openJob(t, "../../../internal/lm/forward/testdata/torch/"+dir, 2)
		j.Groups = []int{32, 128} // TestProbed has the defaults
		p := probe(t, j)
		i := slices.IndexFunc(p.Decisions, func(d *Decision) bool { return d.Name == want })
		if i < 0 || len(p.Decisions[i].Tensors) < 2 {
			t.Fatalf("%s: no decision %s of several tensors", dir, want)
		}
		a := half(t, p)
		row := a.Rows[i]
		bytes := int64(0)
		for _, l := range a.Plan.Tensors {
			if slices.Contains(p.Decisions[i].Tensors, l.Name) {
				bytes += l.Bytes
				if l.Bits != row.Bits || l.Group != row.Group {
					t.Errorf("%s has %d bits, group %d; its layer's have %d and %d", l.Name, l.Bits, l.Group, row.Bits, row.Group)
				}
			}
		}
		if bytes != row.Bytes {
			t.Errorf("%s: %d bytes, the table says %d", want, bytes, row.Bytes)
		}
		// A rule for one expert leaves the other experts in one decision.
		j.Options.Rules = []quantizer.Rule{{Match: strings.TrimSuffix(strings.Replace(want, "*", "0", 1), ".weight"), Bits: 7}}
		p = probe(t, j)
		for _, l := range half(t, p).Plan.Tensors {
			if l.Name == strings.Replace(want, "*", "0", 1) && l.Bits != 7 {
				t.Errorf("%s has %d bits against its rule", l.Name, l.Bits)
			}
		}
	}
}

// TestMixtures chooses bits for architectures with experts: every third, and those that store
// experts transposed. Some experts get other bits than others, and the file diverges less from the
// float model than a file of as many bytes with 4 bits everywhere.
func TestMixtures(t *testing.T) {
	long(t)
	n := 0
	for _, g := range testmodels.AllGenerated(t) {
		c, err := arch.ParseForward(g.Config)
		if err != nil {
			t.Fatal(err)
		}
		if c.Experts == nil {
			continue
		}
		if n++; n%3 != 0 && !c.ExpertsTransposed() {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), g.Name)
			g.Write(t, dir)
			j := openJob(t, dir, 1)
			j.Groups = []int{32, 128} // TestProbed has the defaults
			p := probe(t, j)
			uniform, err := conversion.NewPlan(j.Checkpoint, j.Config, conversion.Options{Recipe: quantizer.Recipe{Group: new(64)}, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.FileBytes(uniform.OutputBytes)
			if err != nil {
				t.Fatal(err)
			}
			bits := map[string]bool{}
			for _, l := range a.Plan.Tensors {
				if l.Role == gqf.RoleExpert {
					bits[fmt.Sprint(l.Bits, " ", l.Group)] = true
				}
			}
			kl := func(p *fromcheckpoint.Plan) float64 {
				path := filepath.Join(t.TempDir(), "m.gqf")
				if _, err := p.Write(t.Context(), path); err != nil {
					t.Fatal(err)
				}
				f, err := gqf.Open(path, gqf.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				m, err := forward.OpenGQF(f, forward.Options{Threads: 1, Activations: forward.Float32})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				v, err := j.Reference.KL(t.Context(), m)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			chosen, same := kl(a.Plan), kl(uniform)
			t.Logf("KL %.4g, %.4g with 4 bits everywhere; experts of %d schemes", chosen, same, len(bits))
			if !(chosen < same) || len(bits) < 2 || a.OutputBytes > uniform.OutputBytes {
				t.Errorf("KL %.4g, %.4g with 4 bits everywhere; experts of %d schemes, %d bytes of %d", chosen, same, len(bits), a.OutputBytes, uniform.OutputBytes)
			}
		})
	}
	if n < 15 {
		t.Errorf("%d mixtures", n)
	}
}

func TestRecipeRoundTrip(t *testing.T) {
	long(t)
	j := openJob(t, testmodels.Books(t, 2), 2)
	j.Options.Rules = []quantizer.Rule{{Match: "re:.*q_proj", Mapping: gqf.MappingAsymmetric}}
	a, err := probe(t, j).BitsPerWeight(4)
	if err != nil {
		t.Fatal(err)
	}
	text, err := j.Options.Recipe.YAML("two\nlines", slices.Concat(a.Rules, j.Options.Rules))
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := quantizer.ParseRecipe("recipe.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conversion.NewPlan(j.Checkpoint, j.Config, conversion.Options{Recipe: recipe})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range plan.Tensors {
		l.Rule, a.Plan.Tensors[i].Rule = "", ""
		if !reflect.DeepEqual(l, a.Plan.Tensors[i]) {
			t.Errorf("%+v %+v became %+v %+v", *a.Plan.Tensors[i], *a.Plan.Tensors[i].Scheme, *l, *l.Scheme)
		}
	}
	if plan.OutputBytes != a.OutputBytes {
		t.Errorf("%d bytes became %d", a.OutputBytes, plan.OutputBytes)
	}
	if !strings.HasPrefix(string(text), "# two\n# lines\nbits: 4\n") {
		t.Errorf("the recipe begins with %.60q", text)
	}
}

// chosenHash is the hash of the table in the test below, on any CPU and for any number of threads.
const chosenHash = "781efb8bbfa14d18"

func TestSameChoiceEverywhere(t *testing.T) {
	numbers := []int{1, 3}
	if testing.Short() {
		numbers = numbers[1:] // numbers of threads are compared natively
	}
	for _, threads := range numbers {
		a := half(t, probe(t, openJob(t, "../../../internal/lm/forward/testdata/torch/llama3", threads)))
		table := ""
		for _, r := range a.Rows {
			table += fmt.Sprintf("%s %d %d %s %d %x\n", r.Tensor, r.Bits, r.Group, r.Mapping, r.Bytes, r.KL)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(table)))[:16]; got != chosenHash {
			t.Errorf("%d threads: %s, not %s\n%s", threads, got, chosenHash, table)
		}
	}
}

func TestLayer(t *testing.T) {
	for dir, want := range map[string]map[string]int{
		"llama3":  {"lm_head.weight": 2, "model.embed_tokens.weight": -1, "model.layers.0.self_attn.o_proj.weight": 0, "model.layers.1.mlp.gate_proj.weight": 1},
		"mixtral": {"model.layers.1.block_sparse_moe.experts.*.w2.weight": 1},
		"phi3":    {"model.layers.1.self_attn.qkv_proj.weight": 1},
	} {
		p, err := openJob(t, "../../../internal/lm/forward/testdata/torch/"+dir, 1).layOut()
		if err != nil {
			t.Fatal(err)
		}
		for name, layer := range want {
			i := slices.IndexFunc(p.Decisions, func(d *Decision) bool { return d.Name == name })
			if i < 0 {
				t.Fatalf("%s: no decision %s", dir, name)
			}
			if got := p.job.layer(p.Decisions[i]); got != layer {
				t.Errorf("%s: %s is in layer %d, not %d", dir, name, got, layer)
			}
		}
	}
}

// TestAssetsReadOnce removes a file beside the checkpoint after the first plan: later plans of the
// job have it all the same.
func TestAssetsReadOnce(t *testing.T) {
	testshared.SlowEmulated(t, "assets are read by the same code natively")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(bundled)); err != nil {
		t.Fatal(err)
	}
	license := []byte("license ")
	// Compressed it is larger than a file's padding.
	for r := rand.New(rand.NewPCG(1, 2)); len(license) < 200_000; {
		license = append(license, byte('a'+r.IntN(26)))
	}
	path := filepath.Join(dir, "LICENSE")
	if err := os.WriteFile(path, license, 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := openJob(t, dir, 1).layOut()
	if err != nil {
		t.Fatal(err)
	}
	chosen := make([]int, len(p.Decisions))
	before, err := p.allocation(chosen)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	after, err := p.allocation(chosen)
	if err != nil {
		t.Fatal(err)
	}
	if after.OutputBytes != before.OutputBytes {
		t.Errorf("%d bytes, without the licence %d: it was read again", before.OutputBytes, after.OutputBytes)
	}
}
