package tokenizer

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep values may nest. Real files reach 8.
const maxDepth = 100

// checker reads JSON strictly. Its methods return what is wrong at pos, or "".
type checker struct {
	data []byte
	pos  int
}

func (c *checker) space() { c.pos = skipSpace(c.data, c.pos) }

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// peek returns the next byte, or 0 at the end.
func (c *checker) peek() byte {
	if c.pos < len(c.data) {
		return c.data[c.pos]
	}
	return 0
}

func (c *checker) value(depth int) string {
	if depth > maxDepth {
		return fmt.Sprintf("values nest deeper than %d", maxDepth)
	}
	switch b := c.peek(); {
	case b == '{':
		return c.list('}', depth, true)
	case b == '[':
		return c.list(']', depth, false)
	case b == '"':
		return c.str()
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	case c.pos >= len(c.data):
		return "unexpected end"
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if n := len(word); len(c.data)-c.pos >= n && string(c.data[c.pos:c.pos+n]) == word {
			c.pos += n
			return ""
		}
	}
	return "no JSON value"
}

func (c *checker) list(closing byte, depth int, keys bool) string {
	c.pos++
	if c.space(); c.peek() == closing {
		c.pos++
		return ""
	}
	for {
		if keys {
			if c.peek() != '"' {
				return "no key"
			}
			if msg := c.str(); msg != "" {
				return msg
			}
			if c.space(); c.peek() != ':' {
				return "no colon after a key"
			}
			c.pos++
			c.space()
		}
		if msg := c.value(depth + 1); msg != "" {
			return msg
		}
		c.space()
		switch c.peek() {
		case ',':
			c.pos++
			c.space()
		case closing:
			c.pos++
			return ""
		default:
			return "neither comma nor closing bracket"
		}
	}
}

func (c *checker) number() string {
	digits := func() bool {
		start := c.pos
		for b := c.peek(); b >= '0' && b <= '9'; b = c.peek() {
			c.pos++
		}
		return c.pos > start
	}
	if c.peek() == '-' {
		c.pos++
	}
	if c.peek() == '0' {
		c.pos++
	} else if !digits() {
		return "malformed number"
	}
	if c.peek() == '.' {
		if c.pos++; !digits() {
			return "malformed number"
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.peek(); b == '+' || b == '-' {
			c.pos++
		}
		if !digits() {
			return "malformed number"
		}
	}
	return ""
}

func (c *checker) str() string {
	c.pos++
	for c.pos < len(c.data) {
		switch b := c.data[c.pos]; {
		case b == '"':
			c.pos++
			return ""
		case b == '\\':
			if msg := c.escape(); msg != "" {
				return msg
			}
		case b < 0x20:
			return "control character in a string"
		case b < utf8.RuneSelf:
			c.pos++
		default:
			r, n := utf8.DecodeRune(c.data[c.pos:])
			if r == utf8.RuneError && n == 1 {
				return "invalid UTF-8"
			}
			c.pos += n
		}
	}
	return "string without end"
}

func (c *checker) escape() string {
	rest := c.data[c.pos:]
	if len(rest) < 2 {
		return "string without end"
	}
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.pos += 2
		return ""
	case 'u':
		// Half a surrogate pair is no character, and serde refuses it too.
		if _, n := unicodeEscape(rest); n > 0 {
			c.pos += n
			return ""
		}
	}
	return "malformed escape in a string"
}

// unicodeEscape reads \uXXXX, or the two of a surrogate pair, at the start of b and
// returns how long it is: 0 if it is malformed.
func unicodeEscape(b []byte) (rune, int) {
	unit := func(b []byte) rune {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return -1
		}
		var r rune
		for _, d := range b[2:6] {
			switch {
			case d >= '0' && d <= '9':
				d -= '0'
			case d >= 'a' && d <= 'f':
				d -= 'a' - 10
			case d >= 'A' && d <= 'F':
				d -= 'A' - 10
			default:
				return -1
			}
			r = r<<4 | rune(d)
		}
		return r
	}
	r := unit(b)
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if r = utf16.DecodeRune(r, unit(b[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}
