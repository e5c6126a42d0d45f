package tokenizer

import (
	"fmt"
	"iter"
	"strconv"
	"unicode/utf8"
)

// A tokenizer.json of 33 MB holds 800,000 short strings. Package encoding/json would
// go over them once for every level at which a raw value is kept, and allocate each;
// here a document is checked once and then read in place.

// document is a JSON text that parseDocument has checked.
type document struct {
	file string // its name, for errors
	data []byte
}

// node is one value of a document: data[start:end] without white space around it.
type node struct {
	doc        *document
	path       string // "model.vocab"
	start, end int
}

// parseDocument checks that data is one JSON value in valid UTF-8 and returns it.
func parseDocument(file string, data []byte) (node, error) {
	c := checker{data: data}
	c.space()
	start := c.pos
	msg := c.value(0)
	end := c.pos
	if msg == "" {
		if c.space(); c.pos < len(data) {
			msg = "more text follows the JSON value"
		}
	}
	if msg != "" {
		return node{}, &FormatError{file, "", fmt.Sprintf("%s at byte %d", msg, c.pos)}
	}
	return node{&document{file, data}, "", start, end}, nil
}

// skip returns the end of the value that starts at i, in a checked document.
func (d *document) skip(i int) int {
	depth := 0
	for {
		switch d.data[i] {
		case '"':
			i = d.skipString(i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\r', '\t':
			i++
			continue
		default: // a number or a word
			for i < len(d.data) && !delimits(d.data[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

func delimits(b byte) bool {
	switch b {
	case ',', ':', ']', '}', ' ', '\n', '\r', '\t':
		return true
	}
	return false
}

func (d *document) skipString(i int) int {
	for i++; d.data[i] != '"'; i++ {
		if d.data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// appendString appends to dst what the string that starts at i stands for and
// returns the position after it.
func (d *document) appendString(dst []byte, i int) ([]byte, int) {
	for i++; ; {
		switch b := d.data[i]; {
		case b == '"':
			return dst, i + 1
		case b != '\\':
			dst = append(dst, b)
			i++
		case d.data[i+1] == 'u':
			r, n := unicodeEscape(d.data[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		default:
			b = d.data[i+1]
			switch b {
			case 'b':
				b = '\b'
			case 'f':
				b = '\f'
			case 'n':
				b = '\n'
			case 'r':
				b = '\r'
			case 't':
				b = '\t'
			}
			dst = append(dst, b)
			i += 2
		}
	}
}

// kind returns the first byte of the value, which tells what it is; 'n' for null
// and for the node that get returns where there is none.
func (n node) kind() byte {
	if n.doc == nil {
		return 'n'
	}
	return n.doc.data[n.start]
}

func (n node) null() bool { return n.kind() == 'n' }

// malformed returns an error about this value.
func (n node) malformed(format string, args ...any) error {
	return &FormatError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

func (n node) unsupported(format string, args ...any) error {
	return &UnsupportedError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

// raw yields the positions of an object's keys (-1 in an array) and of its values,
// without allocating anything.
func (n node) raw() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		d := n.doc
		for i := skipSpace(d.data, n.start+1); i < n.end-1; {
			key := -1
			if n.kind() == '{' {
				key = i
				i = skipSpace(d.data, skipSpace(d.data, d.skipString(i))+1)
			}
			value := i
			if !yield(key, value) {
				return
			}
			i = skipSpace(d.data, d.skip(value))
			if d.data[i] == ',' {
				i = skipSpace(d.data, i+1)
			}
		}
	}
}

// members yields keys and values of an object.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		for k, v := range n.raw() {
			key, _ := n.doc.appendString(nil, k)
			path := string(key)
			if n.path != "" {
				path = n.path + "." + path
			}
			if !yield(string(key), node{n.doc, path, v, n.doc.skip(v)}) {
				return
			}
		}
	}
}

// elements yields the values of an array.
func (n node) elements() iter.Seq2[int, node] {
	return func(yield func(int, node) bool) {
		i := 0
		for _, v := range n.raw() {
			if !yield(i, n.at(i, v)) {
				return
			}
			i++
		}
	}
}

// at is the node of element i, which starts at pos.
func (n node) at(i, pos int) node {
	return node{n.doc, fmt.Sprintf("%s[%d]", n.path, i), pos, n.doc.skip(pos)}
}

// object returns the members of an object by key; of a key that stands there twice
// the last.
func (n node) object() (map[string]node, error) {
	if n.kind() != '{' {
		return nil, n.malformed("is not an object")
	}
	m := map[string]node{}
	for k, v := range n.members() {
		m[k] = v
	}
	return m, nil
}

func (n node) array() error {
	if n.kind() != '[' {
		return n.malformed("is not an array")
	}
	return nil
}

func (n node) str() (string, error) {
	if n.kind() != '"' {
		return "", n.malformed("is not a string")
	}
	b, _ := n.doc.appendString(nil, n.start)
	return string(b), nil
}

func (n node) boolean() (bool, error) {
	if k := n.kind(); k != 't' && k != 'f' {
		return false, n.malformed("is neither true nor false")
	}
	return n.kind() == 't', nil
}

// integer reads a number from 0 to 2^31-1.
func (n node) integer() (int32, error) {
	v, err := strconv.ParseUint(string(n.doc.data[n.start:n.end]), 10, 31)
	if err != nil {
		return 0, n.malformed("is not an integer from 0 to 2147483647")
	}
	return int32(v), nil
}
