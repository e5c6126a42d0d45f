package cmdline

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// PrintJSON writes v as indented JSON with a newline at the end, without escapes for HTML. If v is
// a struct, the elements of lists in its fields are written one by one: encoding/json would hold
// the text of 200,000 tensors twice (700 MB). JSON in a field keeps its bytes: indented, 10 MB of
// it may become gigabytes.
func PrintJSON(w io.Writer, v any) error {
	p := &jsonPrinter{w: w}
	p.encoder = json.NewEncoder(&p.text)
	p.encoder.SetEscapeHTML(false)
	if s := reflect.Indirect(reflect.ValueOf(v)); s.Kind() == reflect.Struct {
		p.fields(s)
	} else {
		p.value("", v)
	}
	p.put("\n")
	return p.err
}

// A jsonPrinter keeps the first error and writes nothing after it.
type jsonPrinter struct {
	w       io.Writer
	err     error
	text    bytes.Buffer
	encoder *json.Encoder // to text
}

func (p *jsonPrinter) put(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

// value writes v; the lines after its first begin with indent.
func (p *jsonPrinter) value(indent string, v any) {
	if p.err != nil {
		return
	}
	p.text.Reset()
	p.encoder.SetIndent(indent, "  ")
	if p.err = p.encoder.Encode(v); p.err == nil {
		_, p.err = p.w.Write(bytes.TrimSuffix(p.text.Bytes(), []byte("\n")))
	}
}

// fields writes the outermost struct by the rules of encoding/json for names, omitempty and
// embedded structs.
func (p *jsonPrinter) fields(s reflect.Value) {
	before := "{\n  "
	for _, f := range reflect.VisibleFields(s.Type()) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		v := s.FieldByIndex(f.Index)
		if opts == "omitempty" && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		p.put(before)
		before = ",\n  "
		p.value("", name)
		p.put(": ")
		if raw, ok := v.Interface().(json.RawMessage); ok && len(raw) > 0 {
			p.put(string(bytes.TrimSpace(raw)))
		} else if v.Kind() == reflect.Slice && v.Len() > 0 && reflect.Indirect(v.Index(0)).Kind() == reflect.Struct {
			p.list(v)
		} else {
			p.value("  ", v.Interface())
		}
	}
	p.put("\n}")
}

// list writes the elements of a list that is a field.
func (p *jsonPrinter) list(l reflect.Value) {
	before := "[\n    "
	for i := range l.Len() {
		p.put(before)
		before = ",\n    "
		p.value("    ", reflect.Indirect(l.Index(i)).Addr().Interface())
	}
	p.put("\n  ]")
}
