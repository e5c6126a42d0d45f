// Package pattern matches the names of tensors: in rules, in gates and on the command line.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/lowbit-go/gq/internal/suggest"
)

// regexpMark starts a pattern that is a regular expression.
const regexpMark = "re:"

// Pattern matches names of tensors. It is one of
//
//   - the exact name of a tensor ("lm_head.weight"), or of the module whose weight it is
//     ("lm_head"),
//   - a glob, in which * is any text, ? any character, [abc] one of these and \[ a bracket
//     ("*.q_proj"),
//   - "re:" and a regular expression in Go's RE2 syntax ("re:.*\.(v|down)_proj").
//
// A glob and a regular expression match if they match the whole name of the tensor or of its
// module.
type Pattern struct {
	text string
	re   *regexp.Regexp // nil: exact
}

// Parse reads a pattern.
func Parse(s string) (Pattern, error) {
	if s == "" || s == regexpMark {
		return Pattern{}, errors.New("no name to match")
	}
	p := Pattern{text: s}
	expr, isRegexp := strings.CutPrefix(s, regexpMark)
	switch {
	case isRegexp:
		// The expression alone first: its parentheses must close before the anchors are put around
		// it.
		if _, err := regexp.Compile(expr); err != nil {
			return Pattern{}, fmt.Errorf("not a regular expression: %w", err)
		}
	case strings.ContainsAny(s, `*?[\`):
		expr = globExpression(s)
	default:
		return p, nil
	}
	var err error
	if p.re, err = regexp.Compile(`\A(?s:` + expr + `)\z`); err != nil {
		return Pattern{}, fmt.Errorf("%q is not a pattern: write \\[ for a bracket that is part of a name", s)
	}
	return p, nil
}

// globExpression translates a glob into a regular expression.
func globExpression(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '\\':
			if i++; i == len(glob) {
				return "[" // does not compile
			}
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		case '[':
			end := strings.IndexByte(glob[i:], ']')
			if end < 2 {
				return "[" // does not compile
			}
			b.WriteString(glob[i : i+end+1])
			i += end
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	return b.String()
}

// Module returns the name of the module whose weight a tensor is: "lm_head" for "lm_head.weight".
// Other names are returned unchanged.
func Module(tensor string) string { return strings.TrimSuffix(tensor, ".weight") }

// Match reports whether the pattern matches the name of a tensor or of its module.
func (p Pattern) Match(tensor string) bool {
	module := Module(tensor)
	if tensor == p.text || module == p.text {
		return true
	}
	return p.re != nil && (p.re.MatchString(tensor) || p.re.MatchString(module))
}

// MatchAny reports whether the pattern matches one of a tensor's names.
func (p Pattern) MatchAny(names ...string) bool {
	for _, n := range names {
		if p.Match(n) {
			return true
		}
	}
	return false
}

// Exact reports whether the pattern is a name, rather than a glob or a regular expression.
func (p Pattern) Exact() bool { return p.re == nil }

// NoMatch continues an error about a pattern that matches none of the names: it suggests the names
// most similar to a misspelt one.
func (p Pattern) NoMatch(names []string) string {
	if !p.Exact() {
		return ""
	}
	known := make([]string, 0, 2*len(names))
	for _, n := range names {
		known = append(known, n)
		if m := Module(n); m != n {
			known = append(known, m)
		}
	}
	return suggest.DidYouMean(p.text, known)
}
