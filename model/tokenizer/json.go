package tokenizer

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// A tokenizer.json of 33 MB holds 800,000 short strings. Package encoding/json would scan them once
// per level of raw values and allocate each. Here a document is checked once and then read in
// place.

// document is a JSON text that parseDocument has checked.
type document struct {
	file string // file name, for errors
	data []byte
}

// node is a value of a document: data[start:end] without white space around it.
type node struct {
	doc        *document
	path       string // "model.vocab"
	start, end int
}

// parseDocument checks that data is one JSON value in valid UTF-8.
func parseDocument(file string, data []byte) (node, error) {
	s := jsonscan.New(data, func(pos int, msg string) error {
		return &FormatError{file, "", fmt.Sprintf("%s at byte %d", msg, pos)}
	})
	if err := s.CheckUTF8(); err != nil {
		return node{}, err
	}
	start := s.Space()
	if err := s.Skip("the document"); err != nil {
		return node{}, err
	}
	if err := s.End("the document"); err != nil {
		return node{}, err
	}
	return node{&document{file, data}, "", start, jsonscan.End(data, start)}, nil
}

func (d *document) end(i int) int { return jsonscan.End(d.data, i) }

// appendString appends the decoded string that starts at i to dst.
func (d *document) appendString(dst []byte, i int) []byte {
	dst, _ = jsonscan.AppendString(dst, d.data, i)
	return dst
}

// kind returns the first byte of the value, which identifies its type; 'n' for null and for the
// node that get returns for a missing member.
func (n node) kind() byte {
	if n.doc == nil {
		return 'n'
	}
	return n.doc.data[n.start]
}

func (n node) null() bool { return n.kind() == 'n' }

// malformed returns a FormatError for this value.
func (n node) malformed(format string, args ...any) error {
	return &FormatError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

func (n node) unsupported(format string, args ...any) error {
	return &UnsupportedError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

// raw yields the positions of an object's keys (-1 in an array) and values, without allocating.
func (n node) raw() iter.Seq2[int, int] { return jsonscan.Elements(n.doc.data, n.start, n.end) }

// members yields the keys and values of an object.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		for k, v := range n.raw() {
			key := n.doc.appendString(nil, k)
			path := string(key)
			if n.path != "" {
				path = n.path + "." + path
			}
			if !yield(string(key), node{n.doc, path, v, n.doc.end(v)}) {
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

// at returns the node of element i, which starts at pos.
func (n node) at(i, pos int) node {
	return node{n.doc, fmt.Sprintf("%s[%d]", n.path, i), pos, n.doc.end(pos)}
}

// object returns the members of an object by key. If a key occurs twice, the last one counts.
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
	return string(n.doc.appendString(nil, n.start)), nil
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
