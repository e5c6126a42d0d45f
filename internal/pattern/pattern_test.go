package pattern

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

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
	names := []string{"lm_head.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"}
	for _, tt := range []struct{ pattern, want string }{
		{"lm_haed", `; did you mean "lm_head"?`},
		{"model.nrom.weight", `; did you mean "model.norm.weight"?`},
		{"*.q_porj", `; did you mean "*.q_proj"?`},
		{"*.Q_proj", `; did you mean "*.q_proj"?`},
		{"model.layer.*.self_atn.*", `; did you mean "model.layers.*.self_attn.*"?`},
		{"*.layers.*.downproj", `; did you mean "*.layers.*.down_proj"?`},
		{`re:.*\.(q|k)_porj`, `; did you mean "re:.*\\.(q|k)_proj"?`},
		{"*.experts.*", ""},
		{"*.norm", ""},
		{"re:(", ""},
	} {
		if got := NoMatch(tt.pattern, names); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.pattern, got, tt.want)
		}
	}
}

// TestManyGlobs matches many names with many globs, which took seconds as regular expressions: they
// need no memory.
func TestManyGlobs(t *testing.T) {
	const name = "model.layers.17.mlp.experts.93.down_proj.weight"
	var globs []Pattern
	for i := range 1000 {
		p, err := Parse(fmt.Sprintf("*.layers.%d.*.?own_pro*", i))
		if err != nil || p.re != nil {
			t.Fatalf("%v, %v", p.re, err)
		}
		globs = append(globs, p)
	}
	found := 0
	allocated := testing.AllocsPerRun(10, func() {
		found = 0
		for _, p := range globs {
			if p.Match(name) {
				found++
			}
		}
	})
	if found != 1 || allocated != 0 {
		t.Errorf("%d globs match, %v allocations", found, allocated)
	}
}

// FuzzGlob compares matchGlob with the regular expression of a glob.
func FuzzGlob(f *testing.F) {
	f.Add("*.?_proj*", "model.layers.0.q_proj.weight")
	f.Add("a*a*?", "aaaä")
	f.Add("**", "")
	f.Add("*??", "€")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if strings.ContainsAny(glob, `[\`) || !utf8.ValidString(glob) || !utf8.ValidString(name) {
			return
		}
		want := regexp.MustCompile(`\A(?s:` + globExpression(glob) + `)\z`).MatchString(name)
		if got := matchGlob(glob, name); got != want {
			t.Errorf("%q matches %q: %v", glob, name, got)
		}
	})
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
