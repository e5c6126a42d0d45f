package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// AddedToken is an entry of added_tokens: text that is a single token wherever it occurs.
type AddedToken struct {
	ID         int32
	Content    string
	Special    bool // may be omitted in decoding
	Normalized bool // found in the normalized text
}

type addedToken struct {
	AddedToken
	form       string // the normalized content, if normalized
	singleWord bool   // not next to characters of words
	lstrip     bool   // includes preceding white space
	rstrip     bool   // includes following white space
}

// maxAdded bounds the length of an added token and so, with the length of the text, the time to
// find all added tokens. The longest known token has 93 bytes.
const maxAdded = 1024

// maxAddedBytes bounds the length of all added tokens together: a trie takes 50 bytes per byte.
// Gemma 3 has 85,000 bytes.
const maxAddedBytes = 1 << 22

func readAdded(n node) ([]addedToken, error) {
	if n.null() {
		return nil, nil
	}
	if err := n.array(); err != nil {
		return nil, err
	}
	var list []addedToken
	total := 0
	for _, e := range n.elements() {
		f := e.fields()
		t := addedToken{AddedToken: AddedToken{ID: f.integer("id"), Content: f.str("content")}}
		t.singleWord = f.optionalBool("single_word", false)
		t.lstrip = f.optionalBool("lstrip", false)
		t.rstrip = f.optionalBool("rstrip", false)
		t.Special = f.optionalBool("special", false)
		t.Normalized = f.optionalBool("normalized", !t.Special)
		switch {
		case f.err != nil:
			return nil, f.err
		case len(t.Content) > maxAdded:
			return nil, e.unsupported("an added token of %d bytes, more than %d", len(t.Content), maxAdded)
		case total+len(t.Content) > maxAddedBytes:
			return nil, n.unsupported("added tokens of more than %d bytes", maxAddedBytes)
		case t.Content == "": // matches nothing; the library ignores such a token too
			continue
		}
		total += len(t.Content)
		list = append(list, t)
	}
	return list, nil
}

// trie finds the added tokens of a kind. Nodes are numbers; the root is 0.
type trie struct {
	root  [256]int32 // the root's children, 0 for none
	next  map[trieKey]int32
	token []int32 // by node: index of the added token, or -1
}

type trieKey struct {
	node int32
	b    byte
}

func (t *trie) add(s string, token int32) {
	if t.token == nil {
		t.token, t.next = []int32{-1}, map[trieKey]int32{}
	}
	at := int32(0)
	for i := range len(s) {
		to := t.child(at, s[i])
		if to == 0 {
			to = int32(len(t.token))
			t.token = append(t.token, -1)
			if at == 0 {
				t.root[s[i]] = to
			} else {
				t.next[trieKey{at, s[i]}] = to
			}
		}
		at = to
	}
	t.token[at] = token
}

func (t *trie) child(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	return t.next[trieKey{node, b}]
}

// longest returns the longest token at the start of s, or -1, and its length.
func (t *trie) longest(s string) (token int32, n int) {
	token = -1
	at := int32(0)
	for i := range len(s) {
		if at = t.child(at, s[i]); at == 0 {
			break
		}
		if t.token[at] >= 0 {
			token, n = t.token[at], i+1
		}
	}
	return token, n
}

// cut calls out for each added token in text, by its index, and for each part between added tokens,
// with token -1 and the offset start. plain reports whether a special token at an offset is text.
func (t *Tokenizer) cut(tr *trie, text string, plain func(offset int) bool, out func(part string, token int32, start int) error) error {
	done := 0 // end of the output so far
	for i := 0; tr.token != nil && i < len(text); {
		if tr.root[text[i]] == 0 {
			i++
			continue
		}
		token, n := tr.longest(text[i:])
		if token < 0 {
			i++
			continue
		}
		a := &t.added[token]
		start, end := i, i+n
		i = end
		if a.Special && plain(start) || a.singleWord && !alone(text, start, end) {
			continue
		}
		if a.lstrip && done < start {
			start = done + len(strings.TrimRightFunc(text[done:start], unicode.IsSpace))
		} else if a.lstrip {
			start = done
		}
		if a.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if done < start {
			if err := out(text[done:start], -1, done); err != nil {
				return err
			}
		}
		if start < end {
			if err := out("", token, start); err != nil {
				return err
			}
		}
		// The search continues at the end of the token itself. As in the library, tokens in the white
		// space of rstrip are found, unless those tokens strip too; the rest of the white space is
		// output.
		done = end
	}
	if done < len(text) {
		return out(text[done:], -1, done)
	}
	return nil
}

// alone reports whether text[start:end] is not next to a word character.
func alone(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return !isWord(before) && !isWord(after)
}

// isWord is Rust's \w. The RuneError at the ends of a text is no word character.
func isWord(r rune) bool {
	return wordInClass().has(r) || r == 0x200C || r == 0x200D
}

// SpecialTokens returns the offsets in text at which the name of a special token begins, also
// inside of another special token: for Options.PlainAt.
func (t *Tokenizer) SpecialTokens(text string) []int {
	var found []int
	for i := range len(text) {
		for _, tr := range []*trie{&t.plainTrie, &t.normalTrie} {
			if tr.token == nil || tr.root[text[i]] == 0 {
				continue
			}
			if token, _ := tr.longest(text[i:]); token >= 0 && t.added[token].Special {
				found = append(found, i)
				break
			}
		}
	}
	return found
}

// normalizeMarks is a much slower form.String for runs of combining characters of any length, by
// the algorithm of chapter 3.11 of the Unicode standard.
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
