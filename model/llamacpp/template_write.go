package llamacpp

import (
	"slices"
	"strings"

	"github.com/lowbit-go/gq/model/chat"
)

// templates writes the chat templates. The one named default has no name there.
func (v *tokenWriter) templates(read func(name string) ([]byte, error)) error {
	sources, _, err := chat.Sources(read)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range sources {
		name := strings.Map(plainRune, t.Name)
		switch {
		case name == "" || slices.Contains(names, name):
		case name == "default":
			v.set(keyTemplate, t.Text)
		default:
			v.set(keyTemplate+"."+name, t.Text)
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
