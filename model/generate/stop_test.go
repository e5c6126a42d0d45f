package generate

import (
	"strings"
	"testing"
)

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		name, pieces string // separated by |
		stops        string
		text, stop   string
	}{
		{"none", "a|b", "", "ab", ""},
		{"whole", "a stop b", "stop", "a ", "stop"},
		{"over pieces", "a st|o|p b", "stop", "a ", "stop"},
		{"almost", "a st|o|op", "stop", "a stoop", ""},
		{"at the end", "ab|c", "cd", "abc", ""},
		{"begins again", "aab|aac", "aac", "aab", "aac"},
		{"overlap", "aa|aab", "aab", "aa", "aab"},
		{"first of two", "x one two", "two|one", "x ", "one"},
		{"inside of another", "abc", "b|abc", "", "abc"},
		{"newline", "a\n|\nb", "\n\n", "a", "\n\n"},
		{"characters", "é|–|x", "–x", "é", "–x"},
		{"at once", "stop", "stop", "", "stop"},
	} {
		s := stopper{}
		if c.stops != "" {
			s.stops = strings.Split(c.stops, "|")
		}
		text, stop := "", ""
		for piece := range strings.SplitSeq(c.pieces, "|") {
			var part string
			if part, stop = s.add(piece); stop != "" {
				text += part
				break
			}
			text += part
		}
		text += s.rest()
		if text != c.text || stop != c.stop {
			t.Errorf("%s: %q, ended by %q, want %q, %q", c.name, text, stop, c.text, c.stop)
		}
	}
}
