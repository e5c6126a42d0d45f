package quantizer

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

func named(name string) gguf.TensorType {
	t, _ := gguf.ParseType(name)
	return t
}

// forGGUF is a recipe for GGUF files.
func forGGUF(r Recipe) Recipe {
	r.Targets = []Target{TargetGGUF}
	return r
}

// TestGGUFTypes: bits and mapping choose the type of projections, embeddings and tensors of a rule.
func TestGGUFTypes(t *testing.T) {
	for _, c := range []struct {
		recipe     Recipe
		rule       *Rule
		projection gguf.TensorType
		embedding  gguf.TensorType
	}{
		{Recipe{}, nil, gguf.Q4_0, gguf.Q8_0},
		{Recipe{Bits: 1}, nil, gguf.Q1_0, gguf.Q8_0},
		{Recipe{Bits: 2, EmbeddingBits: 6}, nil, gguf.Q2_0, gguf.Q6_K},
		{Recipe{Bits: 3}, nil, gguf.Q3_K, gguf.Q8_0},
		{Recipe{Bits: 5, EmbeddingBits: 1}, nil, gguf.Q5_0, gguf.Q1_0},
		{Recipe{Bits: 6, Group: new(16)}, nil, gguf.Q6_K, gguf.Q8_0},
		{Recipe{Bits: 2, Group: new(64)}, nil, gguf.Q2_0, gguf.Q8_0},
		{Recipe{Mapping: gqf.MappingAsymmetric}, nil, gguf.Q4_1, gguf.Q8_0},
		{Recipe{Mapping: gqf.MappingAsymmetric, Bits: 5, EmbeddingBits: 4}, nil, gguf.Q5_1, gguf.Q4_1},
		{Recipe{Mapping: gqf.MappingKQuant, Bits: 2}, nil, gguf.Q2_K, gguf.Q8_0},
		{Recipe{Mapping: gqf.MappingKQuant, Bits: 5, EmbeddingBits: 4}, nil, gguf.Q5_K, gguf.Q4_K},
		{Recipe{Mapping: gqf.MappingSymmetric, Bits: 8}, nil, gguf.Q8_0, gguf.Q8_0},
		{Recipe{Mapping: rounding.MappingNonlinear}, nil, named("IQ4_NL"), gguf.Q8_0},
		{Recipe{Mapping: rounding.MappingNonlinearK, EmbeddingBits: 4}, nil, named("IQ4_XS"), named("IQ4_XS")},
		{Recipe{Mapping: rounding.MappingTernary, Bits: 1, EmbeddingBits: 2}, nil, named("TQ1_0"), named("TQ2_0")},
		{Recipe{Mapping: rounding.MappingMXFP4}, &Rule{Bits: 3}, gguf.Q3_K, gguf.Q3_K},
		{Recipe{}, &Rule{Bits: 4, Mapping: rounding.MappingMXFP4}, named("MXFP4"), named("MXFP4")},
		{Recipe{}, &Rule{Bits: 4, Mapping: gqf.MappingKQuant}, gguf.Q4_K, gguf.Q4_K},
		{Recipe{Group: new(32)}, &Rule{Bits: 2}, gguf.Q2_0, gguf.Q2_0},
		{Recipe{Mapping: gqf.MappingAsymmetric}, &Rule{Bits: 8}, gguf.Q8_0, gguf.Q8_0},
		{Recipe{Bits: 3}, &Rule{Bits: 4, Group: new(32), ScaleDtype: packing.ScaleF16}, gguf.Q4_0, gguf.Q4_0},
	} {
		r := forGGUF(c.recipe)
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", c.recipe, err)
		}
		for role, want := range map[gqf.Role]gguf.TensorType{gqf.RoleProjection: c.projection, gqf.RoleEmbedding: c.embedding} {
			s := r.Scheme(role, c.rule)
			got, err := rounding.GGUFType(s)
			if err != nil || got != want || s.Validate() != nil {
				t.Errorf("%+v, rule %v: %s (%s), %v, %v, want %s", c.recipe, c.rule, got, s, err, s.Validate(), want)
			}
			if back, ok := rounding.GGUFScheme(got, s); !ok || back != s {
				t.Errorf("the scheme of %s is %s, not %s", got, back, s)
			}
		}
	}
}

