package jsonscan

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// check reads text as one value.
func check(text []byte) (start int, err error) {
	s := New(text, func(pos int, msg string) error { return fmt.Errorf("%d: %s", pos, msg) })
	if err := s.CheckUTF8(); err != nil {
		return 0, err
	}
	start = s.Space()
	if err := s.Skip("it"); err != nil {
		return 0, err
	}
	return start, s.End("it")
}

// decode reads a checked value in place, as encoding/json would.
func decode(text []byte, i int) any {
	switch end := End(text, i); text[i] {
	case '"':
		s, next := AppendString(nil, text, i)
		if next != end {
			panic("a string has two ends")
		}
		return string(s)
	case '{':
		m := map[string]any{}
		for k, v := range Elements(text, i, end, nil) {
			key, _ := AppendString(nil, text, k)
			m[string(key)] = decode(text, v)
		}
		return m
	case '[':
		list := []any{}
		for _, v := range Elements(text, i, end, nil) {
			list = append(list, decode(text, v))
		}
		return list
	default:
		var v any
		if err := json.Unmarshal(text[i:end], &v); err != nil {
			panic(err)
		}
		return v
	}
}

var texts = []string{
	`{}`, ` [ ] `, `"a"`, `-0.5e+3`, `{"a":[1,2,{"b":null}],"c":"\u00e9\ud83d\ude00\n\"\\\/"}`, "\t[true , false,\r\n \"\" ]\n", `{"": {"": {}}}`, `1E5`,
	`{"weight_map":{"x":"y"},"metadata":{"total_size":16060522496.0}}`, strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
}

func TestFinite(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": NaN, "NaN": "Infinity\"", "b": [-Infinity]}`: `{"a":   0, "NaN": "Infinity\"", "b": [        0]}`,
		`Infinity`: `       0`,
		`NaN`:      `  0`,
		`Inf`:      `Inf`,
	} {
		if got := string(Finite([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestValid(t *testing.T) {
	for _, text := range texts {
		start, err := check([]byte(text))
		if err != nil {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got := decode([]byte(text), start); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q is %v, want %v", text, got, want)
		}
	}
}

func TestInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"": "0: expected a value in it, found the end", "nul": `0: expected a value in it, found 'n'`, "[1,]": `3: expected a value in it, found ']'`,
		`{"a":1,}`: `7: expected '"' for it, found '}'`, "1 2": "2: it is followed by '2'", "01": "1: it is followed by '1'", "-": "0: malformed number in it",
		`"\x"`: "1: it has an unknown escape", `"\ud800"`: `1: it has a \u escape that stands for no character`, `"\`: "1: it does not end", `"a`: "0: it does not end",
		"\"\x01\"": "1: control character 0x01 in it", "[\"\xff\"]": "2: invalid UTF-8", "{1:2}": `1: expected '"' for it, found '1'`,
		strings.Repeat("[", 1<<20): fmt.Sprintf("%d: it is nested more than %d deep", MaxDepth+1, MaxDepth),
	} {
		if _, err := check([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// FuzzSkip compares the Scanner with encoding/json: both accept the same texts, except for invalid
// UTF-8, half surrogate pairs and depth, and reading in place gives the same values.
func FuzzSkip(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		start, err := check(text)
		var want any
		strict := json.Unmarshal(text, &want)
		if err != nil {
			if json.Valid(text) && utf8.Valid(text) && !strings.Contains(string(text), `\u`) && !strings.Contains(err.Error(), "nested") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q was accepted", text)
		}
		if strict != nil { // a number that float64 cannot hold
			return
		}
		if got := decode(text, start); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %v, want %v", text, got, want)
		}
	})
}
