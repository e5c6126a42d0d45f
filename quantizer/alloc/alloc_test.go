package alloc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/internal/testplan"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

const bundled = "../../testdata/books1.3M-bf16"

// openJob opens a checkpoint with arbitrary tokens.
func openJob(t testing.TB, dir string, threads int) Job {
	t.Helper()
	ck, config := testplan.Open(t, dir)
	m, err := model.OpenCheckpoint(dir, model.Options{Threads: threads, Log: func(kernels.Choice) {}, Packed: true})
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
	m, err := model.OpenCheckpoint(dir, model.Options{Log: func(kernels.Choice) {}, Packed: true})
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

func TestTargetsAreMet(t *testing.T) {
	long(t)
	j := openJob(t, bundled, 2)
	p := probe(t, j)
	if p.Decisions[0].Name != "model.embed_tokens.weight" || !p.Decisions[0].Embedding || p.Decisions[0].ProbeKL[0] <= 0 {
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
	for _, bytes := range []int64{500_000, 700_001, 777_777, 1_200_000} {
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
	if now, err := j.Reference.KL(t.Context(), j.Model); err != nil || now != 0 {
		t.Errorf("the model is not what it was: KL %g, %v", now, err)
	}
}

// TestBest wants the allocation whose measured divergence is less, whatever was predicted.
func TestBest(t *testing.T) {
	long(t)
	p := probe(t, openJob(t, bundled, 2))
	fractional := func(a *Allocation) bool {
		return slices.ContainsFunc(a.Rows, func(r Row) bool { return r.Mapping == gqf.MappingAsymmetric.String() })
	}
	choose := func(p *Sensitivities) (*Allocation, error) { return p.BitsPerWeight(4.5) }
	for _, better := range []bool{true, false} {
		a, list, err := p.Best(t.Context(), choose, func(_ context.Context, a *Allocation) (Measured, error) {
			m := Measured{KL: .5, ActivationKL: .125}
			if fractional(a) == better {
				m.KL = .25
			}
			return m, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 2 || fractional(a) != better || a.BitsPerWeight > 4.5 || a.ActivationKL != .125 {
			t.Errorf("fractions better: %v; chosen: %v, %.3f bits per weight, %+v", better, fractional(a), a.BitsPerWeight, list)
		}
	}
	p.Decisions = p.withoutFractions().Decisions
	if _, list, err := p.Best(t.Context(), choose, nil); err != nil || list != nil {
		t.Errorf("one kind of options: %v, %v", list, err)
	}
}

// TestRuledTypes: the mapping that a rule states for one tensor leaves the other tensors their types,
// and counts instead of the recipe's.
func TestRuledTypes(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	const ruled = "model.layers.0.self_attn.q_proj"
	for _, c := range []struct {
		recipe, rule  gqf.Mapping
		types, others []gguf.TensorType
	}{
		{gqf.MappingNone, gqf.MappingAsymmetric, []gguf.TensorType{gguf.Q4_1, gguf.Q5_1}, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0}},
		{gqf.MappingFullRange, gqf.MappingAsymmetric, []gguf.TensorType{gguf.Q4_1, gguf.Q5_1}, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q5_0, gguf.Q8_0}},
		{gqf.MappingAsymmetric, gqf.MappingFullRange, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q5_0, gguf.Q8_0}, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_1, gguf.Q8_0}}, // Q4_0: rows do not divide into blocks of Q3_K
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Mapping: c.recipe}
		j.Options.GGUF = &conversion.GGUFOptions{}
		j.Options.Rules = []quantizer.Rule{{Match: ruled, Mapping: c.rule}}
		p, err := j.layOut()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Decisions {
			want := c.others
			if d.Name == ruled+".weight" {
				want = c.types
			}
			var types []gguf.TensorType
			for _, o := range d.Options {
				types = append(types, o.Type)
			}
			slices.Sort(types)
			want = slices.Sorted(slices.Values(want))
			if !d.Embedding && !slices.Equal(types, want) {
				t.Errorf("recipe %s, rule %s, %s: types %v, want %v", c.recipe, c.rule, d.Name, types, want)
			}
		}
	}
}

