package llamacpp

import (
	"bytes"
	"cmp"
	"encoding/json"
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
	w.value(key)
	w.data, w.comma = append(w.data, ':'), false
	return w
}

func (w *jsonWriter) value(v any) {
	w.next()
	b, err := encode(v)
	w.err = cmp.Or(w.err, err)
	w.data, w.comma = append(w.data, b...), true
}

// encode writes a value as JSON without escaping < and >.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
