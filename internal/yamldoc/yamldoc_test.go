package yamldoc

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// deep has texts of n levels.
var deep = map[string]func(n int) string{
	"flow lists":      func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) },
	"open flow lists": func(n int) string { return strings.Repeat("[", n) },
	"flow mappings":   func(n int) string { return strings.Repeat("{a: ", n) + strings.Repeat("}", n) },
	"dashes":          func(n int) string { return strings.Repeat("- ", n) + "x" },
	"questions":       func(n int) string { return strings.Repeat("? ", n) + "x" },
	"blocks": func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	},
	"dashes and blocks": func(n int) string {
		var b strings.Builder
		for i := range n / 2 {
			b.WriteString(strings.Repeat("  ", i) + "- a:\n")
		}
		return b.String()
	},
	"flow in blocks": func(n int) string { return "a:\n  - b: " + strings.Repeat("[", n) },
}

// TestDepth refuses documents that are too deep. The text's size bounds the memory.
func TestDepth(t *testing.T) {
	for name, text := range deep {
		n := 20_000
		if strings.Contains(name, "blocks") && name != "flow in blocks" {
			n = 300 // the indentation alone has n*n/2 bytes
		}
		raw := []byte(text(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(raw)
		runtime.ReadMemStats(&after)
		if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Msg, "nested deeper than 32 levels") || e.Line < 1 {
			t.Errorf("%s: %v", name, err)
		}
		if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1000*len(raw)+1<<20); used > limit {
			t.Errorf("%s: %d bytes allocated for %d", name, used, len(raw))
		}
		if name == "open flow lists" || name == "questions" || name == "flow in blocks" {
			continue
		}
		if _, err := Parse([]byte(text(20))); err != nil {
			t.Errorf("%s, 20 levels: %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"# nothing\n", ""},
		{"a: 1\nb: [1, {c: 2}]\n", ""},
		// Brackets in names and quotes do not nest.
		{"a:\n" + strings.Repeat("  - {match: 're:\\[', x: \"[{\"}\n", 100), ""},
		{strings.Repeat("a:\n  - b:\n      c: 1\n---\n", 2), "line 5: a second document"},
		{"a: &x 1\n", "line 1: &: anchors, aliases and merge keys are not supported"},
		{"a: 1\nb: *x\n", "line 2: *: anchors"},
		{"<<: {a: 1}\n", "line 1: <<: anchors"},
		{"a:\n  !x  ", "line 2: !x: tags are not supported"},
		{"a: !!str 1\n", "line 1: !!str: tags are not supported"},
		{"a: '!x'\nb: \"!!str\"\nc: x!y\n", ""},
		{"a: [1\n", "line 1: "},
		{strings.Repeat("#", 4<<20) + "\n", "more than the limit of 4194304"},
	} {
		_, err := Parse([]byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), "more than")) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestDecode(t *testing.T) {
	var v struct {
		A int            `yaml:"a"`
		B map[string]any `yaml:"b"`
	}
	if err := Decode([]byte("a: 3\nb: {c: x}\n"), &v); err != nil || v.A != 3 || v.B["c"] != "x" {
		t.Errorf("%v, %v", v, err)
	}
	for text, want := range map[string]string{"a: 3\nz: 1\n": "line 2: unknown field \"z\"", "\"z\\n\\nz\": 1\n": "line 1: unknown field \"z  z\"", "a: x\n": "line 1: "} {
		if err := Decode([]byte(text), &v); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: no text panics, and none takes memory out of proportion.
func FuzzParse(f *testing.F) {
	f.Add("a: 1\nb:\n  - {c: [1, 2]}\n")
	f.Add("? - a\n: b\n")
	f.Add("a: |\n  x\n--- \n...\n")
	for _, text := range deep {
		f.Add(text(40))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4000 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Parse([]byte(text))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(20_000*len(text)+16<<20) {
			t.Errorf("%d bytes allocated for %q", used, text)
		}
	})
}
