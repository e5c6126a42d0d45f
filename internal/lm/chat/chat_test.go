package chat

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"testing"
)

// assets returns a model's files from a map.
func assets(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string
		source string
		text   string // of one message "x"
	}{
		{"none", nil, "plain", "User: x\nAssistant:"},
		{"no template", map[string]string{"tokenizer_config.json": `{"bos_token": "B"}`}, "plain", "User: x\nAssistant:"},
		{"a file", map[string]string{"chat_template.jinja": "{{ bos_token + messages[0].content }}", "tokenizer_config.json": `{"bos_token": "B", "chat_template": "no"}`},
			"chat_template.jinja", "Bx"},
		{"a string", map[string]string{"tokenizer_config.json": `{"bos_token": {"content": "B"}, "chat_template": "{{ bos_token }}", "model_max_length": Infinity}`},
			"tokenizer_config.json", "B"},
		{"names", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`},
			"tokenizer_config.json", "D"},
		{"chat_template.json", map[string]string{"tokenizer_config.json": "{}", "chat_template.json": `{"chat_template": "J"}`, "special_tokens_map.json": `{"eos_token": "E"}`},
			"chat_template.json", "J"},
	} {
		tmpl, err := Open(assets(c.files))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, err := tmpl.Render(t.Context(), []Message{{Role: "user", Content: "x"}}, true)
		if err != nil || text != c.text || tmpl.Source != c.source {
			t.Errorf("%s: %q, %v from %s; expected %q from %s", c.name, text, err, tmpl.Source, c.text, c.source)
		}
	}
}

func TestRefused(t *testing.T) {
	tmpl, err := Open(assets(map[string]string{"chat_template.jinja": "{{ raise_exception('roles must ' + 'alternate') }}"}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Render(t.Context(), nil, true)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Msg != refusal+"roles must alternate" {
		t.Errorf("%v is not the template's refusal", err)
	}
}

func readConversations(t *testing.T) [][]Message {
	t.Helper()
	raw, err := os.ReadFile("testdata/conversations.json")
	if err != nil {
		t.Fatal(err)
	}
	var list [][]Message
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return list
}
