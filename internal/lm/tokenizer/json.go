package tokenizer

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"strings"
	"unsafe"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// A tokenizer.json of 33 MB holds 800,000 short strings. Package encoding/json would scan the
// strings once per level of raw values and allocate each. Here a document is checked once, and then
// each value is read in place, once, by several goroutines where there are many.

// document is a JSON text that parseDocument has checked.
type document struct {
	file  string // file name, for errors
	data  []byte
	index jsonscan.Index
}

// node is a value of a document: data[start:end] without surrounding white space.
type node struct {
	doc        *document
	path       string // "model.vocab"
	start, end int
}

// parseDocument checks that data is a single JSON value in valid UTF-8.
func parseDocument(file string, data []byte) (node, error) {
	s := jsonscan.New(data, func(pos int, msg string) error {
		return &FormatError{file, "", fmt.Sprintf("%s at byte %d", msg, pos)}
	})
	if err := s.CheckUTF8(); err != nil {
		return node{}, err
	}
	start := s.Space()
	index, err := s.Index("the document")
	if err != nil {
		return node{}, err
	}
	if err := s.End("the document"); err != nil {
		return node{}, err
	}
	d := &document{file, data, index}
	return node{d, "", start, d.end(start)}, nil
}

func (d *document) end(i int) int { return d.index.End(d.data, i) }

func (d *document) space(i int) int { return jsonscan.SkipSpace(d.data, i) }

// text returns the decoded string that starts at i, and the position behind the string. The result
// may share the document's memory: use the string for looking up, not for keeping.
func (d *document) text(i int) (s string, next int) {
	if b, next, ok := jsonscan.PlainString(d.data, i); ok {
		return unsafe.String(unsafe.SliceData(b), len(b)), next
	}
	b, next := jsonscan.AppendString(nil, d.data, i)
	return string(b), next
}

func (d *document) appendString(dst []byte, i int) []byte {
	dst, _ = jsonscan.AppendString(dst, d.data, i)
	return dst
}

// kind returns the first byte of the value: its type. A null and the node that get returns for a
// missing member have 'n'.
func (n node) kind() byte {
	if n.doc == nil {
		return 'n'
	}
	return n.doc.data[n.start]
}

func (n node) null() bool { return n.kind() == 'n' }

func (n node) malformed(format string, args ...any) error {
	return &FormatError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

func (n node) unsupported(format string, args ...any) error {
	return &UnsupportedError{n.doc.file, n.path, fmt.Sprintf(format, args...)}
}

// raw yields the positions of an object's keys (-1 in an array) and values, without allocating.
func (n node) raw() iter.Seq2[int, int] {
	return jsonscan.Elements(n.doc.data, n.start, n.end, n.doc.index)
}

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

func (n node) at(i, pos int) node {
	return node{n.doc, fmt.Sprintf("%s[%d]", n.path, i), pos, n.doc.end(pos)}
}

// object returns the members of an object by key. Of equal keys, the last counts.
func (n node) object() (map[string]node, error) {
	if n.kind() != '{' {
		return nil, n.malformed("is not an object")
	}
	return maps.Collect(n.members()), nil
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
	v, next := n.doc.integer(n.start)
	if next != n.end {
		return 0, n.malformed("is not an integer from 0 to 2147483647")
	}
	return v, nil
}

// integers reads an array of such numbers.
func (n node) integers() (list []int32, err error) {
	if err := n.array(); err != nil {
		return nil, err
	}
	for _, e := range n.elements() {
		v, err := e.integer()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// integer reads the digits from position i on, up to 2^31-1, and returns the position behind the
// digits, i without digits.
func (d *document) integer(i int) (v int32, next int) {
	for ; i < len(d.data) && '0' <= d.data[i] && d.data[i] <= '9'; i++ {
		digit := int32(d.data[i] - '0')
		if v > (math.MaxInt32-digit)/10 {
			return v, i
		}
		v = 10*v + digit
	}
	return v, i
}

// fields reads the members of an object and keeps the first error, so that a component can read all
// its members and check err once.
type fields struct {
	node
	m   map[string]node
	err error
}

func (n node) fields() *fields {
	m, err := n.object()
	return &fields{n, m, err}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// child returns the member key. A missing member is an error.
func (f *fields) child(key string) node {
	n, ok := f.m[key]
	if !ok && f.err == nil {
		f.fail(f.malformed("%q is missing", key))
	}
	return n
}

// component reads the member key, perhaps a null node, unless an error occurred.
func component[T any](f *fields, key string, read func(node) (T, error)) (v T) {
	if f.err == nil {
		v, f.err = read(f.m[key])
	}
	return v
}

func (f *fields) typ() string { return f.str("type") }

func required[T any](f *fields, key string, read func(node) (T, error)) (v T) {
	if n := f.child(key); f.err == nil {
		v, f.err = read(n)
	}
	return v
}

func (f *fields) str(key string) string    { return required(f, key, node.str) }
func (f *fields) integer(key string) int32 { return required(f, key, node.integer) }

func (f *fields) optionalStr(key string) string {
	if f.m[key].null() {
		return ""
	}
	return f.str(key)
}

func (f *fields) optionalBool(key string, def bool) bool {
	if f.m[key].null() {
		return def
	}
	return required(f, key, node.boolean)
}

// components reads the array key of a Sequence, each element with read.
func components[T any](f *fields, key string, read func(n node) ([]T, error)) ([]T, error) {
	list := f.child(key)
	if f.err == nil && strings.Count(f.path, "[") >= maxSequences {
		f.fail(f.malformed("sequences nest deeper than %d", maxSequences))
	}
	if f.err == nil {
		f.fail(list.array())
	}
	if f.err != nil {
		return nil, f.err
	}
	var all []T
	for _, n := range list.elements() {
		some, err := read(n)
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) > maxComponents {
			return nil, list.malformed("more than %d components", maxComponents)
		}
	}
	return all, nil
}

// Real files have at most ten components in Sequences without inner Sequences. The bounds keep a
// hostile file from making every word pass through millions.
const (
	maxSequences  = 8
	maxComponents = 64
)
