package assets

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// sentencePiece is a model of one piece with its trainer's settings.
const sentencePiece = "\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02" + "\x12\x02\x28\x07"

func TestCheckAsset(t *testing.T) {
	vocabulary := strings.Repeat("token\n", MinVocabulary)
	tests := []struct {
		name, data string
		want       string // in the error; empty: none
	}{
		{"tokenizer.json", `{"version":"1.0","model":{"type":"BPE"}}`, ""},
		{"tokenizer.json", `{"version":"1.0"}`, "member model"},
		{"tokenizer.json", `{"model":"BPE"}`, "is not a JSON object (byte "},
		{"tokenizer.json", `{"model":{"type":"BPE"},"model":null}`, "member model"},
		{"tokenizer.json", `{"model":{"vocab":{"\ud800":0}}}`, ""},
		{"tokenizer.json", `{"model":{"vocab":{}}`, "byte 21: unexpected end"},
		{"tokenizer.json", `{"model":{}} x`, "byte 14: invalid character 'x'"},
		{"tokenizer_config.json", `{"model_max_length":1e30,"model":5}`, ""},
		{"generation_config.json", `{"a":NaN,"b":-Infinity}`, ""},
		{"vocab.json", "[1]", "array"},
		{"vocab.json", "null", "null"},
		{"vocab.json", "", "it is an empty file"},
		{"vocab.json", `{"a":1} {"b":2}`, "byte 9"},
		{"vocab.json", "{\"a\":\"\xff\"}", "not UTF-8"},
		{"special_tokens_map.json", "-----BEGIN OPENSSH PRIVATE KEY-----\n", "byte 2"},
		{"added_tokens.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"},
		{"tokenizer.json", "GGUF\x03\x00\x00\x00", "a GGUF file"},
		{"tokenizer.model", sentencePiece, ""},
		{"spiece.model", sentencePiece[:len(sentencePiece)-1], "nor a list of tokens"},
		{"tokenizer.model", "\x12\x02\x28\x07", "no pieces"},
		{"tokenizer.model", "\x0a\x05\x15\x00\x00\x00\x00", "piece 0: has no text"},
		{"tokenizer.model", "\x08\x01", "field 1 is not a message"},
		{"tokenizer.model", "IQ== 0\nIg== 1\n\nIw== 2", ""},
		{"tokenizer.model", "IQ== 0\nIg==\n", "nor a list of tokens"},
		{"tokenizer.model", "root:x:0:0:root:/root:/bin/bash\n", "nor a list of tokens"},
		{"tokenizer.model", "", "it is an empty file"},
		{"merges.txt", "#version: 0.2\n\u0120 t\r\n\u0120 a\nh e\n", ""},
		{"merges.txt", "#version: 0.2\nh e l\n", "line 2: want two parts"},
		{"merges.txt", "secret\n", "line 1: want two parts"},
		{"merges.txt", "a \xff\n", "line 1 is not UTF-8"},
		{"vocab.txt", vocabulary + "a 5\n\u3000\n", ""},
		{"vocab.txt", vocabulary + "a b c\n", "3 parts"},
		{"vocab.txt", "token\n", "1 lines, want 32"},
		{"vocab.txt", vocabulary + "\x00\n", "is not UTF-8 text"},
		{"README.md", "---\nlicense: mit\n---\n# Model\n", ""},
		{"README.md", "---\nlicense: \x00\n---\n", "is not a model card (byte 13: a control character)"},
	}
	for _, test := range tests {
		err := CheckAsset(test.name, []byte(test.data))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %.40q: error %v, want %q", test.name, test.data, err, test.want)
		}
	}
}

func TestCheckTemplate(t *testing.T) {
	tests := []struct {
		text string
		ok   bool
	}{
		{"{% for m in messages %}{{ m.content }}{% endfor %}", true},
		{"{{- bos_token -}}", true},
		{"text {{ {'a': {'b': 1}}['a'] }} { } {", true},
		{`{{ "}}" + '\'}}' }}`, true},
		{"{# {{ #}{{ x }}", true},
		{"{% raw %}{{ {% {# {% endraw %}", true},
		{"{%- raw -%} {{ {%- endraw -%}{{ x }}", true},
		{"{{ x[1:] }}\n\t", true},
		{"", false}, {"text", false}, {"{# only a comment #}", false}, {"{{ x", false}, {"{% if x }}", false}, {"{{ x %}", false},
		{"{# {{ x }}", false}, {"{{ 'x }}", false}, {"{{ (x }}", false}, {"{{ x) }}", false}, {"{% raw %}{{ x }}", false},
		{"{{ x }}\x00", false}, {"{{ x }}\x7f", false}, {"{{ x }}\xff", false}, {"machine api.example.com password {x}", false},
	}
	for _, test := range tests {
		if err := CheckTemplate([]byte(test.text)); (err == nil) != test.ok {
			t.Errorf("%q: %v", test.text, err)
		}
	}
}

// TestPublishedAssets checks tokenizers and chat templates as they are published.
func TestPublishedAssets(t *testing.T) {
	dirs, _ := filepath.Glob(filepath.Join(testshared.Dir(t), "models", "*"))
	if dir := os.Getenv("GQ_TOKENIZERS"); dir != "" && !testing.Short() {
		more, _ := filepath.Glob(filepath.Join(dir, "*"))
		dirs = append(dirs, more...)
	}
	found, templates := 0, 0
	for _, dir := range dirs {
		for _, name := range AssetFiles() {
			data, err := ReadAsset(dir, name)
			if err != nil {
				t.Error(err)
			}
			if data != nil {
				found++
			}
			var config struct {
				Template json.RawMessage `json:"chat_template"`
			}
			if name == "tokenizer_config.json" && data != nil && json.Unmarshal(data, &config) == nil {
				var text string
				if json.Unmarshal(config.Template, &text) == nil {
					templates++
					if err := CheckTemplate([]byte(text)); err != nil {
						t.Errorf("%s: chat template: %v", dir, err)
					}
				}
			}
		}
	}
	t.Logf("%d files, %d templates", found, templates)
	if found == 0 {
		t.Error("no files")
	}
}

// TestModelCard stores a README.md with the facts of a model card, and no other.
func TestModelCard(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{"---\nlicense: mit\n---\n": true, "# Model\n": false, "-----BEGIN KEY-----\n": false} {
		if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if data, err := ReadAsset(dir, "README.md"); err != nil || (data != nil) != want {
			t.Errorf("%q: stored %q, %v", text, data, err)
		}
	}
}

// TestTerms stores a licence, and no other text of that name.
func TestTerms(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{"MIT License\n": true, "Copyright 2026\n": true, "[default]\nkey = 1\n": false} {
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if data, err := ReadAsset(dir, "LICENSE"); err != nil || (data != nil) != want {
			t.Errorf("%q: stored %q, %v", text, data, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("license\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAsset(dir, "LICENSE"); err == nil || !strings.Contains(err.Error(), "is not a licence") {
		t.Error(err)
	}
}
