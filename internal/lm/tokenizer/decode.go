package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decoder turns tokens into text. tokenizer.json may chain any decoders, but real files use few
// orders, and only these allow output token by token: changes to each token, then conversion of
// tokens to bytes, then Fuse, then Strip at the start of the text.
type decoder struct {
	tokens []func(token string, first bool) string // Replace, Metaspace, Strip before Fuse
	bytes  byteMode
	fused  bool   // after Fuse
	strip  string // after Fuse: this character,
	count  int    // at most this many times, is removed from the start
	growth int    // the largest factor by which tokens lengthens a token
}

// byteMode is the rule for tokens that stand for bytes.
type byteMode uint8

const (
	noBytes       byteMode = iota
	byteFallback           // tokens named <0x00> to <0xFF>
	byteLevelMode          // all except added tokens that are not normalized: pretokenize.go
)

func readDecoder(n node) (decoder, error) {
	d := decoder{}
	if n.null() { // the library joins tokens by spaces then
		d.tokens = append(d.tokens, func(token string, first bool) string {
			if first {
				return token
			}
			return " " + token
		})
		return d, nil
	}
	err := d.read(n, 0)
	return d, err
}

// read adds a decoder, or the decoders of a Sequence, to d.
func (d *decoder) read(n node, depth int) error {
	f := n.fields()
	t := f.typ()
	if f.err != nil {
		return f.err
	}
	if t != "Sequence" && t != "Fuse" && (d.fused || d.bytes != noBytes) && (t != "Strip" || !d.fused || d.strip != "") {
		return n.unsupported("decoder %q in this place is not supported", t)
	}
	switch t {
	case "Sequence":
		_, err := components(f, "decoders", depth, func(n node, depth int) ([]struct{}, error) {
			return make([]struct{}, 1), d.read(n, depth)
		})
		return err
	case "Replace":
		return d.readReplace(f)
	case "Metaspace":
		space, scheme := metaspaceScheme(f)
		d.tokens = append(d.tokens, func(token string, first bool) string {
			if first && scheme != "never" {
				return strings.ReplaceAll(token, space, "")
			}
			return strings.ReplaceAll(token, space, " ")
		})
	case "Strip":
		return d.readStrip(f)
	case "ByteFallback":
		d.bytes = byteFallback
	case "ByteLevel":
		d.bytes, d.fused = byteLevelMode, true
	case "Fuse":
		d.fused = true
	default:
		return n.unsupported("decoder %q is not supported", t)
	}
	return f.err
}

func (d *decoder) readReplace(f *fields) error {
	s, p := readPattern(f, "pattern")
	content := readContent(f, "content")
	if p != nil {
		f.fail(f.m["pattern"].unsupported("a regular expression in a decoder is not supported"))
	}
	if f.err != nil {
		return f.err
	}
	// A chain of such decoders could lengthen a token without bound.
	if d.growth = max(1, d.growth) * max(1, (len(content)+len(s)-1)/len(s)); d.growth > 16 {
		return f.unsupported("decoders that make a token more than 16 times as long are not supported")
	}
	d.tokens = append(d.tokens, func(token string, _ bool) string { return strings.ReplaceAll(token, s, content) })
	return f.err
}

func (d *decoder) readStrip(f *fields) error {
	content, start, stop := f.str("content"), int(f.integer("start")), int(f.integer("stop"))
	if f.err != nil {
		return f.err
	}
	if utf8.RuneCountInString(content) != 1 {
		return f.m["content"].malformed("is not one character")
	}
	if d.fused {
		if stop != 0 {
			return f.m["stop"].unsupported("stripping the end of the text is not supported")
		}
		d.strip, d.count = content, start
		return nil
	}
	d.tokens = append(d.tokens, func(token string, _ bool) string {
		for i := 0; i < start && strings.HasPrefix(token, content); i++ {
			token = token[len(content):]
		}
		for i := 0; i < stop && strings.HasSuffix(token, content); i++ {
			token = token[:len(token)-len(content)]
		}
		return token
	})
	return nil
}

// Decode returns the text of tokens without unused ids and, with skipSpecial, without special
// tokens. Bytes that are not UTF-8 become U+FFFD. clean_up_tokenization_spaces of
// tokenizer_config.json, for removing spaces, is not applied.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	s.whole = true
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(s.Next(id))
	}
	out.WriteString(s.Flush())
	return out.String()
}

// Bytes returns the bytes, perhaps a part of a character, that a token adds to a text after the
// first token, or "" for an unused id. The bytes of a special token are its name.
func (t *Tokenizer) Bytes(id int32) string {
	token := t.Token(id)
	verbatim := false
	if i, ok := t.byID[id]; ok {
		if a := &t.added[i]; a.special {
			return token
		} else if verbatim = !a.normalized; a.normalized {
			token = a.form
		}
	}
	for _, change := range t.decoder.tokens {
		token = change(token, false)
	}
	switch t.decoder.bytes {
	case byteFallback:
		if b, ok := fallbackByte(token); ok {
			return string([]byte{b})
		}
	case byteLevelMode:
		if !verbatim {
			return string(byteLevelBytes(nil, token))
		}
	}
	return token
}
