package jsonscan

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// MaxDepth is the largest nesting depth of skipped values. Real files reach 8.
const MaxDepth = 100

// A Scanner reads JSON (RFC 8259) from left to right, each byte once; the caller's methods state
// the expected structure. The caller's function makes errors from a position and a message. The
// parameter what names the value being read, for messages.
//
// The bytes must be valid UTF-8 as a whole (see CheckUTF8); given that, so is every string that the
// Scanner returns.
type Scanner struct {
	b       []byte
	pos     int // of the next byte to read
	problem func(pos int, msg string) error
	text    []byte // the last string that had escapes, decoded
	index   Index  // of the value that is skipped; nil: not wanted
}

func New(b []byte, problem func(pos int, msg string) error) *Scanner {
	return &Scanner{b: b, problem: problem}
}

func (s *Scanner) Fail(pos int, format string, args ...any) error {
	return s.problem(pos, fmt.Sprintf(format, args...))
}

// Space skips white space and returns the position of the next byte.
func (s *Scanner) Space() int {
	s.pos = SkipSpace(s.b, s.pos)
	return s.pos
}

func (s *Scanner) CheckUTF8() error {
	if utf8.Valid(s.b) {
		return nil
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(s.b[i:])
		if r == utf8.RuneError && n <= 1 {
			return s.Fail(i, "invalid UTF-8")
		}
		i += n
	}
}

// peek skips white space and returns the next byte without consuming the byte; 0 at the end.
func (s *Scanner) peek() byte {
	if s.Space() < len(s.b) {
		return s.b[s.pos]
	}
	return 0
}

func (s *Scanner) found() string {
	if s.peek() == 0 && s.pos >= len(s.b) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.b[s.pos:])
	return fmt.Sprintf("%q", r)
}

// expect reads the byte c, after white space. what names the value that begins or continues there.
func (s *Scanner) expect(c byte, what string) error {
	if s.peek() != c {
		return s.Fail(s.pos, "expected %q for %s, found %s", c, what, s.found())
	}
	s.pos++
	return nil
}

// End accepts white space up to the end of the input and nothing else.
func (s *Scanner) End(what string) error {
	if s.peek(); s.pos < len(s.b) {
		return s.Fail(s.pos, "%s is followed by %s", what, s.found())
	}
	return nil
}

// Object reads an object. member reads the value of each key; key is valid until the next string is
// read, and at is the key's position.
func (s *Scanner) Object(what string, member func(key []byte, at int) error) error {
	return s.list('{', '}', what, func(at int) error {
		key, err := s.String(what)
		if err == nil {
			err = s.expect(':', what)
		}
		if err != nil {
			return err
		}
		return member(key, at)
	})
}

// Array reads an array. element reads each value; at is the value's position.
func (s *Scanner) Array(what string, element func(at int) error) error {
	return s.list('[', ']', what, element)
}

// list reads elements between brackets. element reads each, at its position.
func (s *Scanner) list(open, end byte, what string, element func(at int) error) error {
	if err := s.expect(open, what); err != nil {
		return err
	}
	if s.peek() == end {
		s.pos++
		return nil
	}
	for {
		if err := element(s.Space()); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case end:
			s.pos++
			return nil
		default:
			return s.Fail(s.pos, "expected ',' or %q in %s, found %s", end, what, s.found())
		}
	}
}

// Integer reads a number that must be an integer of 0 .. 2^63-1 in plain decimal
// digits: no sign, fraction, exponent or leading zero.
func (s *Scanner) Integer(what string) (int64, error) {
	s.peek()
	at := s.pos
	var v int64
	for ; s.pos < len(s.b) && '0' <= s.b[s.pos] && s.b[s.pos] <= '9'; s.pos++ {
		d := int64(s.b[s.pos] - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, s.Fail(at, "a number in %s does not fit in 63 bits", what)
		}
		if v == 0 && s.pos > at {
			return 0, s.Fail(at, "a number in %s has a leading zero", what)
		}
		v = v*10 + d
	}
	if s.pos == at {
		return 0, s.Fail(at, "expected an integer of at least 0 in %s, found %s", what, s.found())
	}
	if s.pos < len(s.b) {
		switch s.b[s.pos] {
		case '.', 'e', 'E':
			return 0, s.Fail(at, "a number in %s is not written as an integer", what)
		}
	}
	return v, nil
}

// String reads a string and returns the decoded string, valid until the next call.
func (s *Scanner) String(what string) ([]byte, error) {
	if err := s.expect('"', what); err != nil {
		return nil, err
	}
	start := s.pos
	end := plain(s.b, start)
	if end < len(s.b) && s.b[end] == '"' {
		s.pos = end + 1
		return s.b[start:end], nil
	}
	s.text = s.text[:0]
	return s.escaped(start, what)
}

