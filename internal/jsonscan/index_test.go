package jsonscan

import (
	"fmt"
	"strings"
	"testing"
)

// TestIndex: the Index has the same ends as reading has, and its parts begin where elements do.
func TestIndex(t *testing.T) {
	list := func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element, n), ",") }
	many := 2*PartElements + 5
	for _, test := range []struct {
		name, text string
		entries    int // of the Index
	}{
		{"small", `{"a": [1, 2]}`, 0},
		{"empty", `[]`, 0},
		{"spaces", "[" + strings.Repeat(" ", indexedBytes) + "]", 1},
		{"array", " [ " + list(many, "\n \"a b\" ,") + " ] ", 1},
		{"object", `{` + list(many, `"\"}" : 7,`) + `}`, 1},
		{"whole parts", `[` + list(2*PartElements, `[],`) + `]`, 1},
		{"nested", `{"model": {"vocab": {` + list(many, `"x":{"y":[1]},`) + `}, "merges": [` + list(many, `["a","b"],`) + `]}}`, 4},
	} {
		text := []byte(test.text)
		s := New(text, func(pos int, msg string) error { return fmt.Errorf("%d: %s", pos, msg) })
		start := s.Space()
		ix, err := s.Index("it")
		if err != nil || len(ix) != test.entries {
			t.Errorf("%s: %d entries, want %d; %v", test.name, len(ix), test.entries, err)
		}
		for at := range ix {
			if got, want := ix.End(text, at), End(text, at); got != want {
				t.Errorf("%s: the value at %d ends at %d, want %d", test.name, at, got, want)
			}
			checkParts(t, test.name, text, at, ix)
		}
		checkParts(t, test.name, text, start, ix)
	}
}

func checkParts(t *testing.T, name string, text []byte, start int, ix Index) {
	t.Helper()
	parts, n := ix.Parts(text, start), 0
	for k, v := range Elements(text, start, End(text, start), nil) {
		at := v
		if k >= 0 {
			at = k
		}
		i := n / PartElements
		if i >= len(parts) {
			t.Errorf("%s: element %d is in none of %d parts", name, n, len(parts))
			return
		}
		if p := parts[i]; n == p.First && at != p.At || n >= p.First+p.Count {
			t.Errorf("%s: element %d at %d, part %d is %+v", name, n, at, i, p)
		}
		n++
	}
	if want := (n + PartElements - 1) / PartElements; len(parts) != want {
		t.Errorf("%s: %d parts, want %d", name, len(parts), want)
	}
}
