package tokenizer

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/jsonscan"
)

// preTokenizer divides pieces of text into smaller pieces and may change the text.
type preTokenizer interface {
	split(piece string, first bool, m *matcher, out emit) error
}

// readPreTokenizers reads pre_tokenizer as a list, with Sequences flattened.
func readPreTokenizers(n node) ([]preTokenizer, error) {
	if n.null() {
		return nil, nil
	}
	f := n.fields()
	var p preTokenizer
	switch t := f.typ(); {
	case f.err != nil:
	case t == "Sequence":
		return components(f, "pretokenizers", readPreTokenizers)
	case t == "Split":
		p = &splitter{readFinder(f, "pattern"), readBehavior(f), f.optionalBool("invert", false)}
	case t == "ByteLevel":
		b := &byteLevel{prefix: f.optionalBool("add_prefix_space", true)}
		if f.optionalBool("use_regex", true) {
			b.words = &splitter{find: known(gpt2Pattern)}
		}
		p = b
	case t == "Metaspace":
		p = readMetaspace(f)
	case t == "Digits":
		s := &splitter{find: characters(unicode.IsNumber), behavior: contiguous}
		if f.optionalBool("individual_digits", false) {
			s.behavior = isolated
		}
		p = s
	case t == "Punctuation":
		p = &splitter{find: characters(isPunctuation), behavior: readBehavior(f)}
	case t == "Whitespace":
		// Rust's \w has the zero-width joiners too, unlike Oniguruma's.
		p = &splitter{find: known(`[\w\u200C\u200D]+|[^\w\s\u200C\u200D]+`), behavior: removed, invert: true}
	case t == "WhitespaceSplit":
		p = &splitter{find: characters(unicode.IsSpace), behavior: removed}
	default:
		return nil, n.unsupported("pre-tokenizer %q is not supported", t)
	}
	if f.err != nil {
		return nil, f.err
	}
	return []preTokenizer{p}, nil
}

func known(src string) finder {
	p, err := compilePattern(src)
	if err != nil {
		panic(err) // an error in this package that any test finds
	}
	return matches(p)
}

// readFinder reads {"String": ...} or {"Regex": ...}.
func readFinder(f *fields, key string) finder {
	s, p := readPattern(f, key)
	switch {
	case f.err != nil:
		return nil
	case p != nil:
		return matches(p)
	}
	return literals(s)
}

// readPattern reads a pattern: a string, or an expression that is not nil.
func readPattern(f *fields, key string) (string, *pattern) {
	n := f.child(key)
	if f.err != nil {
		return "", nil
	}
	sub := n.fields()
	kind := "String"
	if _, ok := sub.m["Regex"]; ok {
		kind = "Regex"
	}
	s := sub.str(kind)
	if sub.err == nil && s == "" {
		sub.fail(sub.m[kind].malformed("is an empty pattern"))
	}
	if sub.err != nil || kind == "String" {
		f.fail(sub.err)
		return s, nil
	}
	p, err := compilePattern(s)
	if err != nil {
		f.fail(patternFault(sub.m[kind], err))
	}
	return "", p
}

func patternFault(n node, err error) error {
	if e, ok := err.(*patternError); ok && e.unsupported {
		return n.unsupported("%v", err)
	}
	return n.malformed("%v", err)
}

func readBehavior(f *fields) behavior {
	if f.m["behavior"].null() {
		return isolated
	}
	name := f.str("behavior")
	b, ok := behaviors[name]
	if !ok && f.err == nil {
		f.fail(f.m["behavior"].malformed("no behavior is called %q", name))
	}
	return b
}

// isPunctuation reports whether r is ASCII punctuation, including symbols, or of category P.
func isPunctuation(r rune) bool {
	return unicode.IsPunct(r) || r < utf8.RuneSelf && unicode.IsSymbol(r)
}

// metaspace replaces spaces by another character, as sentencepiece does.
type metaspace struct {
	space  string // the replacement
	always bool   // the replacement comes before every piece
	start  bool   // the replacement comes before the first piece of the text
	words  *splitter
}

func readMetaspace(f *fields) *metaspace {
	space, scheme := metaspaceScheme(f)
	m := &metaspace{space: space, always: scheme == "always", start: scheme == "first"}
	if f.optionalBool("split", true) && f.err == nil {
		m.words = &splitter{find: literals(space), behavior: mergedWithNext}
	}
	return m
}

// metaspaceScheme reads the common settings of pre-tokenizer and decoder.
func metaspaceScheme(f *fields) (space, scheme string) {
	space, scheme = f.str("replacement"), f.optionalStr("prepend_scheme")
	if f.err == nil && utf8.RuneCountInString(space) != 1 {
		f.fail(f.m["replacement"].malformed("is not one character"))
	}
	prefix := f.optionalBool("add_prefix_space", true)
	switch {
	case f.err != nil:
	case scheme == "" && prefix:
		scheme = "always"
	case scheme == "":
		scheme = "never"
	case scheme != "always" && scheme != "first" && scheme != "never":
		f.fail(f.m["prepend_scheme"].malformed("no scheme is called %q", scheme))
	case !prefix && scheme != "never":
		f.fail(f.malformed("add_prefix_space and prepend_scheme contradict each other"))
	}
	return space, scheme
}

func (s *metaspace) split(piece string, first bool, m *matcher, out emit) error {
	piece = strings.ReplaceAll(piece, " ", s.space)
	if (s.always || s.start && first) && !strings.HasPrefix(piece, s.space) {
		piece = s.space + piece
	}
	if s.words == nil {
		return out(piece, first)
	}
	return s.words.split(piece, first, m, out)
}

// Byte-level tokenizers write each byte of a text as a printable character: printable Latin-1 bytes
// as themselves, the others in order as U+0100 and up (bytes_to_unicode in
// https://github.com/openai/gpt-2, src/encoder.py).

var byteRunes = func() (runes [256]rune) {
	n := rune(256)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = n
			n++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes; -1 for characters that do not stand for a byte.
var runeBytes = func() (bytes [0x144]int16) {
	for r := range bytes {
		bytes[r] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

func appendByteLevel(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRunes[s[i]])
	}
	return dst
}

// byteLevelBytes appends the bytes of a token of byte-level characters, or a token with any other
// character unchanged.
func byteLevelBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst
}

// gpt2Pattern divides a text in the pre-tokenizer ByteLevel if use_regex is set.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

type byteLevel struct {
	prefix bool      // add_prefix_space
	words  *splitter // nil without use_regex
}

func (b *byteLevel) split(piece string, first bool, m *matcher, out emit) error {
	if b.prefix && !strings.HasPrefix(piece, " ") {
		piece = " " + piece
	}
	mapped := func(piece string, first bool) error {
		return out(string(appendByteLevel(make([]byte, 0, 2*len(piece)), piece)), first)
	}
	if b.words == nil {
		return mapped(piece, first)
	}
	return b.words.split(piece, first, m, mapped)
}

// readParts reads the parts of an array or object in up to four goroutines, each with read.
func readParts[T any](list []jsonscan.Part, read func(p jsonscan.Part) (T, error)) ([]T, error) {
	parts := make([]T, len(list))
	err := cpu.Parallel(context.Background(), min(4, cpu.Threads(0)), len(list), func() func(i int) error {
		return func(i int) (err error) {
			parts[i], err = read(list[i])
			return err
		}
	})
	return parts, err
}
