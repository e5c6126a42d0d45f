package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON (RFC 8259) from left to right, each byte once, for a caller
// that knows what must come next. encoding/json is not used: it keeps the last of
// duplicate keys, replaces invalid UTF-8, accepts null anywhere, and needs seconds
// and hundreds of megabytes for the header of a large model.
//
// The bytes must be valid UTF-8 as a whole (see checkUTF8); given that, so is every
// string that the scanner returns.
type scanner struct {
	file string // for errors
	base int64  // offset of b[0] in the file, for errors
	b    []byte
	pos  int    // of the next byte to read
	text []byte // the last string that had escapes, decoded
}

// fail returns a FormatError for position pos of b.
func (s *scanner) fail(pos int, format string, args ...any) error {
	return &FormatError{File: s.file, Offset: s.base + int64(pos), Msg: fmt.Sprintf(format, args...)}
}

// checkUTF8 verifies the encoding of all of b.
func (s *scanner) checkUTF8() error {
	if utf8.Valid(s.b) {
		return nil
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(s.b[i:])
		if r == utf8.RuneError && n <= 1 {
			return s.fail(i, "invalid UTF-8")
		}
		i += n
	}
}

// peek skips white space and returns the next byte without reading it; 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// found describes the next byte for an error message.
func (s *scanner) found() string {
	if s.peek() == 0 && s.pos >= len(s.b) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.b[s.pos:])
	return fmt.Sprintf("%q", r)
}

// expect reads the byte c, after white space. what says what begins or goes on there.
func (s *scanner) expect(c byte, what string) error {
	if s.peek() != c {
		return s.fail(s.pos, "expected %q for %s, found %s", c, what, s.found())
	}
	s.pos++
	return nil
}

// end accepts white space up to the end of the input and nothing else.
func (s *scanner) end(what string) error {
	if s.peek(); s.pos < len(s.b) {
		return s.fail(s.pos, "%s is followed by %s", what, s.found())
	}
	return nil
}

// object reads an object. For each key it calls member, which reads the value; key
// is valid until the next string is read, and at is the key's position.
func (s *scanner) object(what string, member func(key []byte, at int) error) error {
	if err := s.expect('{', what); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.peek()
		at := s.pos
		key, err := s.string(what)
		if err != nil {
			return err
		}
		if err := s.expect(':', what); err != nil {
			return err
		}
		if err := member(key, at); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.fail(s.pos, "expected ',' or '}' in %s, found %s", what, s.found())
		}
	}
}

// integers reads an array of integers and calls add for each.
func (s *scanner) integers(what string, add func(v int64, at int) error) error {
	if err := s.expect('[', what); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		s.peek()
		at := s.pos
		v, err := s.integer(what)
		if err != nil {
			return err
		}
		if err := add(v, at); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.fail(s.pos, "expected ',' or ']' in %s, found %s", what, s.found())
		}
	}
}

// integer reads a number that must be an integer of 0 .. 2^63-1 in plain decimal
// digits: no sign, fraction, exponent or leading zero.
func (s *scanner) integer(what string) (int64, error) {
	s.peek()
	at := s.pos
	var v int64
	for ; s.pos < len(s.b) && '0' <= s.b[s.pos] && s.b[s.pos] <= '9'; s.pos++ {
		d := int64(s.b[s.pos] - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, s.fail(at, "a number in %s does not fit in 63 bits", what)
		}
		if v == 0 && s.pos > at {
			return 0, s.fail(at, "a number in %s has a leading zero", what)
		}
		v = v*10 + d
	}
	if s.pos == at {
		return 0, s.fail(at, "expected an integer of at least 0 in %s, found %s", what, s.found())
	}
	if s.pos < len(s.b) {
		switch s.b[s.pos] {
		case '.', 'e', 'E':
			return 0, s.fail(at, "a number in %s is not written as an integer", what)
		}
	}
	return v, nil
}

