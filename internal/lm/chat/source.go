package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// The files of a model that may hold chat templates, in the order of precedence.
const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	oldFile      = "chat_template.json"
)

// A Source is the text of a chat template. Name is "default" for the template of conversations;
// models may have others, for example "tool_use".
type Source struct{ Name, Text string }

// Sources reads the chat templates of a model and returns the name of their file. read returns the
// content of a file of the model, or fs.ErrNotExist. A model without a template has no sources.
func Sources(read func(name string) ([]byte, error)) (sources []Source, file string, err error) {
	raw, err := read(templateFile)
	if err == nil {
		return []Source{{"default", string(raw)}}, templateFile, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	for _, name := range []string{configFile, oldFile} {
		raw, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if sources, err = parseSources(raw); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		if len(sources) > 0 {
			return sources, name, nil
		}
	}
	return nil, "", nil
}

// parseSources reads chat_template: a text, or a list of texts with names.
func parseSources(raw []byte) ([]Source, error) {
	var file struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(jsonscan.Finite(raw), &file); err != nil {
		return nil, err
	}
	if len(file.Template) == 0 || string(file.Template) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(file.Template, &one) == nil {
		return []Source{{"default", one}}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(file.Template, &list); err != nil {
		return nil, errors.New("chat_template is neither a string nor a list of objects with name and template")
	}
	var sources []Source
	for _, t := range list {
		sources = append(sources, Source{t.Name, t.Template})
	}
	return sources, nil
}

// specialTokens reads the tokens that a template may name, for example bos_token, from
// tokenizer_config.json, else from special_tokens_map.json.
func specialTokens(read func(name string) ([]byte, error)) (map[string]string, error) {
	tokens := map[string]string{}
	for _, name := range []string{configFile, "special_tokens_map.json"} {
		raw, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var file map[string]json.RawMessage
		if err := json.Unmarshal(jsonscan.Finite(raw), &file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for key, value := range file {
			if _, ok := tokens[key]; ok || !isTokenKey(key) {
				continue
			}
			if text, ok := tokenText(value); ok {
				tokens[key] = text
			}
		}
	}
	return tokens, nil
}

// isTokenKey reports whether a key like bos_token names a token; add_bos_token does not.
func isTokenKey(key string) bool {
	const suffix = "_token"
	return len(key) > len(suffix) && key[len(key)-len(suffix):] == suffix && key[:min(4, len(key))] != "add_"
}

// tokenText reads a token: a string, or an object with the member content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, string(raw) != "null"
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) != nil || object.Content == nil {
		return "", false
	}
	return *object.Content, true
}
