package quantizer

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/RECIPES.md")

// TestSettings: every field of a Recipe but Rules has a setting, whose values are read and written.
func TestSettings(t *testing.T) {
	stated := map[string]string{
		"group": "64", "embedding-group": "channel", "fold": "rotate", "hash": "sha256", "calibrate-tokens": "100",
		"seed": "7", "tune-tokens": "2000", "calibrate": "a.txt", "tune-text": "b.txt", "imatrix": "c.gguf", "lora": "d=0.5", "pre": "llama-bpe", "tune": "norms",
	}
	var r Recipe
	fields := reflect.ValueOf(&r).Elem()
	for _, s := range Settings() {
		value := stated[s.Name]
		switch {
		case s.Value == "":
			value = "true"
		case value == "":
			value = s.Values[0]
		}
		if s.stated(&r) {
			t.Errorf("%s is stated already", s.Name)
		}
		before := r
		if err := s.Set(&r, value); err != nil || !s.stated(&r) || reflect.DeepEqual(before, r) {
			t.Errorf("%s: %s: %v", s.Name, value, err)
		}
		for _, known := range s.Values {
			if err := s.Set(new(Recipe), known); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
	for i := range fields.NumField() {
		if name := fields.Type().Field(i).Name; fields.Field(i).IsZero() != (name == "Rules") {
			t.Errorf("no setting sets the field %s", name)
		}
	}
	text, err := r.YAML("", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Layouts = nil // of the lists, a recipe with a target has one
	if again, err := ParseRecipe("r.yaml", text); err != nil || again.Seed != 7 || again.Fold != r.Fold || *again.EmbeddingGroup != PerChannel {
		t.Errorf("%+v, %v, of\n%s", again, err, text)
	}
}

// TestDocument: the table of docs/RECIPES.md is the table of settings.
//
//	go test ./quantizer -run TestDocument -update
func TestDocument(t *testing.T) {
	const file, head, end = "../docs/RECIPES.md", "| key | meaning | default | goes with |\n|---|---|---|---|\n", "| `rules` |"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(old, []byte(head))
	_, after, found := bytes.Cut(rest, []byte(end))
	if !ok || !found {
		t.Fatalf("%s has no table with the head\n%s", file, head)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(head)
	for _, s := range Settings() {
		fallback := s.Default
		switch {
		case s.Value == "":
			fallback = "false"
		case s.List:
			fallback = "none"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, strings.ReplaceAll(s.Help, "|", `\|`), cmp.Or(fallback, "none"), s.With)
	}
	b.WriteString(end)
	b.Write(after)
	if bytes.Equal(b.Bytes(), old) {
		return
	}
	if !*update {
		t.Fatalf("%s: the table is not the table of settings: run go test ./quantizer -run TestDocument -update", file)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestCheck states settings with and without what they go with.
func TestCheck(t *testing.T) {
	tuned := Recipe{Tune: TuneNorms, TuneTokens: 256}
	short := tuned
	short.TuneTokens--
	for _, tt := range []struct {
		r         Recipe
		has       map[string]bool
		name, err string
	}{
		{tuned, map[string]bool{With.Tune: true}, "", ""},
		{tuned, nil, "", ""}, // nobody knows yet
		{tuned, map[string]bool{With.Tune: false}, "tune-tokens", "goes with tune"},
		{short, map[string]bool{With.Tune: true}, "tune-tokens", "255: at least 256"},
		{Recipe{Pre: "qwen2"}, map[string]bool{With.GGUF: false}, "pre", "goes with a .gguf file"},
		{Recipe{Refine: new(false)}, map[string]bool{With.Solver: false}, "refine", "goes with algorithm gptq or gptq-ft"},
		{Recipe{}, map[string]bool{With.Solver: false, With.GGUF: false, With.Tune: false, With.Text: false}, "", ""},
	} {
		name, err := tt.r.Check(tt.has)
		if name != tt.name || err == nil && tt.err != "" || err != nil && err.Error() != tt.err {
			t.Errorf("%+v with %v: %s %v, want %s %s", tt.r, tt.has, name, err, tt.name, tt.err)
		}
	}
}
