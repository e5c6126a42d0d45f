package quantizer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

func TestParseRule(t *testing.T) {
	yes := true
	for _, test := range []struct {
		in   string
		want Rule
	}{
		{"lm_head=skip", Rule{Match: "lm_head", Skip: true}},
		{"lm_head.weight=8", Rule{Match: "lm_head.weight", Bits: 8}},
		{"a=4,64", Rule{Match: "a", Bits: 4, Group: new(64)}},
		{"a=4,channel", Rule{Match: "a", Bits: 4, Group: new(PerChannel)}},
		{"a=4,asymmetric,f32,48", Rule{Match: "a", Bits: 4, Group: new(48), Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}},
		{"a=2,positive-scales,symmetric-no-clip,f16", Rule{Match: "a", Bits: 2, Mapping: gqf.MappingSymmetricNoClip, ScaleDtype: packing.ScaleF16, PositiveScales: &yes}},
		{`re:model\.layers\.([0-3])\..*=6,full-range`, Rule{Match: `re:model\.layers\.([0-3])\..*`, Bits: 6, Mapping: gqf.MappingFullRange}},
		{"a=1,half-step,rtn", Rule{Match: "a", Bits: 1, Mapping: gqf.MappingHalfStep, Algorithm: gqf.AlgorithmRTN}},
		{"re:a{1,2}=b=3", Rule{Match: "re:a{1,2}=b", Bits: 3}},
	} {
		test.want.Origin = "--rule"
		got, err := ParseRule(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.in, diff)
		}
		again, err := ParseRule(strings.Trim(strings.TrimPrefix(got.String(), "--rule "), "'"))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("%s: its own spelling %s gives %v\n%s", test.in, got, err, diff)
		}
	}
}

func TestParseRuleErrors(t *testing.T) {
	for in, want := range map[string]string{
		"lm_head":                             `--rule "lm_head": no '=' in it`,
		"=4":                                  `--rule "=4": no name to match`,
		"re:=4":                               "no name to match",
		"a=":                                  `"" is neither a number of bits, 1 to 8, nor skip`,
		"a=0":                                 `"0" bits: use 1 to 8`,
		"a=9":                                 `"9" bits: use 1 to 8`,
		"a=four":                              `"four" is neither a number of bits, 1 to 8, nor skip`,
		"a=32,4":                              `"32" bits: use 1 to 8`,
		"a=4,33":                              `group "33": use a multiple of 16, or channel`,
		"a=4,0":                               `group "0": use a multiple of 16`,
		"a=4,-32":                             `group "-32": use a multiple of 16`,
		"a=4,99999999999999999999":            `use a multiple of 16`,
		"a=4,":                                `"" is neither a group`,
		"a=4,none":                            `"none" is neither a group`,
		"a=4,bf32":                            `"bf32" is neither a group (a multiple of 16, or channel), nor mapping (full-range, symmetric, symmetric-no-clip, asymmetric, half-step, k-quant, nonlinear, nonlinear-k, ternary, mxfp4, lattice, lattice-xs, lattice-xxs), nor scale-dtype (bf16, f16, f32), nor algorithm (search, rtn, gptq`,
		"a=4,32,64":                           `"64" repeats`,
		"a=4,f16,f16":                         `"f16" repeats`,
		"a=4,rtn,search":                      `"search" repeats`,
		"a=4,hqq":                             `"hqq" is neither a group`,
		"a=4,symmetric,asymmetric":            `"asymmetric" repeats`,
		"a=4,positive-scales,positive-scales": `repeats`,
		"a=skip,4":                            "nothing may follow it",
		"a=4,skip":                            `"skip" is neither`,
		"re:a(b=4":                            "not a regular expression: error parsing regexp: missing closing ): `a(b`",
		"re:a)|(b=4":                          "not a regular expression",
		"re:a(?=b)=4":                         "not a regular expression",
	} {
		if r, err := ParseRule(in); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--rule") {
			t.Errorf("%s: %+v, error %v, want %q", in, r, err, want)
		}
	}
}

