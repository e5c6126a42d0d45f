package accuracy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// ReadReport reads a report from JSON. A missing figure, 0 for encoding/json, is an error.
func ReadReport(path string) (*Report, error) {
	b, err := files.Read(path, files.MaxReport)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: not a report of gq accuracy --json: %w", path, err)
	}
	if r.Schema != ReportSchema {
		return nil, fmt.Errorf("%s: schema %q, want %q: make the report anew", path, strings.TrimSpace(r.Schema), ReportSchema)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if key := missingKey(raw, reflect.TypeFor[Report]()); key != "" {
		return nil, fmt.Errorf("%s: %s is missing: make the report anew", path, strings.TrimPrefix(key, "."))
	}
	return r, nil
}

// missingKey is the path of the first key that a value of type t must have in JSON and that v
// lacks, or has as null; "" if there is none.
func missingKey(v any, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		if v == nil {
			return ""
		}
		return missingKey(v, t.Elem())
	case reflect.Slice:
		list, _ := v.([]any)
		for i, x := range list {
			if key := missingKey(x, t.Elem()); key != "" {
				return fmt.Sprintf("[%d]%s", i, key)
			}
		}
	case reflect.Struct:
		return missingField(v, t)
	}
	return ""
}

func missingField(v any, t reflect.Type) string {
	fields, _ := v.(map[string]any)
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		if f.Anonymous {
			if key := missingKey(v, f.Type); key != "" {
				return key
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		x, ok := fields[name]
		switch {
		case !ok && options == "omitempty":
		case !ok || x == nil && !nullable(f.Type):
			return "." + name
		default:
			if key := missingKey(x, f.Type); key != "" {
				return "." + name + key
			}
		}
	}
	return ""
}

// nullable reports whether values of the type may be null in JSON: +Inf, or no value.
func nullable(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Decibels](), reflect.TypeFor[Figure](), reflect.TypeFor[eval.StdErr]():
		return true
	}
	return t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer || t.Kind() == reflect.Map
}
