package choice

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/model/text"
)

// The functions of this file do what lm-evaluation-harness does with methods of Python's strings.

// strip is Python's str.strip().
func strip(s string) string { return strings.TrimFunc(s, text.IsSpace) }

// capitalize is Python's str.capitalize().
func capitalize(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToTitle(first)) + strings.ToLower(s[size:])
}

// brackets are remains of WikiHow's markup in HellaSwag.
var brackets = regexp.MustCompile(`\[.*?\]`)

// plainHellaSwag is preprocess in lm_eval/tasks/hellaswag/utils.py.
func plainHellaSwag(s string) string {
	s = strings.ReplaceAll(strip(s), " [title]", ". ")
	return strings.ReplaceAll(brackets.ReplaceAllLiteralString(s, ""), "  ", " ")
}
