package tokenizer

import (
	"strconv"
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
	err := d.read(n)
	return d, err
}

// read adds a decoder, or the decoders of a Sequence, to d.
func (d *decoder) read(n node) error {
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
		_, err := components(f, "decoders", func(n node) ([]struct{}, error) {
			return make([]struct{}, 1), d.read(n)
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
	token, verbatim, special := t.form(id, false)
	if special {
		return t.Token(id)
	}
	if b, ok := t.appendBytes(nil, token, verbatim); ok {
		return string(b)
	}
	return token
}

// appendBytes appends the bytes for which a token stands; ok is false if it is text.
func (t *Tokenizer) appendBytes(dst []byte, token string, verbatim bool) (b []byte, ok bool) {
	switch t.decoder.bytes {
	case byteFallback:
		b, ok := fallbackByte(token)
		return append(dst, b), ok
	case byteLevelMode:
		if !verbatim {
			return byteLevelBytes(dst, token), true
		}
	}
	return dst, false
}

// form returns a token as the decoder changes it, for the start of a text or not. verbatim: it is
// text, not characters that stand for bytes. special: it is a special token.
func (t *Tokenizer) form(id int32, first bool) (token string, verbatim, special bool) {
	token = t.Token(id)
	if i, ok := t.byID[id]; ok {
		a := &t.added[i]
		if verbatim, special = !a.Normalized, a.Special; a.Normalized {
			token = a.form
		}
	}
	for _, change := range t.decoder.tokens {
		token = change(token, first)
	}
	return token, verbatim, special
}

// Stream decodes tokens one by one.
type Stream struct {
	t       *Tokenizer
	skip    bool   // skip special tokens
	whole   bool   // decode whole groups of byte tokens
	begun   bool   // there was a token
	held    []byte // bytes that may become a character
	group   []byte // with whole: bytes of byte-fallback tokens in a row
	strips  int    // number of characters that decoder.strip may still remove
	scratch []byte
}

// NewStream returns a Stream at the start of a text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skip: skipSpecial, strips: t.decoder.count}
}

// Next takes the next token and returns the text that is certain: a character that is spread over
// several tokens comes when it is complete. Next and Flush together return the same text as Decode,
// except for consecutive byte-fallback tokens that are not UTF-8 together: there Decode, like the
// tokenizers library, returns a U+FFFD per token.
func (s *Stream) Next(id int32) string {
	if s.t.Token(id) == "" {
		return ""
	}
	token, verbatim, special := s.t.form(id, !s.begun)
	if s.skip && special {
		return ""
	}
	s.begun = true
	to := &s.held
	if s.whole && s.t.decoder.bytes == byteFallback {
		to = &s.group
	}
	b, ok := s.t.appendBytes(*to, token, verbatim)
	if !ok {
		return s.Flush() + s.text(token)
	}
	if *to = b; to == &s.group {
		return ""
	}
	return s.take(false)
}

// Flush ends the text, or a run of bytes in the text, and returns the rest.
func (s *Stream) Flush() string {
	if len(s.group) == 0 {
		return s.take(true)
	}
	text := string(s.group)
	if !utf8.ValidString(text) {
		text = strings.Repeat("\uFFFD", len(s.group))
	}
	s.group = s.group[:0]
	return s.text(text)
}

// take returns the certain text of held, or everything at the end.
func (s *Stream) take(end bool) string {
	if len(s.held) == 0 {
		return ""
	}
	var n int
	s.scratch, n = appendText(s.scratch[:0], s.held, end)
	s.held = append(s.held[:0], s.held[n:]...)
	return s.text(string(s.scratch))
}

// text removes the characters that decoder.strip removes.
func (s *Stream) text(text string) string {
	for s.strips > 0 && text != "" {
		rest, ok := strings.CutPrefix(text, s.t.decoder.strip)
		if !ok {
			s.strips = 0
			break
		}
		text = rest
		s.strips--
	}
	return text
}

func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// appendText appends the characters of b and returns the number of bytes used. Unless end is set,
// bytes at the end that may start a character stay. A longest sequence of bytes that starts no
// character becomes a single U+FFFD (Unicode 15, chapter 3.9, "substitution of maximal subparts",
// as in Rust's from_utf8_lossy).
func appendText(dst, b []byte, end bool) ([]byte, int) {
	used := 0
	for used < len(b) {
		rest := b[used:]
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			n = subpart(rest)
			if n == len(rest) && !end && !utf8.FullRune(rest) {
				break
			}
		}
		dst = utf8.AppendRune(dst, r)
		used += n
	}
	return dst, used
}

// subpart returns the length, at least 1, of the longest prefix of b that is a prefix of some
// character. b itself starts no character.
func subpart(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	// b[:n] is full: a character, or wrong in its last byte.
	if n > 1 && utf8.FullRune(b[:n]) {
		n--
	}
	return n
}
