package alloc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

var nonlinear, _ = gguf.ParseType("IQ4_NL")

// TestRuledTypes: the mapping that a rule states for one tensor leaves the other tensors their
// types, and counts instead of the recipe's.
func TestRuledTypes(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	const ruled = "model.layers.0.self_attn.q_proj"
	for _, c := range []struct {
		recipe, rule  gqf.Mapping
		types, others []gguf.TensorType
	}{
		{gqf.MappingNone, gqf.MappingAsymmetric, []gguf.TensorType{gguf.Q4_1, gguf.Q5_1}, []gguf.TensorType{gguf.Q2_0, nonlinear, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0}},
		{gqf.MappingFullRange, gqf.MappingAsymmetric, []gguf.TensorType{gguf.Q4_1, gguf.Q5_1}, []gguf.TensorType{gguf.Q2_0, nonlinear, gguf.Q4_0, gguf.Q5_0, gguf.Q8_0}},
		// IQ4_NL: rows do not divide into blocks of Q3_K.
		{gqf.MappingAsymmetric, gqf.MappingFullRange, []gguf.TensorType{gguf.Q2_0, gguf.Q4_0, gguf.Q5_0, gguf.Q8_0}, []gguf.TensorType{gguf.Q2_0, nonlinear, gguf.Q4_1, gguf.Q5_1, gguf.Q8_0}},
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Mapping: c.recipe}
		j.Options.GGUF = &togguf.Options{}
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

// TestSchemesOfThePlan: options are measured with the schemes that the plan of a choice has, zero
// points included, and probes with the same kind of scheme.
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
		j.Options.Recipe, j.MinBits = c.recipe, c.least
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
				if got := rowByRow(m.Scheme); got != want[m.Tensor] {
					t.Errorf("%s: %s has scheme %+v in the plan, the option has %+v", name, m.Tensor, got, want[m.Tensor])
				}
			}
		}
		for _, d := range p.Decisions {
			s := d.probeScheme()
			if err := s.Validate(); err != nil || s.Bits != probeBits {
				t.Errorf("%s, %s: probe with scheme %+v, error %v", name, d.Name, s, err)
			}
			if s.Fractions != c.fractions && !d.Embedding {
				t.Errorf("%s, %s: probe with fractions %v, want %v", name, d.Name, s.Fractions, c.fractions)
			}
		}
	}
}

// TestMappings: tensors choose between the default mapping and fractional zero points, unless the
// recipe or a rule states a mapping, or the layout has other zero points.
func TestMappings(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	const both, symmetric, fractional = "half-step full-range asymmetric", "full-range", "asymmetric"
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
		{name: "half-step at 2 bits", recipe: quantizer.Recipe{Bits: 2, Mapping: gqf.MappingHalfStep}, linear: "half-step full-range", embedding: "half-step full-range", sizes: "[]"},
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

// TestHalfStepBesideLayouts: a tensor in a layout without half-step keeps its options. The other
// tensors have half-step, at 2 bits alone.
func TestHalfStepBesideLayouts(t *testing.T) {
	j := openJob(t, bundled, 2)
	const ruled = "model.layers.0.self_attn.q_proj"
	j.Options.Rules = []quantizer.Rule{{Match: ruled, Layouts: []quantizer.LayoutRequest{{Family: quantizer.FamilyTorchAO}}, ScaleDtype: packing.ScaleF32}}
	p, err := j.layOut()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range p.Decisions {
		halves := 0
		for _, o := range d.Options {
			if o.scheme.Mapping == gqf.MappingHalfStep {
				if halves++; o.Bits != 2 {
					t.Errorf("%s: half-step at %d bits", d.Name, o.Bits)
				}
			}
		}
		if other := d.Name != ruled+".weight"; other != (halves > 0) || len(d.Options) < 7 {
			t.Errorf("%s: %d of %d options have half-step", d.Name, halves, len(d.Options))
		}
	}
}

// TestTypesThatFit: where rows are no whole number of K blocks, the options of the stated mapping
// are the types that a plan has instead, once each, with the bytes and the bits of these types.
func TestTypesThatFit(t *testing.T) {
	testshared.SlowEmulated(t, "plans are the same natively")
	types := []gguf.TensorType{nonlinear, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0} // 2 and 3, 4, 5, 6 bits
	for _, c := range []struct {
		name         string
		recipe, rule gqf.Mapping
		most         int // bits; 0: the default
		want         []gguf.TensorType
	}{
		{"the recipe states k-quant", gqf.MappingKQuant, gqf.MappingNone, 0, types},
		{"a rule states k-quant", gqf.MappingNone, gqf.MappingKQuant, 0, types},
		{"a type with more bits than allowed", gqf.MappingKQuant, gqf.MappingNone, 6, types[:3]},
		{"no mapping", gqf.MappingNone, gqf.MappingNone, 0, []gguf.TensorType{gguf.Q2_0, nonlinear, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0}},
	} {
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Mapping: c.recipe}
		j.Options.GGUF = &togguf.Options{}
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
				if s, ok := rounding.GGUFScheme(o.Type, d.scheme); !ok || s.Bits != o.Bits || s.Group != o.Group || o.Bytes != bytes {
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

// TestCheckpointOptions: the options for a checkpoint are schemes that vLLM has kernels for, one
// choice for the linear layers that it computes as one. Programs for MLX have kernels for all of
// MLX's.
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
		j := openJob(t, bundled, 2)
		j.Options.Recipe = quantizer.Recipe{Targets: []quantizer.Target{quantizer.CheckpointTarget(c.f)}}
		j.Options.Checkpoint = &tocheckpoint.Options{Format: c.f}
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
	j.Options.GGUF = &togguf.Options{}
	j.Options.Rules = []quantizer.Rule{{Match: "*.q_proj", Mapping: gqf.MappingFullRange}, {Match: "*.k_proj", Mapping: gqf.MappingAsymmetric}}
	j.MinBits = 6
	const want = `tensor "model.layers.0.self_attn.k_proj.weight": nothing to choose from: no type of GGUF files of 6 to 8 bits has the mapping that is stated and fits the rows`
	if _, err := j.layOut(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