// rules makes rules from the command line's form.
func rules(t *testing.T, specs ...string) []Rule {
	t.Helper()
	var rs []Rule
	for _, s := range specs {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func TestRuleSetMatch(t *testing.T) {
	for _, test := range []struct {
		name           string
		first, recipe  []string
		tensor, winner string // winner is a rule's name with its bits, "" for none
	}{
		{"tensor name", nil, []string{"model.norm=2", "lm_head.weight=3"}, "lm_head.weight", "lm_head.weight=3"},
		{"module name", nil, []string{"lm_head=3"}, "lm_head.weight", "lm_head=3"},
		{"a module is not its bias", nil, []string{"lm_head=3"}, "lm_head.bias", ""},
		{"a name is not a prefix", nil, []string{"lm_head=3"}, "lm_head.weight.x", ""},
		{"a parameter without a module", nil, []string{"mlp.experts.down_proj=3"}, "mlp.experts.down_proj", "mlp.experts.down_proj=3"},
		{"exact beats re", nil, []string{"re:.*=2", "a.b=3"}, "a.b.weight", "a.b=3"},
		{"exact of the recipe beats re before it", []string{"re:.*=2"}, []string{"a.b.weight=3"}, "a.b.weight", "a.b.weight=3"},
		{"the first exact wins", nil, []string{"a.b=2", "a.b.weight=3"}, "a.b.weight", "a.b=2"},
		{"the first exact wins, the other way", nil, []string{"a.b.weight=3", "a.b=2"}, "a.b.weight", "a.b.weight=3"},
		{"the first re wins", nil, []string{"re:a.*=2", "re:.*b.*=3"}, "a.b.weight", "re:a.*=2"},
		{"the command line comes first", []string{"re:.*b=3"}, []string{"re:a.*=2"}, "a.b.weight", "re:.*b=3"},
		{"re matches fully", nil, []string{"re:b=2"}, "a.b.weight", ""},
		{"re matches fully, alternatives too", nil, []string{"re:a|b=2"}, "a.b.weight", ""},
		{"re matches the tensor name", nil, []string{`re:.*\.weight=2`}, "a.b.weight", `re:.*\.weight=2`},
		{"re matches the module name", nil, []string{`re:.*\.b=2`}, "a.b.weight", `re:.*\.b=2`},
		{"re has flags", nil, []string{`re:(?i)A\.B=2`}, "a.b.weight", `re:(?i)A\.B=2`},
		{"a name is no re", nil, []string{"a.b=2"}, "aXb.weight", ""},
	} {
		rs, err := NewRuleSet(Recipe{Rules: rules(t, test.recipe...)}, rules(t, test.first...))
		if err != nil {
			t.Fatal(err)
		}
		r, ok := rs.Match(test.tensor)
		got := ""
		if ok {
			got = strings.Trim(strings.TrimPrefix(r.String(), "--rule "), "'")
		}
		if got != test.winner || ok != (r != nil) {
			t.Errorf("%s: %s is given rule %q, want %q", test.name, test.tensor, got, test.winner)
		}
	}
}

func TestRuleSetUnused(t *testing.T) {
	rs, err := NewRuleSet(Recipe{Rules: rules(t, "lm_head=4", "nowhere=2", "re:.*norm=4")}, rules(t, "lm_head=8", "re:x.*=3"))
	if err != nil {
		t.Fatal(err)
	}
	use := func(tensor string) {
		if r, ok := rs.Match(tensor); ok {
			rs.Use(r)
		}
	}
	use("lm_head.weight")
	rs.Match("model.norm.weight") // not used: it cannot be quantized
	use("other.weight")
	var got []string
	for _, r := range rs.Unused() {
		got = append(got, r.String())
	}
	// The recipe's lm_head rule matched, but the command line's came first.
	want := []string{"--rule 're:x.*=3'", "--rule 'nowhere=2'", "--rule 're:.*norm=4'"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNewRuleSetErrors(t *testing.T) {
	for _, test := range []struct {
		recipe Recipe
		want   string
	}{
		{Recipe{Bits: 9}, "9 bits"},
		{Recipe{Group: new(17)}, "group 17"},
		{Recipe{Group: new(-2)}, "group -2"},
		{Recipe{Bits: 1, Mapping: gqf.MappingSymmetric}, "symmetric"},
		{Recipe{EmbeddingBits: 9}, "embedding: 9 bits"},
		{Recipe{Rules: []Rule{{Match: "a"}}}, "rule 'a=': it states nothing"},
		{Recipe{Rules: []Rule{{Match: "a", Bits: 1, Mapping: gqf.MappingSymmetric, Origin: "r.yaml:3"}}}, "rule 'a=1,symmetric' (r.yaml:3): mapping symmetric does not work at 1 bit"},
		{Recipe{Rules: []Rule{{Match: "a", Group: new(24)}}}, "rule 'a=group 24': group 24"},
		{Recipe{Mapping: gqf.MappingSymmetric, Rules: []Rule{{Match: "a", Bits: 1}}}, "rule 'a=1': mapping symmetric does not work at 1 bit"},
	} {
		if _, err := NewRuleSet(test.recipe, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.recipe, err, test.want)
		}
	}
}
