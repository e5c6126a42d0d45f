package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizeMarks is form.String for runs of combining characters of any length, by the algorithm of
// chapter 3.11 of the Unicode standard. It is much slower.
func normalizeMarks(form norm.Form, s string) string {
	decomposition := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decomposition = norm.NFKD
	}
	runes := make([]rune, 0, len(s))
	for i, w := 0, 0; i < len(s); i += w {
		_, w = utf8.DecodeRuneInString(s[i:])
		for _, r := range decomposition.String(s[i : i+w]) {
			runes = append(runes, r)
		}
	}
	// Canonical ordering: a stable sort by combining class between characters of class 0.
	for i := 0; i < len(runes); {
		end := i + 1
		if combining(runes[i]) != 0 {
			for end < len(runes) && combining(runes[end]) != 0 {
				end++
			}
			slices.SortStableFunc(runes[i:end], func(a, b rune) int { return int(combining(a)) - int(combining(b)) })
		}
		i = end
	}
	if form == norm.NFC || form == norm.NFKC {
		runes = compose(runes)
	}
	return string(runes)
}

func combining(r rune) uint8 {
	if r < 0x300 {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// compose is canonical composition, in place: a character joins the last character of class 0
// unless a character of the same or a higher class is in between.
func compose(runes []rune) []rune {
	out := runes[:0]
	starter := -1
	var lastClass uint8
	for _, r := range runes {
		c := combining(r)
		blocked := starter < len(out)-1 && lastClass >= c
		if starter >= 0 && !blocked {
			if joined := composePair(out[starter], r); joined >= 0 {
				out[starter] = joined
				continue
			}
		}
		out = append(out, r)
		if lastClass = c; c == 0 {
			starter = len(out) - 1
		}
	}
	return out
}

// composePair returns the primary composite of a and b, or -1.
func composePair(a, b rune) rune {
	if b < 0x300 {
		return -1
	}
	s := norm.NFC.String(string(a) + string(b))
	if r, n := utf8.DecodeRuneInString(s); n == len(s) {
		return r
	}
	return -1
}