// escaped reads a string with escapes into s.text; start is the position of the string's content.
func (s *Scanner) escaped(start int, what string) ([]byte, error) {
	for {
		end := plain(s.b, s.pos)
		s.text = append(s.text, s.b[s.pos:end]...)
		if s.pos = end; end == len(s.b) {
			return nil, s.Fail(start-1, "%s does not end", what)
		}
		switch c := s.b[end]; c {
		case '"':
			s.pos++
			return s.text, nil
		case '\\':
			if err := s.escape(what); err != nil {
				return nil, err
			}
		default:
			return nil, s.Fail(end, "control character 0x%02x in %s", c, what)
		}
	}
}

// escape reads an escape sequence and appends the decoded character to s.text.
func (s *Scanner) escape(what string) error {
	rest := s.b[s.pos:]
	r, n := unescape(rest)
	switch {
	case n > 0:
		s.text = utf8.AppendRune(s.text, r)
		s.pos += n
		return nil
	case len(rest) < 2:
		return s.Fail(s.pos, "%s does not end", what)
	case rest[1] == 'u':
		return s.Fail(s.pos, `%s has a \u escape that stands for no character`, what)
	}
	return s.Fail(s.pos, "%s has an unknown escape", what)
}

// Skip reads any value and discards the value. Values nested more than MaxDepth deep are an error.
func (s *Scanner) Skip(what string) error { return s.skip(what, MaxDepth) }

func (s *Scanner) skip(what string, depth int) error {
	switch c := s.peek(); {
	case depth < 0:
		return s.Fail(s.pos, "%s is nested more than %d deep", what, MaxDepth)
	case c == '{' || c == '[':
		return s.skipElements(c, what, depth-1)
	case c == '"':
		_, err := s.String(what)
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
	return s.Fail(s.pos, "expected a value in %s, found %s", what, s.found())
}

// skipElements skips an object or array, with an entry in the index.
func (s *Scanner) skipElements(c byte, what string, depth int) (err error) {
	start := s.pos
	var l large
	element := func(at int) error {
		if l.count > 0 && l.count%PartElements == 0 && s.index != nil {
			l.parts = append(l.parts, at)
		}
		l.count++
		return s.skip(what, depth)
	}
	if c == '{' {
		err = s.Object(what, func(_ []byte, at int) error { return element(at) })
	} else {
		err = s.Array(what, element)
	}
	if l.end = s.pos; err == nil && s.index != nil && l.end-start >= indexedBytes {
		s.index[start] = l
	}
	return err
}

// skipNumber reads -? int frac? exp? (RFC 8259 section 6). Index files have 16060522496.0.
func (s *Scanner) skipNumber(what string) error {
	at := s.pos
	digits := func() bool {
		start := s.pos
		for s.pos < len(s.b) && '0' <= s.b[s.pos] && s.b[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > start
	}
	one := func(set string) bool {
		if s.pos < len(s.b) && strings.IndexByte(set, s.b[s.pos]) >= 0 {
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
		return s.Fail(at, "malformed number in %s", what)
	}
	return nil
}

const (
	// indexedBytes is the size from which an Index has an array or object. Reading a smaller value
	// again costs less than an entry.
	indexedBytes = 1 << 10
	// PartElements is how many elements or members a Part has; the last Part has fewer.
	PartElements = 1 << 13
)

// An Index knows the large arrays and objects of a checked text by their positions, so that nobody
// reads megabytes again to find the end or the middle of a value.
type Index map[int]large

type large struct {
	end   int
	count int   // elements or members
	parts []int // where each part but the first begins
}

// A Part is some consecutive elements of an array, or members of an object.
type Part struct {
	First int // index of the first element
	Count int
	At    int // position of the first element: of its key, in an object
}

func (s *Scanner) Index(what string) (Index, error) {
	s.index = Index{}
	err := s.skip(what, MaxDepth)
	ix := s.index
	s.index = nil
	return ix, err
}

// End returns the end of the value that starts at i. The Index may be nil.
func (ix Index) End(text []byte, i int) int {
	if l, ok := ix[i]; ok {
		return l.end
	}
	return End(text, i)
}

// Parts divides the array or object that starts at i, for several goroutines.
func (ix Index) Parts(text []byte, i int) (list []Part) {
	l, ok := ix[i]
	if !ok {
		for range Elements(text, i, End(text, i), ix) {
			l.count++
		}
	}
	if l.count == 0 {
		return nil
	}
	list = append(list, Part{At: SkipSpace(text, i+1)})
	for _, at := range l.parts {
		list = append(list, Part{First: len(list) * PartElements, At: at})
	}
	for i := range list {
		list[i].Count = min(PartElements, l.count-list[i].First)
	}
	return list
}
