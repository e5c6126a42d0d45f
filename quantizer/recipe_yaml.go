package quantizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/yamldoc"
)

type recipeError struct {
	File string
	Line int // from 1; 0 if it is not known
	Err  error
}

func (e *recipeError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns e.Err.
func (e *recipeError) Unwrap() error { return e.Err }

// ParseRecipe reads a recipe file; file is its name for messages. A recipe is a YAML mapping. Its
// keys are the names of [Settings], and rules, a list of mappings with match and either skip or
// settings of tensors:
//
//	bits: 4
//	rules:                    # the first that matches; exact names before patterns
//	  - match: re:.*\.down_proj
//	    bits: 6
//	  - match: lm_head
//	    skip: true
//
// Every other key is an error, as are documents after the first, anchors and aliases. An error
// names the file and the line.
func ParseRecipe(file string, raw []byte) (Recipe, error) {
	var r Recipe
	body, err := yamldoc.Parse(raw)
	if e, ok := errors.AsType[*yamldoc.Error](err); ok {
		return r, &recipeError{file, e.Line, errors.New(e.Msg)}
	}
	if body == nil { // comments at most
		return r, nil
	}
	y := recipeReader{file}
	err = y.mapping(body, func(key string, v ast.Node) (err error) {
		if key == "rules" {
			r.Rules, err = y.rules(v)
			return err
		}
		return set(&r, 0, key, v)
	})
	return r, err
}

// set sets the setting called key, which may stand in a place.
func set(r *Recipe, in place, key string, v ast.Node) error {
	s, ok := SettingOf(key)
	if !ok || s.in&in != in {
		return errUnknownKey
	}
	values, err := s.text(v)
	if err != nil {
		return err
	}
	return s.Set(r, values...)
}

func (s Setting) text(n ast.Node) ([]string, error) {
	read := scalar
	switch {
	case s.Value == "":
		b, err := boolean(n)
		return []string{strconv.FormatBool(b)}, err
	case s.List:
		return names(n)
	case s.in&isName != 0:
		read = name
	}
	value, err := read(n)
	return []string{value}, err
}

var errUnknownKey = errors.New("unknown key")

// recipeReader walks the syntax tree of a recipe file, so that each error has a line.
type recipeReader struct{ file string }

// mapping calls set for each key of a mapping. Errors of set get the key and its line.
func (y recipeReader) mapping(n ast.Node, set func(key string, v ast.Node) error) error {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return &recipeError{y.file, yamldoc.Line(n), errors.New("a mapping of keys to values was expected")}
	}
	for _, kv := range m.Values {
		key := kv.Key.GetToken().Value
		err := set(key, kv.Value)
		var positioned *recipeError
		switch {
		case err == nil:
			continue
		case errors.As(err, &positioned):
			return err
		case err == errUnknownKey:
			err = fmt.Errorf("unknown key %q", key)
		default:
			err = fmt.Errorf("%s: %w", key, err)
		}
		return &recipeError{y.file, yamldoc.Line(kv.Key), err}
	}
	return nil
}

func (y recipeReader) rules(n ast.Node) ([]Rule, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("a list of rules was expected")
	}
	rules := []Rule{}
	for i, v := range seq.Values {
		r, err := y.rule(v)
		if err != nil {
			what := fmt.Sprintf("rule %d", i+1)
			if r.Match != "" {
				what += fmt.Sprintf(" (%s)", r.Match)
			}
			var e *recipeError
			if !errors.As(err, &e) {
				e = &recipeError{y.file, yamldoc.Line(v), err}
			}
			return nil, &recipeError{e.File, e.Line, fmt.Errorf("%s: %w", what, e.Err)}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func (y recipeReader) rule(n ast.Node) (Rule, error) {
	r := Rule{Origin: fmt.Sprintf("%s:%d", y.file, yamldoc.Line(n))}
	err := y.mapping(n, func(key string, v ast.Node) (err error) {
		switch key {
		case "match":
			r.Match, err = name(v)
		case "skip":
			r.Skip, err = boolean(v)
		default:
			stated := r.recipe()
			err = set(stated, inRule, key, v)
			r.state(stated)
		}
		return err
	})
	if err != nil {
		return r, err
	}
	return r, r.check()
}

func name(n ast.Node) (string, error) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return "", errors.New("a name was expected; put it in quotes")
	}
	return s.Value, nil
}

func names(n ast.Node) ([]string, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("a list of names was expected")
	}
	var list []string
	for _, v := range seq.Values {
		s, err := name(v)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func scalar(n ast.Node) (string, error) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.StringNode, *ast.FloatNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", errors.New("it has no value")
	}
	return "", fmt.Errorf("a number or a word was expected, not a %s", n.Type().YAMLName())
}

func boolean(n ast.Node) (bool, error) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, errors.New("use true or false")
	}
	return b.Value, nil
}

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
