package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// templates writes the chat templates: chat_template.jinja, else chat_template of
// tokenizer_config.json, else chat_template.json.
func (v *tokenWriter) templates(read func(name string) ([]byte, error)) error {
	raw, err := read("chat_template.jinja")
	switch {
	case err == nil:
		v.set(keyTemplate, string(raw))
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		raw, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var file struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(file.Template) == 0 || string(file.Template) == "null" {
			continue
		}
		if err := v.template(file.Template); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	return nil
}

// template writes a template, or a list of templates with names.
func (v *tokenWriter) template(raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		v.set(keyTemplate, one)
		return nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New("chat_template is neither a string nor a list of objects with name and template")
	}
	var names []string
	for _, t := range list {
		name := strings.Map(plainRune, t.Name)
		switch {
		case name == "" || slices.Contains(names, name):
		case name == "default":
			v.set(keyTemplate, t.Template)
		default:
			v.set(keyTemplate+"."+name, t.Template)
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		v.set(keyTemplates, names)
	}
	return nil
}

// plainRune replaces characters that the key of a template cannot have.
func plainRune(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '_'
}
