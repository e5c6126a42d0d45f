package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer divides pieces of text into smaller ones and may change them.
type preTokenizer interface {
	split(piece string, first bool, m *matcher, out emit) error
}

// readPreTokenizers reads pre_tokenizer as a list, with Sequences flattened.
func readPreTokenizers(n node, depth int) ([]preTokenizer, error) {
	if n.null() {
		return nil, nil
	}
	f := n.fields()
	var p preTokenizer
	switch t := f.typ(); {
	case f.err != nil:
	case t == "Sequence":
		return components(f, "pretokenizers", depth, readPreTokenizers)
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

// known returns a finder for an expression of this package.
func known(src string) finder {
	p, err := compilePattern(src)
	if err != nil {
		panic(err) // an error in this package, which any test finds
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

// readPattern reads a pattern: a string, or an expression, which is not nil then.
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
	if f.optional("behavior").null() {
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
	always bool   // prepend it to every piece
	start  bool   // prepend it to the first piece of the text
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
