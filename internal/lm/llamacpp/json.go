package llamacpp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A jsonWriter writes a JSON text without building its large objects in memory.
type jsonWriter struct {
	data  []byte
	comma bool // before the next member or element
	err   error
}

func (w *jsonWriter) next() {
	if w.comma {
		w.data = append(w.data, ',')
	}
}

func (w *jsonWriter) open(c byte) {
	w.next()
	w.data, w.comma = append(w.data, c), false
}

func (w *jsonWriter) close(c byte) {
	w.data, w.comma = append(w.data, c), true
}

// member writes a key. The caller writes its value.
func (w *jsonWriter) member(key string) *jsonWriter {
	w.text(key)
	w.data, w.comma = append(w.data, ':'), false
	return w
}

// integer writes an integer, as value does.
func (w *jsonWriter) integer(v int) {
	w.next()
	w.data, w.comma = strconv.AppendInt(w.data, int64(v), 10), true
}

// text writes a string, as value does. Vocabularies are long, and encoding/json takes ten times as
// long as text.
func (w *jsonWriter) text(s string) {
	if !verbatim(s) {
		w.value(s)
		return
	}
	w.next()
	w.data = append(append(append(w.data, '"'), s...), '"')
	w.comma = true
}

func (w *jsonWriter) value(v any) {
	w.next()
	b, err := encode(v)
	w.err = cmp.Or(w.err, err)
	w.data, w.comma = append(w.data, b...), true
}

// verbatim reports whether a JSON string has the same characters as s.
func verbatim(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c == '\xe2' && (strings.HasPrefix(s[i:], "\u2028") || strings.HasPrefix(s[i:], "\u2029")) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// encode writes a value as JSON without escaping < and >.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