// string reads a string and returns it decoded, valid until the next call.
func (s *scanner) string(what string) ([]byte, error) {
	if err := s.expect('"', what); err != nil {
		return nil, err
	}
	start := s.pos
	for i, c := range s.b[start:] {
		switch {
		case c == '"':
			s.pos = start + i + 1
			return s.b[start : start+i], nil
		case c == '\\':
			s.text = append(s.text[:0], s.b[start:start+i]...)
			s.pos = start + i
			return s.escaped(start, what)
		case c < ' ':
			return nil, s.fail(start+i, "control character 0x%02x in %s", c, what)
		}
	}
	return nil, s.fail(start-1, "%s does not end", what)
}

// escaped reads the rest of a string from its first backslash on; s.text holds what
// came before, start is the position of the string's content.
func (s *scanner) escaped(start int, what string) ([]byte, error) {
	for s.pos < len(s.b) {
		c := s.b[s.pos]
		switch {
		case c == '"':
			s.pos++
			return s.text, nil
		case c < ' ':
			return nil, s.fail(s.pos, "control character 0x%02x in %s", c, what)
		case c != '\\':
			s.text = append(s.text, c)
			s.pos++
		default:
			if err := s.escape(what); err != nil {
				return nil, err
			}
		}
	}
	return nil, s.fail(start-1, "%s does not end", what)
}

// escape reads one escape sequence and appends what it stands for to s.text.
func (s *scanner) escape(what string) error {
	at := s.pos
	if s.pos+1 >= len(s.b) {
		return s.fail(at, "%s does not end", what)
	}
	c := s.b[s.pos+1]
	s.pos += 2
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := s.hex4()
		if ok && utf16.IsSurrogate(r) {
			ok = bytes.HasPrefix(s.b[s.pos:], []byte(`\u`))
			if ok {
				s.pos += 2
				var low rune
				low, ok = s.hex4()
				r = utf16.DecodeRune(r, low) // U+FFFD unless the two are a pair
				ok = ok && r != utf8.RuneError
			}
		}
		if !ok {
			return s.fail(at, `%s has a \u escape that stands for no character`, what)
		}
		s.text = utf8.AppendRune(s.text, r)
		return nil
	default:
		return s.fail(at, "%s has an unknown escape", what)
	}
	s.text = append(s.text, c)
	return nil
}

// hex4 reads four hexadecimal digits.
func (s *scanner) hex4() (r rune, ok bool) {
	if len(s.b)-s.pos < 4 {
		return 0, false
	}
	for _, c := range s.b[s.pos : s.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.pos += 4
	return r, true
}

// maxDepth is how deeply values that are skipped may be nested. Writers put
// {"total_size": N} there, which is 1.
const maxDepth = 64

// skip reads any value and forgets it.
func (s *scanner) skip(what string, depth int) error {
	switch c := s.peek(); {
	case depth > maxDepth:
		return s.fail(s.pos, "%s is nested more than %d deep", what, maxDepth)
	case c == '{':
		return s.object(what, func([]byte, int) error { return s.skip(what, depth+1) })
	case c == '[':
		return s.skipArray(what, depth)
	case c == '"':
		_, err := s.string(what)
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.skipNumber(what)
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(s.b[s.pos:], []byte(word)) {
			s.pos += len(word)
			return nil
		}
	}
	return s.fail(s.pos, "expected a value in %s, found %s", what, s.found())
}

func (s *scanner) skipArray(what string, depth int) error {
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := s.skip(what, depth+1); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.fail(s.pos, "expected ',' or ']' in %s, found %s", what, s.found())
		}
	}
}

// skipNumber reads -? int frac? exp? (RFC 8259 section 6); index files have sizes
// such as 16060522496.0.
func (s *scanner) skipNumber(what string) error {
	at := s.pos
	digits := func() bool {
		start := s.pos
		for s.pos < len(s.b) && '0' <= s.b[s.pos] && s.b[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > start
	}
	one := func(set string) bool {
		if s.pos < len(s.b) && bytes.IndexByte([]byte(set), s.b[s.pos]) >= 0 {
			s.pos++
			return true
		}
		return false
	}
	one("-")
	ok := one("0") || digits()
	if ok && one(".") {
		ok = digits()
	}
	if ok && one("eE") {
		one("+-")
		ok = digits()
	}
	if !ok {
		return s.fail(at, "malformed number in %s", what)
	}
	return nil
}