// TestSchemesOfThePlan: options are measured with the schemes that the plan of a choice has, zero points
// included, and probes with the same kind of scheme.
func TestSchemesOfThePlan(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	asymmetric := quantizer.Recipe{Mapping: gqf.MappingAsymmetric}
	with := func(change func(*quantizer.Recipe)) quantizer.Recipe {
		r := asymmetric
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		recipe    quantizer.Recipe
		rule      gqf.Mapping // of the linear layers
		least     int
		fractions bool
	}{
		"lowbit":     {asymmetric, gqf.MappingNone, 2, true},
		"a rule":     {quantizer.Recipe{}, gqf.MappingAsymmetric, 2, true},
		"calibrated": {with(func(r *quantizer.Recipe) { r.Algorithm = gqf.AlgorithmGPTQFT }), gqf.MappingNone, 2, true},
		"rtn":        {with(func(r *quantizer.Recipe) { r.Algorithm = gqf.AlgorithmRTN }), gqf.MappingNone, 2, false},
		"torchao": {with(func(r *quantizer.Recipe) {
			r.Layouts, r.ScaleDtype = []quantizer.LayoutRequest{{Family: quantizer.FamilyTorchAO}}, packing.ScaleF32
		}), gqf.MappingNone, 2, false},
		"full-range": {quantizer.Recipe{}, gqf.MappingNone, 2, false},
		"half-step":  {quantizer.Recipe{Bits: 2, Mapping: gqf.MappingHalfStep}, gqf.MappingNone, 1, false},
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe, j.MinBits, j.Widths = c.recipe, c.least, []int{2, 3, 8}
		if c.rule != gqf.MappingNone {
			j.Options.Rules = []quantizer.Rule{{Match: "model.layers.*", Mapping: c.rule}}
		}
		p, err := j.layOut()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range p.Decisions[1].Options {
			chosen, want := make([]int, len(p.Decisions)), map[string]rounding.Scheme{}
			for k, d := range p.Decisions {
				chosen[k] = min(i, len(d.Options)-1)
				for _, tensor := range d.Tensors {
					want[tensor] = d.Options[chosen[k]].scheme
				}
			}
			a, err := p.allocation(chosen)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range a.Plan.Matrices() {
				if got := withoutData(m.Scheme); got != want[m.Tensor] {
					t.Errorf("%s: %s has scheme %+v in the plan, the option has %+v", name, m.Tensor, got, want[m.Tensor])
				}
			}
		}
		for _, d := range p.Decisions {
			for _, bits := range p.job.Widths {
				s := d.probeScheme(bits)
				if err := s.Validate(); err != nil || s.Bits != bits {
					t.Errorf("%s, %s: probe of %d bits with scheme %+v, error %v", name, d.Name, bits, s, err)
				}
				if want := c.fractions && bits < 8; s.Fractions != want && !d.Embedding {
					t.Errorf("%s, %s: probe of %d bits with fractions %v, want %v", name, d.Name, bits, s.Fractions, want)
				}
			}
		}
	}
}

// TestMappings: tensors choose between the default mapping and fractional zero points, unless the recipe
// or a rule states a mapping, or the layout has other zero points.
func TestMappings(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	const both, symmetric, fractional = "full-range asymmetric", "full-range", "asymmetric"
	layout := func(f quantizer.Family, d packing.ScaleDtype, m gqf.Mapping) quantizer.Recipe {
		return quantizer.Recipe{Layouts: []quantizer.LayoutRequest{{Family: f}}, ScaleDtype: d, Mapping: m}
	}
	for _, c := range []struct {
		name       string
		recipe     quantizer.Recipe
		rule       gqf.Mapping // of the linear layers
		groups     []int
		linear     string // mappings
		embedding  string
		sizes      string // groups of fractional zero points
		floatZeros bool
	}{
		{name: "default", linear: both, embedding: both, sizes: "[32 48 64 96 128]"},
		{name: "groups", groups: []int{80}, linear: both, embedding: both, sizes: "[80]"},
		{name: "stated", recipe: quantizer.Recipe{Mapping: gqf.MappingAsymmetric}, linear: fractional, embedding: fractional, sizes: "[32 48 64 96 128]"},
		{name: "full-range", recipe: quantizer.Recipe{Mapping: gqf.MappingFullRange}, linear: symmetric, embedding: symmetric, sizes: "[]"},
		{name: "rule", rule: gqf.MappingFullRange, linear: symmetric, embedding: both, sizes: "[]"},
		{name: "other rule", recipe: quantizer.Recipe{Mapping: gqf.MappingFullRange}, rule: gqf.MappingAsymmetric, linear: fractional, embedding: symmetric, sizes: "[32 48 64 96 128]"},
		{name: "codes", recipe: layout(quantizer.FamilyCodes, 0, 0), linear: both, embedding: both, sizes: "[32 48 64 96 128]"},
		{name: "torchao", recipe: layout(quantizer.FamilyTorchAO, packing.ScaleF32, 0), linear: symmetric, embedding: symmetric, sizes: "[]"},
		{name: "qai4c32p", recipe: layout(quantizer.FamilyKleidiAI, packing.ScaleF32, gqf.MappingAsymmetric), linear: fractional, floatZeros: true, sizes: "[]"},
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe, j.Groups = c.recipe, c.groups
		if c.rule != gqf.MappingNone {
			j.Options.Rules = []quantizer.Rule{{Match: "model.layers.*", Mapping: c.rule}}
		}
		p, err := j.layOut()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, d := range p.Decisions {
			mappings, sizes := map[string]bool{}, []int{}
			for _, o := range d.Options {
				mappings[o.scheme.Mapping.String()] = true
				if o.scheme.Fractions && !slices.Contains(sizes, o.Group) {
					sizes = append(sizes, o.Group)
				}
				if o.floatZeros != c.floatZeros {
					t.Errorf("%s, %s: floating-point zero points %v, want %v", c.name, d.Name, o.floatZeros, c.floatZeros)
				}
			}
			want := c.linear
			if d.Embedding {
				want = c.embedding
			}
			if got := strings.Join(slices.SortedFunc(maps.Keys(mappings), func(a, b string) int { return cmp.Compare(b, a) }), " "); got != want && want != "" {
				t.Errorf("%s, %s: mappings %s, want %s", c.name, d.Name, got, want)
			}
			if slices.Sort(sizes); !d.Embedding && fmt.Sprint(sizes) != c.sizes {
				t.Errorf("%s, %s: groups %v of fractional zero points, want %s", c.name, d.Name, sizes, c.sizes)
			}
		}
	}
}

