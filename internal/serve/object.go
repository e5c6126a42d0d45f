package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/suggest"
)

// An object says which fields a JSON object may have.
type object struct {
	// fields are read into the pointer, or by the decoder.
	fields map[string]any
	// ignored fields change nothing that this server does.
	ignored []string
	// refused fields ask for something that this server does not do. null and the listed values, in
	// compact JSON, ask for nothing and are accepted.
	refused map[string][]string
}

// A decoder reads a JSON value itself. at is the place of the value in the body.
type decoder interface {
	decode(at string, raw json.RawMessage) error
}

// read reads a JSON object. raw is valid JSON, and at is its place in the body, "" for the whole.
// Null is the same as a missing field.
func (o object) read(at string, raw json.RawMessage) error {
	values, err := members(at, raw)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		path := join(at, name)
		into, known := o.fields[name]
		_, refused := o.refused[name]
		switch {
		case !known && !refused && !slices.Contains(o.ignored, name):
			return &apiError{status: http.StatusBadRequest, param: path, code: codeUnknown,
				message: fmt.Sprintf("unknown field %s%s", clip(path), suggest.DidYouMean(name, slices.Sorted(maps.Keys(o.fields))))}
		case string(value) == "null":
		case refused:
			if err := neutral(path, value, o.refused[name]); err != nil {
				return err
			}
		case known:
			if d, ok := into.(decoder); ok {
				if err := d.decode(path, value); err != nil {
					return err
				}
			} else if err := json.Unmarshal(value, into); err != nil {
				return expected(path, wording(into), value)
			}
		}
	}
	return nil
}

// members returns the values of a JSON object by their names. A repeated name is refused: servers
// disagree about which value counts.
func members(at string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	start := jsonscan.SkipSpace(raw, 0)
	if raw[start] != '{' {
		return nil, expected(at, "an object", raw)
	}
	values := map[string]json.RawMessage{}
	for key, value := range jsonscan.Elements(raw, start, jsonscan.End(raw, start), nil) {
		b, _ := jsonscan.AppendString(nil, raw, key)
		name := string(b)
		if _, twice := values[name]; twice {
			path := join(at, name)
			return nil, invalid(path, "the field %s is there twice: leave one of them out", clip(path))
		}
		values[name] = raw[value:jsonscan.End(raw, value)]
	}
	return values, nil
}

// neutral refuses a field unless its value asks for nothing.
func neutral(path string, value json.RawMessage, allowed []string) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err == nil && slices.Contains(allowed, compact.String()) {
		return nil
	}
	message := fmt.Sprintf("%s is not supported by this server: leave it out", path)
	if len(allowed) > 0 {
		message += " or set it to " + strings.Join(allowed, " or ")
	}
	return &apiError{status: http.StatusBadRequest, param: path, code: codeUnmet, message: message}
}

// wording names the JSON values that fit into the pointer.
func wording(into any) string {
	switch into.(type) {
	case *string, **string:
		return "a string"
	case *bool, **bool:
		return "true or false"
	case *uint64:
		return "an integer from 0 to 2^64-1"
	case *int, **int:
		return "an integer"
	case *float64:
		return "a number"
	}
	return "a list"
}

// expected says that a value has the wrong type.
func expected(at, what string, raw json.RawMessage) *apiError {
	place := at
	place = cmp.Or(place, "the body")
	return invalid(at, "%s: expected %s, found %s", clip(place), what, clip(string(raw)))
}

// clip shortens a text of a client for an error.
func clip(s string) string {
	const most = 60
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// maxElements is the length of the longest list, except for lists of token ids. A short element
// takes far more memory than its bytes in JSON.
const maxElements = 1 << 14

func elements(at string, raw json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, expected(at, "a list", raw)
	}
	if len(list) > maxElements {
		return nil, invalid(at, "%s has %d elements, at most %d are allowed", clip(at), len(list), maxElements)
	}
	return list, nil
}

func element(at string, i int) string { return fmt.Sprintf("%s[%d]", at, i) }
