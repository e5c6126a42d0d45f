package quantizer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/lowbit-go/gq/internal/yamldoc"
)

// recipeError reports a recipe file that cannot be used.
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

// text returns the values of a node.
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

// name reads a name.
func name(n ast.Node) (string, error) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return "", errors.New("a name was expected; put it in quotes")
	}
	return s.Value, nil
}

// names reads a list of names.
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

// scalar reads a number or a word.
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
