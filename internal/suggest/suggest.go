// Package suggest finds what a user probably meant by a misspelt name.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xrash/smetrics"
)

const most = 3

// Nearest returns at most three of the known names, the most similar first: names within an edit
// distance of a third of the word's length (at least 2, at most 5), ignoring case, and names that
// contain the word. Names of equal distance keep their order.
func Nearest(word string, known []string) []string {
	type scored struct {
		name     string
		distance int
	}
	if word == "" {
		return nil
	}
	var list []scored
	lower := strings.ToLower(word)
	limit := min(max(2, len(word)/3), 5)
	for _, name := range known {
		candidate := strings.ToLower(name)
		d := limit + 1
		if diff := len(lower) - len(candidate); max(diff, -diff) <= limit {
			d = smetrics.WagnerFischer(lower, candidate, 1, 1, 1)
		}
		switch {
		case d <= limit && d < len(word):
		case len(word) >= 3 && strings.Contains(candidate, lower):
			d = limit + 1
		default:
			continue
		}
		list = append(list, scored{name, d})
	}
	slices.SortStableFunc(list, func(a, b scored) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, s := range list {
		if len(names) < most && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

// DidYouMean continues an error about an unknown word: `; did you mean "search"?`, or nothing if no
// known name is similar.
func DidYouMean(word string, known []string) string {
	names := Nearest(word, known)
	for i, n := range names {
		names[i] = fmt.Sprintf("%q", n)
	}
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return "; did you mean " + names[0] + "?"
	default:
		return "; did you mean " + strings.Join(names[:n-1], ", ") + " or " + names[n-1] + "?"
	}
}

// Unknown is the error for a word that is not among the known names: `unknown algorithm "serach":
// use one of rtn, search; did you mean "search"?`.
func Unknown(kind, word string, known []string) error {
	return fmt.Errorf("unknown %s %q: use one of %s%s", kind, word, strings.Join(known, ", "), DidYouMean(word, known))
}