// TestTypesThatFit: where rows are no whole number of K blocks, the options of the stated mapping
// are the types that a plan has instead, once each, with the bytes and the bits of these types.
func TestTypesThatFit(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	types := []gguf.TensorType{gguf.Q4_0, gguf.Q4_1, gguf.Q5_1, gguf.Q8_0} // of 2 and 3, 4, 5, 6 bits
	for _, c := range []struct {
		name         string
		recipe, rule gqf.Mapping
		most         int // bits; 0: the default
		want         []gguf.TensorType
	}{
		{"the recipe states k-quant", gqf.MappingKQuant, gqf.MappingNone, 0, types},
		{"a rule states k-quant", gqf.MappingNone, gqf.MappingKQuant, 0, types},
		{"a type with more bits than allowed", gqf.MappingKQuant, gqf.MappingNone, 6, types[:3]},
		{"no mapping", gqf.MappingNone, gqf.MappingNone, 0, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0}},
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Mapping: c.recipe}
		j.Options.GGUF = &conversion.GGUFOptions{}
		j.MaxBits = c.most
		if c.rule != gqf.MappingNone {
			j.Options.Rules = []quantizer.Rule{{Match: "model.layers.*", Mapping: c.rule}}
		}
		p, err := j.layOut()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, d := range p.Decisions {
			if d.Embedding { // no rule matches it
				continue
			}
			var types []gguf.TensorType
			for _, o := range d.Options { // in order of bytes, as c.want
				types = append(types, o.Type)
				bytes := o.Type.Size(d.Weights)
				if s, ok := quantizer.GGUFScheme(o.Type, d.scheme); !ok || s.Bits != o.Bits || s.Group != o.Group || o.Bytes != bytes {
					t.Errorf("%s, %s, %s: %d bits, group %d, %d bytes, want %d, %d, %d", c.name, d.Name, o.Type, o.Bits, o.Group, o.Bytes, s.Bits, s.Group, bytes)
				}
			}
			if !slices.Equal(types, c.want) {
				t.Errorf("%s, %s: types %v, want %v", c.name, d.Name, types, c.want)
			}
		}
		for i := range p.Decisions[0].Options {
			chosen := make([]int, len(p.Decisions))
			for k, d := range p.Decisions {
				chosen[k] = min(i, len(d.Options)-1)
			}
			a, err := p.allocation(chosen)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range a.Rows {
				for _, l := range a.Plan.Tensors {
					if l.Name == r.Tensor && (l.Type != r.Type || l.Bits != r.Bits || l.Bytes != r.Bytes) {
						t.Errorf("%s: %s has %s of %d bits, %d bytes in the plan, %s of %d, %d in the allocation", c.name, r.Tensor, l.Type, l.Bits, l.Bytes, r.Type, r.Bits, r.Bytes)
					}
				}
			}
		}
	}
}