// TestGGUFContradictions: what a GGUF file has no type for is an error that says what to state.
func TestGGUFContradictions(t *testing.T) {
	for _, c := range []struct {
		recipe Recipe
		want   string
	}{
		{Recipe{Bits: 7}, "use 6 (Q6_K) or 8 (Q8_0)"},
		{Recipe{Group: new(64)}, "state group 32, or none"},
		{Recipe{Group: new(PerChannel)}, "not a channel: state group 32"},
		{Recipe{Bits: 3, Group: new(32)}, "type Q3_K has 3 bits, groups of 16"},
		{Recipe{ScaleDtype: packing.ScaleBF16}, "are f16, not bf16"},
		{Recipe{EmbeddingGroup: new(64)}, "embedding: 8 bits are Q8_0"},
		{Recipe{EmbeddingBits: 7}, "embedding: a GGUF file has no type of 7 bits"},
		{Recipe{Bits: 3, Mapping: gqf.MappingAsymmetric}, "Q4_1, Q5_1"},
		{Recipe{Bits: 8, Mapping: gqf.MappingKQuant}, "K types of 2 to 6 bits"},
		{Recipe{Bits: 5, Mapping: rounding.MappingNonlinear}, "IQ4_NL with mapping nonlinear, no type of 5 bits: use 4 bits"},
		{Recipe{Bits: 7, Mapping: rounding.MappingTernary}, "TQ1_0 with mapping ternary, no type of 7 bits: use 1 bits"},
		{Recipe{Bits: 3, PositiveScales: new(true)}, "not for Q3_K: leave out positive-scales"},
		{Recipe{EmbeddingBits: 6, PositiveScales: new(true)}, "embedding: positive scales are for types with neither sub-scales nor minima, not for Q6_K"},
		{Recipe{Mapping: gqf.MappingAsymmetric, PositiveScales: new(true)}, "not for Q4_1"},
		{Recipe{PositiveScales: new(true), Rules: []Rule{{Match: "a", Mapping: gqf.MappingKQuant, Bits: 4}}}, "not for Q4_K"},
		{Recipe{Bits: 1, Mapping: gqf.MappingFullRange}, "half-step grid, not full-range"},
		{Recipe{Bits: 2, Mapping: gqf.MappingHalfStep}, "no type of 2 bits with mapping half-step"},
		{Recipe{Layouts: []LayoutRequest{{Tile: packing.DefaultTile}}}, "a target chooses the layout"},
		{Recipe{Rules: []Rule{{Match: "a", Bits: 7}}}, "no type of 7 bits"},
		{Recipe{Rules: []Rule{{Match: "a", Bits: 4, Group: new(64)}}}, "state group 32"},
		{Recipe{Rules: []Rule{{Match: "a", Layouts: []LayoutRequest{{}}}}}, "leave the layout out"},
	} {
		_, err := NewRuleSet(forGGUF(c.recipe), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.recipe, err, c.want)
		}
	}
}

// TestFitGGUF: rows that blocks do not divide get a type of no fewer bits.
func TestFitGGUF(t *testing.T) {
	for _, c := range []struct {
		kind gguf.TensorType
		k    int64
		want gguf.TensorType // F32: none
	}{
		{gguf.Q1_0, 256, gguf.Q1_0}, {gguf.Q1_0, 192, gguf.Q2_0}, {gguf.Q1_0, 96, gguf.Q4_0},
		{gguf.Q2_0, 96, gguf.Q4_0}, {gguf.Q2_K, 128, named("IQ4_NL")}, {gguf.Q3_K, 320, named("IQ4_NL")},
		{named("IQ4_XS"), 128, named("IQ4_NL")}, {named("TQ1_0"), 128, gguf.Q2_0}, {named("TQ2_0"), 96, gguf.Q4_0},
		{gguf.Q4_K, 128, gguf.Q5_0}, {gguf.Q5_K, 32, gguf.Q5_1}, {gguf.Q6_K, 384, gguf.Q8_0}, {gguf.Q6_K, 512, gguf.Q6_K},
		{gguf.Q4_0, 44, gguf.F32}, {gguf.Q3_K, 48, gguf.F32}, {gguf.Q8_0, 16, gguf.F32},
	} {
		s, ok := rounding.GGUFScheme(c.kind, rounding.Scheme{Algorithm: gqf.AlgorithmSearch, Mapping: gqf.MappingFullRange})
		if !ok {
			t.Fatal(c.kind)
		}
		fit, ok := rounding.FitGGUF(s, c.k)
		if ok != (c.want != gguf.F32) {
			t.Errorf("%s, rows of %d: %v", c.kind, c.k, ok)
		}
		if !ok {
			continue
		}
		got, err := rounding.GGUFType(fit)
		if err != nil || got != c.want || fit.Bits < s.Bits || got.Bits() < c.kind.Bits() || fit.Algorithm != s.Algorithm {
			t.Errorf("%s, rows of %d: %s (%s), %v, want %s", c.kind, c.k, got, fit, err, c.want)
		}
	}
}

// TestGGUFRecipe: a canonical recipe for GGUF files states nothing that the target chooses, and
// gives the same schemes.
func TestGGUFRecipe(t *testing.T) {
	r := forGGUF(Recipe{Bits: 2, EmbeddingBits: 6, Rules: []Rule{{Match: "a", Bits: 1}, {Match: "b", Bits: 4, Mapping: gqf.MappingKQuant}, {Match: "c", Bits: 3}}})
	text, err := r.YAML("", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"group", "scale-dtype", "layout"} {
		if strings.Contains(string(text), word) {
			t.Errorf("the recipe states %s:\n%s", word, text)
		}
	}
	back, err := ParseRecipe("recipe.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Rules {
		for _, role := range []gqf.Role{gqf.RoleProjection, gqf.RoleEmbedding} {
			for _, rule := range []*Rule{nil, &r.Rules[i]} {
				want := r.Scheme(role, rule)
				if rule != nil {
					rule = &back.Rules[i]
				}
				if got := back.Scheme(role, rule); got != want {
					t.Errorf("rule %v: %s, want %s", rule, got, want)
				}
			}
		}
	}
}
