package hfquant

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

func TestWithoutQuantization(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", `{"a": 1}`, `{"a": 1}`},
		{"only", `{"quantization_config": {"x": [1, "}"]}}`, `{}`},
		{"first", `{"quantization_config": {}, "b": 2}`, `{ "b": 2}`},
		{"last", "{\n  \"b\": 2,\n  \"quantization\": {}\n}", "{\n  \"b\": 2\n}"},
		{"middle", `{"a": 1, "quantization_config": 5 , "b": 2}`, `{"a": 1, "b": 2}`},
		{"all of MLX", `{"quantization": {}, "a": 1, "quantization_config": {}}`, `{ "a": 1}`},
		{"nested", `{"a": NaN, "text_config": {"quantization_config": {}, "c": -Infinity}}`, `{"a": NaN, "text_config": { "c": -Infinity}}`},
		{"infinite", `{"a": -Infinity, "quantization_config": {}, "b": NaN , "quantization": {}, "c": Infinity}`, `{"a": -Infinity, "b": NaN, "c": Infinity}`},
		{"escaped key", `{"quantization\u005fconfig": {}, "b": "\""}`, `{ "b": "\""}`},
		{"text_config of another kind", `{"text_config": 3}`, `{"text_config": 3}`},
	} {
		got, err := WithoutQuantization([]byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "[]", "{", `{"a": 1,}`, "null", "null {}"} {
		if got, err := WithoutQuantization([]byte(bad)); err == nil {
			t.Errorf("%q gives %q", bad, got)
		}
	}
}

func TestUntied(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"true", `{"z": Infinity, "tie_word_embeddings": true, "a": 1}`, `{"z": Infinity, "tie_word_embeddings": false, "a": 1}`},
		{"not stated", "{\n  \"a\": -Infinity\n}\n", "{\n  \"a\": -Infinity,\n  \"tie_word_embeddings\": false\n}\n"},
		{"empty", `{}`, "{\n  \"tie_word_embeddings\": false\n}"},
		{"in text_config", `{"text_config": {"tie_word_embeddings": true, "b": [NaN]}, "a": 1}`,
			"{\"text_config\": {\"tie_word_embeddings\": false, \"b\": [NaN]}, \"a\": 1,\n  \"tie_word_embeddings\": false\n}"},
		{"both", `{"text_config": {"tie_word_embeddings": true, "x": NaN}, "tie_word_embeddings": null}`, `{"text_config": {"tie_word_embeddings": false, "x": NaN}, "tie_word_embeddings": false}`},
		{"JSON", `{"tie_word_embeddings": true, "tie_embedding": true, "a": 1}`, "{\n  \"a\": 1,\n  \"tie_embedding\": false,\n  \"tie_word_embeddings\": false\n}"},
	} {
		got, err := Untied([]byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "[]", "null", "{"} {
		if got, err := Untied([]byte(bad)); err == nil {
			t.Errorf("%q gives %q", bad, got)
		}
	}
}

func TestWithEntry(t *testing.T) {
	for _, in := range []string{
		`{}`, "{\n}", `{"a":1}`, "{\n  \"a\": 1\n}\n", `{"quantization_config": {}}`, `{"text_config": {"quantization_config": {"q": 1}}, "a": 1}`,
		`{"quantization_config": {}, "a": -Infinity}`,
	} {
		out, err := WithEntry([]byte(in), "quantization", map[string]int{"bits": 4})
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if !strings.Contains(in, "Infinity") == bytes.Contains(out, []byte("Infinity")) {
			t.Errorf("%s gives %s", in, out)
		}
		var m map[string]any
		if err := json.Unmarshal(jsonscan.Finite(out), &m); err != nil {
			t.Errorf("%s gives %s: %v", in, out, err)
		}
		if e, err := findEntry(out); err != nil || e == nil || !strings.Contains(string(e.raw), `"bits": 4`) {
			t.Errorf("%s gives %s: %v", in, out, err)
		}
		if _, ok := m["a"]; ok != strings.Contains(in, `"a"`) || m["quantization_config"] != nil {
			t.Errorf("%s gives %s", in, out)
		}
	}
}