// TestCheckpointOptions: the options for a checkpoint are schemes that vLLM has kernels for, one choice
// for the linear layers that it computes as one. Programs for MLX have kernels for all of MLX's.
func TestCheckpointOptions(t *testing.T) {
	type scheme struct{ bits, group int }
	fused := []string{"model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.mlp.gate_up_proj.weight"}
	for _, c := range []struct {
		f     hfquant.Format
		want  []scheme
		names []string // decisions of two or more tensors
	}{
		{hfquant.IntQuantized, []scheme{{4, 32}, {4, 64}, {4, 128}, {8, 0}}, fused},
		{hfquant.PackQuantized, []scheme{{4, 32}, {4, 64}, {4, 128}, {8, 32}, {8, 64}, {8, 128}}, fused},
		{hfquant.MLX, []scheme{{2, 32}, {2, 64}, {2, 128}, {3, 32}, {3, 64}, {3, 128}, {4, 32}, {4, 64}, {4, 128}, {5, 32}, {5, 64}, {5, 128}, {6, 32}, {6, 64}, {6, 128}, {8, 32}, {8, 64}, {8, 128}}, nil},
	} {
		target, _ := quantizer.CheckpointTarget(c.f)
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{target}}
		j.Options.Checkpoint = &conversion.CheckpointOptions{Format: c.f}
		p, err := j.layOut()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Decisions {
			var got []scheme
			for _, o := range d.Options {
				if o.Group == 0 && o.Bits != 8 && !strings.Contains(d.Name, "down_proj") || o.Group == 0 && c.f != hfquant.IntQuantized {
					o.Group = 128 // the whole row
				}
				got = append(got, scheme{o.Bits, o.Group})
			}
			slices.SortFunc(got, func(a, b scheme) int { return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(a.group, b.group)) })
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %v, want %v", c.f, d.Name, got, c.want)
			}
			if len(d.Tensors) > 1 && strings.Contains(d.Name, "layers.0.") != slices.Contains(c.names, d.Name) {
				t.Errorf("%s: %s stands for %d tensors", c.f, d.Name, len(d.Tensors))
			}
		}
		for _, name := range c.names {
			if !slices.ContainsFunc(p.Decisions, func(d *Decision) bool { return d.Name == name && len(d.Tensors) > 1 }) {
				t.Errorf("%s: no decision %s", c.f, name)
			}
		}
	}
}

