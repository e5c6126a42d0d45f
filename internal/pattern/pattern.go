// Package pattern matches the names of tensors: in rules, in gates and on the command line.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/suggest"
)

const regexpMark = "re:"

// Pattern matches names of tensors. A Pattern is
//
//   - the exact name of a tensor ("lm_head.weight"), or of the tensor's module ("lm_head"),
//   - a glob, in which * is any text, ? any character, [abc] any of these and \[ a bracket
//     ("*.q_proj"), or
//   - "re:" and a regular expression in Go's RE2 syntax ("re:.*\.(v|down)_proj").
//
// A glob and a regular expression match the whole name of the tensor or of its module.
type Pattern struct {
	text string
	glob bool           // of * and ? alone, without a regular expression
	re   *regexp.Regexp // of other globs, and of "re:"
}

func Parse(s string) (Pattern, error) {
	if s == "" || s == regexpMark {
		return Pattern{}, errors.New("no name to match")
	}
	p := Pattern{text: s}
	expr, isRegexp := strings.CutPrefix(s, regexpMark)
	switch {
	case isRegexp:
		// The expression alone first: its parentheses must close without the anchors.
		if _, err := regexp.Compile(expr); err != nil {
			return Pattern{}, fmt.Errorf("not a regular expression: %w", err)
		}
	case strings.ContainsAny(s, `[\`):
		expr = globExpression(s)
	default:
		p.glob = strings.ContainsAny(s, "*?")
		return p, nil
	}
	var err error
	if p.re, err = regexp.Compile(`\A(?s:` + expr + `)\z`); err != nil {
		return Pattern{}, fmt.Errorf("%q is not a pattern: write \\[ for a bracket that is part of a name", s)
	}
	return p, nil
}

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

// Module returns the name of a tensor's module: "lm_head" for "lm_head.weight"; else the same name.
func Module(tensor string) string { return strings.TrimSuffix(tensor, ".weight") }

func (p Pattern) Match(tensor string) bool {
	module := Module(tensor)
	if tensor == p.text || module == p.text {
		return true
	}
	switch {
	case p.glob:
		return matchGlob(p.text, tensor) || len(module) < len(tensor) && matchGlob(p.text, module)
	case p.re != nil:
		return p.re.MatchString(tensor) || p.re.MatchString(module)
	}
	return false
}

// matchGlob matches all of the name with a glob of * and ?. If the text after a * does not match,
// that * takes a further character; earlier stars need not change.
func matchGlob(glob, name string) bool {
	star, rest := -1, "" // the glob after the last *, and the name that the * has not taken
	for at := 0; ; {
		switch {
		case at < len(glob) && glob[at] == '*':
			at++
			star, rest = at, name
		case at == len(glob) && name == "":
			return true
		case at < len(glob) && name != "" && glob[at] == '?':
			_, n := utf8.DecodeRuneInString(name)
			at, name = at+1, name[n:]
		case at < len(glob) && name != "" && glob[at] == name[0]:
			at, name = at+1, name[1:]
		case star < 0 || rest == "":
			return false
		default:
			_, n := utf8.DecodeRuneInString(rest)
			rest = rest[n:]
			at, name = star, rest
		}
	}
}

func (p Pattern) MatchAny(names ...string) bool {
	return slices.ContainsFunc(names, p.Match)
}

// MatchAny reports whether a valid pattern matches any of the names.
func MatchAny(match string, names ...string) bool {
	p, err := Parse(match)
	return err == nil && p.MatchAny(names...)
}

// Exact reports whether the pattern is a name, rather than a glob or a regular expression.
func (p Pattern) Exact() bool { return !p.glob && p.re == nil }

// NoMatch continues an error about a pattern that matches none of the names, and suggests names
// like a misspelt name, or the pattern with its words in the names' spelling.
func NoMatch(match string, names []string) string {
	p, err := Parse(match)
	if err != nil {
		return ""
	}
	if !p.Exact() {
		return p.similar(names)
	}
	known := make([]string, 0, 2*len(names))
	for _, n := range names {
		known = append(known, n)
		if m := Module(n); m != n {
			known = append(known, m)
		}
	}
	return suggest.DidYouMean(match, known)
}

// words find the parts of names and patterns that may be misspelt, large parts first.
var words = []*regexp.Regexp{regexp.MustCompile(`\w+`), regexp.MustCompile(`[A-Za-z0-9]+`)}

// similar is NoMatch for a glob or a regular expression, and suggests only a pattern that matches.
func (p Pattern) similar(names []string) string {
	names = names[:min(len(names), 10_000)] // each attempt reads all names
	all := strings.Join(names, "\n")
	expr, isRegexp := strings.CutPrefix(p.text, regexpMark)
	// A word may be a part of a name's word, or not; and several words may be as near.
	for attempt := range 6 {
		like := expr
		for _, word := range words {
			known := slices.Compact(slices.Sorted(slices.Values(word.FindAllString(all, -1))))
			like = word.ReplaceAllStringFunc(like, func(w string) string {
				near := suggest.Nearest(w, known)
				if len(near) == 0 || slices.Contains(known, w) || attempt < 3 && strings.Contains(all, w) {
					return w
				}
				return near[min(attempt%3, len(near)-1)]
			})
		}
		if isRegexp {
			like = regexpMark + like
		}
		if q, err := Parse(like); err == nil && like != p.text && slices.ContainsFunc(names, q.Match) {
			return fmt.Sprintf("; did you mean %q?", like)
		}
	}
	return ""
}
