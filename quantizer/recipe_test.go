package quantizer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

const fullRecipe = `# everything
bits: 3
group: 64
mapping: asymmetric
scale-dtype: f16
positive-scales: true
layout: lowbit:4x8x2
embedding-bits: 6
embedding-group: channel
rules:
  - match: re:.*\.down_proj  # a comment
    bits: 6
    group: 48
    mapping: symmetric
    scale-dtype: f32
    positive-scales: false
  - {match: lm_head, skip: true}
  - match: "re:layers\\.[0-3]\\..*"
    group: channel
`

func TestParseRecipe(t *testing.T) {
	no := false
	for _, test := range []struct {
		name, in string
		want     Recipe
	}{
		{"empty", "", Recipe{}},
		{"only comments", "# nothing\n", Recipe{}},
		{"one key", "bits: 8", Recipe{Bits: 8}},
		{"folds", "fold: rotate\nalgorithm: awq\n", Recipe{Fold: Fold{Rotate: true}, Algorithm: gqf.AlgorithmAWQ}},
		{"fold", "fold: equalize,rotate\n", Recipe{Fold: Fold{Rotate: true, Equalize: true}}},
		{"fold auto", "fold: auto\n", Recipe{Fold: Fold{Auto: true}}},
		{"pre-tokenizer", "pre: llama-bpe\n", Recipe{Pre: "llama-bpe"}},
		{"no rules", "rules: []", Recipe{Rules: []Rule{}}},
		{"skip: false", "rules:\n- match: a\n  skip: false\n  bits: 2\n", Recipe{Rules: []Rule{{Match: "a", Bits: 2, Origin: "r.yaml:2"}}}},
		{"algorithms", "algorithm: search\nrules:\n- {match: a, algorithm: rtn}\n", Recipe{
			Algorithm: gqf.AlgorithmSearch, Rules: []Rule{{Match: "a", Algorithm: gqf.AlgorithmRTN, Origin: "r.yaml:3"}},
		}},
		{"everything", fullRecipe, Recipe{
			Bits: 3, Group: new(64), Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF16, PositiveScales: new(true),
			Layouts: []LayoutRequest{{Tile: packing.Tile{NR: 4, KR: 8, SR: 2}}}, EmbeddingBits: 6, EmbeddingGroup: new(PerChannel),
			Rules: []Rule{
				{Match: `re:.*\.down_proj`, Bits: 6, Group: new(48), Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleF32, PositiveScales: &no, Origin: "r.yaml:11"},
				{Match: "lm_head", Skip: true, Origin: "r.yaml:17"},
				{Match: `re:layers\.[0-3]\..*`, Group: new(PerChannel), Origin: "r.yaml:18"},
			},
		}},
	} {
		got, err := ParseRecipe("r.yaml", []byte(test.in))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestParseRecipeErrors(t *testing.T) {
	for in, want := range map[string]string{
		"bits: 4\ngruop: 32\n":                 `r.yaml:2: unknown key "gruop"`,
		"bits: 4\nbits: 5\n":                   `r.yaml:2: mapping key "bits" already defined at [1:1]`,
		"bits: 4\n\tgroup: 3\n":                "r.yaml:2: found character '\t' that cannot start any token",
		"- bits\n":                             "r.yaml:1: a mapping of keys to values was expected",
		"just words\n":                         "r.yaml:1: a mapping of keys to values was expected",
		"bits: 4\n---\nbits: 5\n":              "r.yaml:3: a second document: only one is expected",
		"bits:\n":                              "r.yaml:1: bits: it has no value",
		"bits: 9\n":                            `r.yaml:1: bits: "9" bits: use 1 to 8`,
		"pre: 1\n":                             "r.yaml:1: pre: a name was expected; put it in quotes",
		"rotate: true\n":                       `r.yaml:1: unknown key "rotate"`,
		"fold: all\n":                          `r.yaml:1: fold: unknown fold "all": use one of none, rotate, equalize, rotate,equalize, auto`,
		"bits: 4.5\n":                          `r.yaml:1: bits: "4.5" bits: use 1 to 8`,
		"bits: [4]\n":                          "r.yaml:1: bits: a number or a word was expected, not a sequence",
		"\n\ngroup: 20\n":                      `r.yaml:3: group: group "20": use a multiple of 16, or channel`,
		"group: 0\n":                           `r.yaml:1: group: group "0": use a multiple of 16, or channel`,
		"algorithm: best\n":                    `r.yaml:1: algorithm: unknown algorithm "best": use one of search, rtn, gptq, gptq-ft, imatrix, awq`,
		"algorithm: hqq\n":                     `r.yaml:1: algorithm: unknown algorithm "hqq": use one of search, rtn, gptq, gptq-ft, imatrix, awq; did you mean "awq"?`,
		"hash: md5\n":                          `r.yaml:1: hash: unknown hash "md5": use one of headers, sha256`,
		"seed: 0\n":                            `r.yaml:1: seed: "0": use an integer above 0`,
		"algorithm: none\n":                    `r.yaml:1: algorithm: unknown algorithm "none": use one of search, rtn, gptq, gptq-ft, imatrix, awq`,
		"mapping: sym\n":                       `r.yaml:1: mapping: unknown mapping "sym": use one of full-range, symmetric, symmetric-no-clip, asymmetric, half-step, k-quant, nonlinear, nonlinear-k, ternary, mxfp4, lattice, lattice-xs, lattice-xxs; did you mean "symmetric", "symmetric-no-clip" or "asymmetric"?`,
		"mapping: none\n":                      `r.yaml:1: mapping: unknown mapping "none": use one of full-range, symmetric, symmetric-no-clip, asymmetric, half-step, k-quant, nonlinear, nonlinear-k, ternary, mxfp4, lattice, lattice-xs, lattice-xxs`,
		"scale-dtype: f64\n":                   `r.yaml:1: scale-dtype: unknown scale dtype "f64": use one of bf16, f16, f32; did you mean "f16" or "f32"?`,
		"positive-scales: yes\n":               "r.yaml:1: positive-scales: use true or false",
		"layout: lowbit:8x8\n":                 `r.yaml:1: layout: unknown tile "8x8": use one of 4x8x2, 4x16x2, 8x8x2, 8x16x2, 4x4x1, 4x8x1`,
		"rules: 4\n":                           "r.yaml:1: rules: a list of rules was expected",
		"rules:\n  - lm_head\n":                "r.yaml:2: rule 1: a mapping of keys to values was expected",
		"rules:\n- bits: 4\n":                  "r.yaml:2: rule 1: no name to match",
		"rules:\n- match: 7\n":                 "r.yaml:2: rule 1: match: a name was expected; put it in quotes",
		"rules:\n- match: a\n":                 "r.yaml:2: rule 1 (a): it states nothing: give skip, or one of bits, group, mapping, scale-dtype, algorithm, positive-scales, layout",
		"rules:\n- match: re:a(b\n  bits: 2\n": "r.yaml:2: rule 1 (re:a(b): not a regular expression: error parsing regexp: missing closing ): `a(b`",
		"rules:\n- match: a\n  bits: 2\n- match: b\n  bits: 99\n": `r.yaml:5: rule 2 (b): bits: "99" bits: use 1 to 8`,
		"rules:\n- match: a\n  bit: 2\n":                          `r.yaml:3: rule 1 (a): unknown key "bit"`,
		"rules:\n- match: a\n  tile: 4x8x2\n":                     `r.yaml:3: rule 1 (a): unknown key "tile"`,
		"rules:\n- match: a\n  bits: 2\n  skip: true\n":           "r.yaml:2: rule 1 (a): skip leaves the tensor unquantized: state nothing else",
		"a: &x {bits: 4}\n<<: *x\n":                               "r.yaml:1: &: anchors, aliases and merge keys are not supported: write the value out",
		"rules: " + strings.Repeat("[", 100_000):                  "r.yaml:1: lists and mappings are nested deeper than 32 levels",
	} {
		_, err := ParseRecipe("r.yaml", []byte(in))
		var re *recipeError
		if !errors.As(err, &re) || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", in, err, want)
		}
	}
}

func TestRecipeScheme(t *testing.T) {
	yes := true
	var zero Recipe
	for _, test := range []struct {
		name   string
		recipe Recipe
		role   gqf.Role
		rule   *Rule
		want   string
	}{
		{"default", zero, gqf.RoleProjection, nil, "4-bit group 32 full-range bf16 search"},
		{"default head", zero, gqf.RoleHead, nil, "4-bit group 32 full-range bf16 search"},
		{"default table", zero, gqf.RoleEmbedding, nil, "8-bit group 32 full-range bf16 search"},
		{"the table takes the group", Recipe{Group: new(64)}, gqf.RoleEmbedding, nil, "8-bit group 64 full-range bf16 search"},
		{"the table's own group", Recipe{Group: new(64), EmbeddingGroup: new(PerChannel), EmbeddingBits: 6}, gqf.RoleEmbedding, nil, "6-bit per channel full-range bf16 search"},
		{"which is not the others'", Recipe{Group: new(64), EmbeddingGroup: new(PerChannel), EmbeddingBits: 6}, gqf.RoleExpert, nil, "4-bit group 64 full-range bf16 search"},
		{"a rule says bits", Recipe{Group: new(64)}, gqf.RoleProjection, &Rule{Match: "a", Bits: 3}, "3-bit group 64 full-range bf16 search"},
		{"a rule for the table", zero, gqf.RoleEmbedding, &Rule{Match: "a", Group: new(128)}, "8-bit group 128 full-range bf16 search"},
		{"a rule says all", zero, gqf.RoleProjection,
			&Rule{Match: "a", Bits: 2, Group: new(PerChannel), Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleF32, PositiveScales: &yes},
			"2-bit per channel symmetric f32 positive-scales"},
		{"TorchAO's formula", Recipe{Mapping: gqf.MappingSymmetric}, gqf.RoleProjection, nil, "4-bit group 32 symmetric bf16"},
		{"searched all the same", Recipe{Mapping: gqf.MappingSymmetric, Algorithm: gqf.AlgorithmSearch}, gqf.RoleProjection, nil, "4-bit group 32 symmetric bf16 search"},
		{"a rule's algorithm", Recipe{Algorithm: gqf.AlgorithmRTN}, gqf.RoleProjection, &Rule{Match: "a", Algorithm: gqf.AlgorithmSearch}, "4-bit group 32 full-range bf16 search"},
		{"the recipe's algorithm", Recipe{Algorithm: gqf.AlgorithmRTN}, gqf.RoleProjection, &Rule{Match: "a", Mapping: gqf.MappingAsymmetric}, "4-bit group 32 asymmetric bf16"},
		{"half steps beside a table", Recipe{Bits: 2, Mapping: gqf.MappingHalfStep}, gqf.RoleEmbedding, nil, "8-bit group 32 full-range bf16 search"},
		{"1 bit", Recipe{Bits: 1}, gqf.RoleProjection, nil, "1-bit group 32 half-step bf16 search"},
		{"1 bit beside a table", Recipe{Bits: 1}, gqf.RoleEmbedding, nil, "8-bit group 32 full-range bf16 search"},
		{"1 bit, a mapping stated", Recipe{Bits: 1, Mapping: gqf.MappingFullRange}, gqf.RoleProjection, nil, "1-bit group 32 full-range bf16 search"},
		{"1 bit in a layout without half steps", Recipe{Bits: 1, Layouts: []LayoutRequest{{Family: FamilyTorchAO}}}, gqf.RoleProjection, nil, "1-bit group 32 full-range bf16 search"},
		{"a rule says 1 bit", zero, gqf.RoleProjection, &Rule{Match: "a", Bits: 1}, "1-bit group 32 half-step bf16 search"},
		{"a rule says 1 bit, the recipe a mapping", Recipe{Mapping: gqf.MappingAsymmetric}, gqf.RoleProjection, &Rule{Match: "a", Bits: 1}, "1-bit group 32 asymmetric bf16 search"},
		{"half steps", zero, gqf.RoleProjection, &Rule{Match: "a", Bits: 2, Mapping: gqf.MappingHalfStep}, "2-bit group 32 half-step bf16 search"},
	} {
		if got := test.recipe.Scheme(test.role, test.rule).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRecipeJSON(t *testing.T) {
	r, err := ParseRecipe("somewhere/r.yaml", []byte(fullRecipe))
	if err != nil {
		t.Fatal(err)
	}
	first := rules(t, `re:a<b>"\d"=2,f32,positive-scales`)
	got, err := r.JSON(first)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "bits": 3,
  "group": 64,
  "mapping": "asymmetric",
  "scale-dtype": "f16",
  "algorithm": "search",
  "positive-scales": true,
  "layout": "lowbit:4x8x2",
  "embedding-bits": 6,
  "embedding-group": "channel",
  "rules": [
    {
      "match": "re:a<b>\"\\d\"",
      "bits": 2,
      "scale-dtype": "f32",
      "positive-scales": true
    },
    {
      "match": "re:.*\\.down_proj",
      "bits": 6,
      "group": 48,
      "mapping": "symmetric",
      "scale-dtype": "f32",
      "algorithm": "rtn",
      "positive-scales": false
    },
    {
      "match": "lm_head",
      "skip": true
    },
    {
      "match": "re:layers\\.[0-3]\\..*",
      "group": "channel"
    }
  ]
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again, err := ParseRecipe("gq/recipe.json", got)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Rules) != 4 || again.Rules[0].Match != first[0].Match {
		t.Errorf("read again: %+v", again)
	}
	if same, err := again.JSON(nil); err != nil || string(same) != want {
		t.Errorf("read and written again: %v\n%s", err, same)
	}
}

func TestRecipeJSONDefaults(t *testing.T) {
	unsaid, err := Recipe{}.JSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	said, err := Recipe{Bits: 4, Group: new(32), Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16,
		EmbeddingBits: 8, EmbeddingGroup: new(32), Rules: []Rule{}}.JSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(said), string(unsaid)); diff != "" {
		t.Errorf("(-said +unsaid)\n%s", diff)
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add(fullRecipe)
	f.Add(`{"bits":4,"rules":[{"match":"re:a\\.b","skip":true}]}`)
	f.Add("a: &x [1]\nb: *x\n? c\n: d\n--- !t\n")
	f.Fuzz(func(t *testing.T, in string) {
		r, err := ParseRecipe("r.yaml", []byte(in))
		if err != nil {
			return
		}
		if _, err := r.JSON(nil); err != nil {
			t.Error(err)
		}
		NewRuleSet(r, nil)
	})
}

// Half-step that follows from 1 bit must be stated in the JSON form.
func TestRecipeJSONOneBit(t *testing.T) {
	for _, r := range []Recipe{{Bits: 1}, {Rules: rules(t, "a=1")}, {Bits: 1, Rules: rules(t, "a=2", "b=4")}, {Mapping: gqf.MappingFullRange, Rules: rules(t, "a=1")}} {
		raw, err := r.JSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRecipe("r", raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range append([]Rule{{}}, r.Rules...) {
			for _, role := range []gqf.Role{gqf.RoleProjection, gqf.RoleEmbedding} {
				if got, want := again.Scheme(role, find(again.Rules, rule.Match)), r.Scheme(role, find(r.Rules, rule.Match)); got != want {
					t.Errorf("%s\nrule %q, %s: read again %s, want %s", raw, rule.Match, role, got, want)
				}
			}
		}
	}
}

func find(rules []Rule, match string) *Rule {
	for i := range rules {
		if rules[i].Match == match {
			return &rules[i]
		}
	}
	return nil
}

// TestRecipeTooLarge: a recipe that ParseRecipe would refuse for its size is not written.
func TestRecipeTooLarge(t *testing.T) {
	r := Recipe{}
	for i := range 40_000 {
		r.Rules = append(r.Rules, Rule{Match: fmt.Sprintf("%0100d", i), Bits: 4})
	}
	if text, err := r.YAML("", nil); err == nil || !strings.Contains(err.Error(), "a recipe of 40000 rules has") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