// TestNoType: a rule's mapping has no type of the bits that may be chosen.
func TestNoType(t *testing.T) {
	j := openJob(t, bundled, 2)
	j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}
	j.Options.GGUF = &conversion.GGUFOptions{}
	j.Options.Rules = []quantizer.Rule{{Match: "*.q_proj", Mapping: gqf.MappingFullRange}, {Match: "*.k_proj", Mapping: gqf.MappingAsymmetric}}
	j.MinBits = 6
	const want = `tensor "model.layers.0.self_attn.k_proj.weight": nothing to choose from: no type of GGUF files of 6 to 8 bits has the mapping that is stated and fits the rows`
	if _, err := j.layOut(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestRules(t *testing.T) {
	long(t)
	j := openJob(t, bundled, 2)
	rule := func(s string) quantizer.Rule {
		r, err := quantizer.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	channel := quantizer.Rule{Match: "re:.*down_proj", Group: quantizer.PerChannel}
	j.Options.Rules = []quantizer.Rule{rule("lm_head=8,64"), rule("re:.*layers.0.*=5,32"), rule("model.layers.1.mlp.up_proj=skip"), channel}
	p := probe(t, j)
	for _, d := range p.Decisions {
		if d.Embedding || strings.Contains(d.Name, "layers.0.") || d.Name == "model.layers.1.mlp.up_proj.weight" {
			t.Errorf("%s was to be decided, though a rule does", d.Name)
		}
		if strings.Contains(d.Name, "down_proj") && (len(d.Options) != 7+6 || slices.ContainsFunc(d.Options, func(o Option) bool { return o.Group != 0 })) {
			t.Errorf("%s: a rule says per channel, options are %+v", d.Name, d.Options)
		}
	}
	a, err := p.BitsPerWeight(4.2)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]*conversion.PlanTensor{}
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
		j := openJob(t, "../../model/testdata/torch/"+dir, 2)
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

func TestRecipeRoundTrip(t *testing.T) {
	long(t)
	j := openJob(t, bundled, 2)
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
		if fmt.Sprintf("%+v", *l) != fmt.Sprintf("%+v", *a.Plan.Tensors[i]) {
			t.Errorf("%+v became %+v", *a.Plan.Tensors[i], *l)
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
const chosenHash = "a74c19f527b13c4a"

func TestSameChoiceEverywhere(t *testing.T) {
	numbers := []int{1, 3}
	if testing.Short() {
		numbers = numbers[1:] // numbers of threads are compared natively
	}
	for _, threads := range numbers {
		a := half(t, probe(t, openJob(t, "../../model/testdata/torch/llama3", threads)))
		table := ""
		for _, r := range a.Rows {
			table += fmt.Sprintf("%s %d %d %s %d %x\n", r.Tensor, r.Bits, r.Group, r.Mapping, r.Bytes, r.KL)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(table)))[:16]; got != chosenHash {
			t.Errorf("%d threads: %s, not %s\n%s", threads, got, chosenHash, table)
		}
	}
}

// TestGoesOn ends a job in the middle. The next job makes only the missing measurements and chooses
// the same options.
func TestGoesOn(t *testing.T) {
	testshared.SlowEmulated(t, "resumption is the same natively")
	const dir = "../../model/testdata/torch/llama3"
	p := probe(t, openJob(t, dir, 2))
	want := half(t, p).Rows
	groups := p.job.groupsOf(p.Decisions)
	probes := len(groups)
	three := p.job.errorSteps(p.Decisions)
	for _, g := range groups[:3] {
		three += p.job.probeSteps(g)
	}
	j := openJob(t, dir, 2)
	work, err := workdir.Open(filepath.Join(t.TempDir(), "work"))
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	resumed := ""
	j.Work, j.Resumed = work, func(probes, of int) { resumed = fmt.Sprintf("%d of %d", probes, of) }
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	j.Progress = func(n int) {
		if steps += n; steps > three { // of the fourth probe
			cancel()
		}
	}
	if _, err := j.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a job that was cancelled: %v", err)
	}

	started := 0
	steps, j.Start, j.Progress = 0, func(n int) { started = n }, func(n int) { steps += n }
	p = probe(t, j)
	if p.Measured != probes-3 {
		t.Errorf("%d measurements of %d, 3 of which were known", p.Measured, probes)
	}
	if steps != started {
		t.Errorf("%d steps of %d", steps, started)
	}
	j.Start, j.Progress = nil, nil
	if want := fmt.Sprintf("3 of %d", probes); resumed != want {
		t.Errorf("resumed: %q, not %q", resumed, want)
	}
	if got := half(t, p).Rows; !slices.Equal(got, want) {
		t.Errorf("a job that went on chose %+v, not %+v", got, want)
	}
	if p := probe(t, j); p.Measured != 0 {
		t.Errorf("%d measurements were made again", p.Measured)
	}
	for name, change := range map[string]func(*Job){
		"other text": func(j *Job) { j.Reference = reference(t, dir, j.Reference.Sequences()[1:]) }, "other widths": func(j *Job) { j.Widths = []int{2} },
		"another mapping": func(j *Job) { j.Options.Recipe.Mapping = gqf.MappingAsymmetric },
	} {
		other := j
		change(&other)
		if p := probe(t, other); p.Measured != len(groups)*len(p.job.Widths) {
			t.Errorf("%s: %d measurements for %d groups", name, p.Measured, len(groups))
		}
	}
	probe(t, j)
	file := filepath.Join(work.Path(), storedName+".work")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(raw); at += len(raw)/3 + 1 {
		b := bytes.Clone(raw)
		b[at] ^= 1 // one digit for another, for example
		if err := os.WriteFile(file, b, 0o666); err != nil {
			t.Fatal(err)
		}
		p := probe(t, j)
		if got := half(t, p).Rows; !slices.Equal(got, want) || p.Measured != probes {
			t.Errorf("with byte %d damaged: %d measurements, %+v, not %+v", at, p.Measured, got, want)
		}
	}
}

func TestLayer(t *testing.T) {
	for dir, want := range map[string]map[string]int{
		"llama3":  {"lm_head.weight": 2, "model.embed_tokens.weight": -1, "model.layers.0.self_attn.o_proj.weight": 0, "model.layers.1.mlp.gate_proj.weight": 1},
		"mixtral": {"model.layers.1.block_sparse_moe.experts.*.w2.weight": 1},
		"phi3":    {"model.layers.1.self_attn.qkv_proj.weight": 1},
	} {
		p, err := openJob(t, "../../model/testdata/torch/"+dir, 1).layOut()
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
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(bundled)); err != nil {
		t.Fatal(err)
	}
	license := []byte("license ")
	for r := rand.New(rand.NewPCG(1, 2)); len(license) < 200_000; { // compressed it is larger than a file's padding
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
