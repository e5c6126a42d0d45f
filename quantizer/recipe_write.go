package quantizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
)

// JSON is the canonical form of the recipe, with rules that precede its own: it states every
// default of the schemes, and omits where rules were stated. ParseRecipe reads it, because JSON is
// YAML.
func (r Recipe) JSON(first []Rule) ([]byte, error) {
	r = r.canonical(first)
	var rules []string
	for i := range r.Rules {
		rule, err := r.Rules[i].members(`"%s":%s`)
		if err != nil {
			return nil, err
		}
		rules = append(rules, "{"+strings.Join(rule, ",")+"}")
	}
	list, err := members(&r, inFile, `"%s":%s`)
	if err != nil {
		return nil, err
	}
	list = append(list, `"rules":[`+strings.Join(rules, ",")+"]")
	var b bytes.Buffer
	err = json.Indent(&b, []byte("{"+strings.Join(list, ",")+"}\n"), "", "  ")
	return b.Bytes(), err
}

// YAML is the whole recipe, with rules that precede its own, as a file that ParseRecipe reads:
// first comment, as comment lines; then every default of the schemes; then everything else that
// decides a file's bytes; then one line per rule. Names and values are spelled as in JSON, which is
// YAML. A file larger than ParseRecipe reads is an error.
func (r Recipe) YAML(comment string, first []Rule) ([]byte, error) {
	r = r.canonical(first)
	var b bytes.Buffer
	for line := range strings.Lines(comment) {
		fmt.Fprintf(&b, "# %s\n", strings.TrimRight(line, "\n"))
	}
	list, err := members(&r, 0, "%s: %s")
	if err != nil {
		return nil, err
	}
	if len(r.Rules) > 0 {
		list = append(list, "rules:")
	}
	for i := range r.Rules {
		rule, err := r.Rules[i].members("%s: %s")
		if err != nil {
			return nil, err
		}
		list = append(list, "  - {"+strings.Join(rule, ", ")+"}")
	}
	b.WriteString(strings.Join(append(list, ""), "\n"))
	if b.Len() > files.MaxYAML {
		return nil, fmt.Errorf("a recipe of %d rules has %d bytes, more than the %d that gq reads: replace rules by patterns that match several tensors", len(r.Rules), b.Len(), files.MaxYAML)
	}
	return b.Bytes(), nil
}

// canonical states every default of the schemes, except what targets choose.
func (r Recipe) canonical(first []Rule) Recipe {
	stated := r
	r = r.WithDefaults()
	r.Algorithm = cmp.Or(r.Algorithm, defaultAlgorithm(r.Mapping))
	r.PositiveScales = cmp.Or(r.PositiveScales, new(false))
	f := r.CheckpointFormat()
	if r.ForGGUF() || f != "" { // the target chooses by a tensor's bits
		r.Group, r.EmbeddingGroup = stated.Group, stated.EmbeddingGroup
	}
	if r.ForGGUF() {
		r.Mapping = stated.Mapping
	}
	if f != "" && !f.QuantizesEmbedding() {
		r.EmbeddingBits, r.EmbeddingGroup = 0, nil
	}
	if len(r.Targets) > 0 {
		r.ScaleDtype = stated.ScaleDtype
	}
	r.Rules = slices.Concat(first, r.Rules)
	for i := range r.Rules {
		rule := &r.Rules[i]
		if stated.Mapping == gqf.MappingNone && !r.ForGGUF() {
			rule.Mapping = cmp.Or(rule.Mapping, stated.WithDefaults().oneBit(rule))
		}
		// State what the rule's mapping implies, because the recipe now states an algorithm.
		if stated.Algorithm == gqf.AlgorithmNone && rule.Mapping != gqf.MappingNone {
			rule.Algorithm = cmp.Or(rule.Algorithm, defaultAlgorithm(rule.Mapping))
		}
	}
	return r
}

// members lists the stated settings of a place, each formatted with its name and its value as JSON.
func members(r *Recipe, in place, format string) (list []string, err error) {
	for _, s := range settings {
		if s.in&in == in && s.stated(r) {
			if list, err = member(list, format, s.Name, s.field.value(r)); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// members lists what the rule states.
func (r *Rule) members(format string) (list []string, err error) {
	if list, err = member(nil, format, "match", r.Match); err != nil {
		return nil, err
	}
	if r.Skip {
		return member(list, format, "skip", true)
	}
	rest, err := members(r.recipe(), inRule, format)
	return append(list, rest...), err
}

func member(list []string, format, name string, value any) ([]string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return append(list, fmt.Sprintf(format, name, bytes.TrimSpace(b.Bytes()))), err
}
