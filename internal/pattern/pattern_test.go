package pattern

import "testing"

func TestMatch(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj.weight"
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"lm_head", "lm_head.weight", true},
		{"lm_head.weight", "lm_head.weight", true},
		{"lm_head", "lm_head.bias", false},
		{"lm_head.bias", "lm_head.bias", true},
		{"*.q_proj", q, true},
		{"*.q_proj.weight", q, true},
		{"*q_proj*", q, true},
		{"q_proj", q, false},
		{"*.[qk]_proj", q, true},
		{"*.[vo]_proj", q, false},
		{"*.?_proj", q, true},
		{"*.??_proj", q, false},
		{"*.layers.0.*", q, true},
		{"*.layers.1.*", q, false},
		{"*", "any thing/at\nall", true},
		{"a+b*", "a+bc", true}, // characters that mean something in a regular expression only
		{"a+b*", "aabc", false},
		{"x.experts[3]", "x.experts[3]", true}, // the label of an expert
		{"x.experts[3]", "x.experts3", true},
		{`*.experts\[3\]`, "x.experts[3]", true},
		{`*.experts\[3\]`, "x.experts3", false},
		{"re:.*q_proj", q, true},
		{"re:q_proj", q, false},
		{"re:lm_head|.*_proj", q, true},
		{"re:a|b", "xb", false},
		{"re:.*\\.weight", q, true},
	} {
		p, err := Parse(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		if got := p.Match(tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, got)
		}
		if p.text != tt.pattern {
			t.Errorf("%q is written %q", tt.pattern, p.text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, s := range []string{"", "re:", "re:(", "re:a)(b", "a[", "a[]", "[a", `a\`} {
		if p, err := Parse(s); err == nil {
			t.Errorf("%q is a pattern: %v", s, p)
		}
	}
}

func TestNoMatch(t *testing.T) {
	names := []string{"lm_head.weight", "model.norm.weight"}
	for _, tt := range []struct{ pattern, want string }{
		{"lm_haed", `; did you mean "lm_head"?`},
		{"model.nrom.weight", `; did you mean "model.norm.weight"?`},
		{"*.q_proj", ""},
	} {
		p, err := Parse(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.NoMatch(names); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.pattern, got, tt.want)
		}
	}
}

// FuzzParse holds that every pattern that Parse takes matches itself as a name, and that Match
// never panics.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"lm_head", "*.q_proj", "re:.*", "[a-c]?", "a[", "\xff*"} {
		f.Add(s, "model.layers.0.q_proj.weight")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		p, err := Parse(s)
		if err != nil {
			return
		}
		p.Match(name)
		if !p.Match(s) {
			t.Errorf("%q does not match itself", s)
		}
	})
}
