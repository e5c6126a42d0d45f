package alloc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/quantizer"
)

// SaveRecipe writes a recipe with the rules that come before its own as a file that quantizer.ParseRecipe reads: one line
// a rule, behind lines of comment.
func SaveRecipe(path, comment string, r quantizer.Recipe, first []quantizer.Rule) error {
	text, err := FormatRecipe(comment, r, first)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(path, text)
}

// FormatRecipe is what SaveRecipe writes. Names and values are spelled as in JSON, which is YAML.
func FormatRecipe(comment string, r quantizer.Recipe, first []quantizer.Rule) ([]byte, error) {
	raw, err := r.JSON(first)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for line := range strings.Lines(comment) {
		fmt.Fprintf(&b, "# %s\n", strings.TrimRight(line, "\n"))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "rules" {
			var v json.RawMessage
			if err := d.Decode(&v); err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%s: %s\n", key, v)
			continue
		}
		var rules []json.RawMessage
		if err := d.Decode(&rules); err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			b.WriteString("rules:\n")
		}
		for _, rule := range rules {
			line, err := oneLine(rule)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "  - %s\n", line)
		}
	}
	return b.Bytes(), nil
}

// oneLine writes a flat JSON object as {match: "a.b", bits: 4}.
func oneLine(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // {
		return "", err
	}
	var parts []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%s: %s", key, v))
	}
	return "{" + strings.Join(parts, ", ") + "}", nil
}
