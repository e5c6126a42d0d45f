package tokenizer

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer changes a text before the division into words.
type normalizer func(text string, m *matcher) (string, error)

func readNormalizers(n node) ([]normalizer, error) {
	if n.null() {
		return nil, nil
	}
	f := n.fields()
	t := f.typ()
	if f.err != nil {
		return nil, f.err
	}
	var fn normalizer
	switch t {
	case "Sequence":
		return components(f, "normalizers", readNormalizers)
	case "Prepend":
		fn = prepend(readContent(f, "prepend"))
	case "Replace":
		fn = readReplace(f)
	case "NFC", "NFD", "NFKC", "NFKD":
		fn = unicodeForm(map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}[t])
	case "Lowercase":
		fn = always(lowercase)
	case "Strip":
		fn = strip(f.optionalBool("strip_left", false), f.optionalBool("strip_right", false))
	case "StripAccents":
		fn = always(stripAccents)
	case "ByteLevel":
		fn = always(func(s string) string { return string(appendByteLevel(nil, s)) })
	default:
		return nil, n.unsupported("normalizer %q is not supported", t)
	}
	if f.err != nil {
		return nil, f.err
	}
	return []normalizer{fn}, nil
}

func always(fn func(string) string) normalizer {
	return func(s string, _ *matcher) (string, error) { return fn(s), nil }
}

func prepend(prefix string) normalizer {
	return always(func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	})
}

func strip(left, right bool) normalizer {
	return always(func(s string) string {
		if left {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		if right {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s
	})
}

// readReplace reads the normalizer Replace. Its content is literal: $1 is not a reference.
func readReplace(f *fields) normalizer {
	s, p := readPattern(f, "pattern")
	content := readContent(f, "content")
	if p == nil {
		return func(text string, _ *matcher) (string, error) {
			if len(content) > len(s) && strings.Count(text, s)*(len(content)-len(s)) > growth(len(text)) {
				return "", errGrowth
			}
			return strings.ReplaceAll(text, s, content), nil
		}
	}
	return func(text string, m *matcher) (string, error) { return p.replace(text, content, m) }
}

func readContent(f *fields, key string) string {
	s := f.str(key)
	if len(s) > maxContent {
		f.fail(f.m[key].unsupported("a text of %d bytes to put in, more than %d", len(s), maxContent))
	}
	return s
}

// maxContent bounds readContent. Real files have a single character.
const maxContent = 256

func (p *pattern) replace(text, content string, m *matcher) (string, error) {
	var out []byte
	err := matches(p).spans(text, m, func(sp span) error {
		if sp.match {
			out = append(out, content...)
		} else {
			out = append(out, text[sp.start:sp.end]...)
		}
		if len(out) > growth(len(text)) {
			return errGrowth
		}
		return nil
	})
	return string(out), err
}

// lowercase maps each character by itself. Only U+0130 becomes two characters (SpecialCasing.txt).
func lowercase(s string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == 0x130 {
			return r
		}
		return unicode.ToLower(r)
	}, s), "\u0130", "i\u0307")
}

func stripAccents(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.M, r) {
			return -1
		}
		return r
	}, s)
}

// maxMarks is the number of consecutive combining characters that package norm leaves alone. For
// Unicode's stream-safe format, package norm inserts U+034F into a longer run; no tokenizer does.
const maxMarks = 30

func unicodeForm(form norm.Form) normalizer {
	return always(func(s string) string {
		if form.IsNormalString(s) {
			return s
		}
		if manyMarks(s) {
			return normalizeMarks(form, s)
		}
		return form.String(s)
	})
}

// manyMarks reports whether a run of combining characters in s may be too long for package norm. A
// character's decomposition has at most four characters.
func manyMarks(s string) bool {
	run := 0
	for i, r := range s {
		if r < 0x300 {
			run = 0
			continue
		}
		p := norm.NFKD.PropertiesString(s[i:])
		if p.CCC() == 0 && p.LeadCCC() == 0 && p.TrailCCC() == 0 {
			run = 0
			continue
		}
		if run++; run > maxMarks/4 {
			return true
		}
	}
	return false
}

type postProcessor struct {
	before, after []int32
}

// readPostProcessor reads post_processor. ByteLevel affects only offsets; this package has none.
func readPostProcessor(n node) (postProcessor, error) {
	if n.null() {
		return postProcessor{}, nil
	}
	all, err := readPostProcessors(n)
	var p postProcessor
	for _, q := range all {
		p.before = append(slices.Clone(q.before), p.before...)
		p.after = append(p.after, q.after...)
	}
	return p, err
}

func readPostProcessors(n node) ([]postProcessor, error) {
	f := n.fields()
	switch t := f.typ(); {
	case f.err != nil:
		return nil, f.err
	case t == "Sequence":
		return components(f, "processors", readPostProcessors)
	case t == "ByteLevel":
		return nil, nil
	case t == "TemplateProcessing":
		p, err := readTemplate(f)
		return []postProcessor{p}, err
	default:
		return nil, n.unsupported("post-processor %q is not supported", t)
	}
}

// readTemplate reads the template for a single text and ignores the template for pairs of texts.
func readTemplate(f *fields) (p postProcessor, err error) {
	single := f.child("single")
	tokens := map[string]node{}
	if special := f.m["special_tokens"]; f.err == nil && !special.null() {
		tokens, f.err = special.object()
	}
	if f.err == nil {
		f.fail(single.array())
	}
	if f.err != nil {
		return p, f.err
	}
	texts := 0
	for _, e := range single.elements() {
		piece := e.fields()
		if piece.err != nil {
			return p, piece.err
		}
		if _, ok := piece.m["Sequence"]; ok {
			seq := piece.child("Sequence").fields()
			if id := seq.str("id"); seq.err == nil && id != "A" {
				seq.fail(e.malformed("the sequence %q in a template for one text", id))
			}
			if seq.err != nil {
				return p, seq.err
			}
			texts++
			continue
		}
		ids, err := readSpecial(piece, tokens)
		if err != nil {
			return p, err
		}
		if texts == 0 {
			p.before = append(p.before, ids...)
		} else {
			p.after = append(p.after, ids...)
		}
		if len(p.before)+len(p.after) > maxComponents {
			return p, single.malformed("more than %d tokens", maxComponents)
		}
	}
	if texts != 1 {
		return p, single.unsupported("a template with the text %d times", texts)
	}
	return p, nil
}

// readSpecial reads {"SpecialToken": {"id": name}} and looks up the name.
func readSpecial(piece *fields, tokens map[string]node) ([]int32, error) {
	ref := piece.child("SpecialToken")
	if piece.err != nil {
		return nil, piece.err
	}
	f := ref.fields()
	name := f.str("id")
	if f.err != nil {
		return nil, f.err
	}
	def, ok := tokens[name]
	if !ok {
		return nil, ref.malformed("special_tokens does not have %q", name)
	}
	d := def.fields()
	return required(d, "ids", node.integers), d.err
}
