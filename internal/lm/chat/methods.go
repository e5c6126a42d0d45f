package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/filters"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// methods are the methods of Python's str and dict that templates call, as filters: rewrite turns
// calls of methods into applications of filters. A mapping's own member of such a name is not
// callable, so the method must be meant.
var methods = map[string]minijinja.FilterFunc{
	"strip":        strip(strings.TrimSpace, strings.Trim),
	"lstrip":       strip(func(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }, strings.TrimLeft),
	"rstrip":       strip(func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }, strings.TrimRight),
	"split":        onText(split),
	"rsplit":       onText(rsplit),
	"splitlines":   onText(splitlines),
	"replace":      onText(replace),
	"join":         onText(join),
	"startswith":   affix(strings.HasPrefix),
	"endswith":     affix(strings.HasSuffix),
	"removeprefix": oneText(func(s, t string) value.Value { return value.FromString(strings.TrimPrefix(s, t)) }),
	"removesuffix": oneText(func(s, t string) value.Value { return value.FromString(strings.TrimSuffix(s, t)) }),
	"find":         oneText(func(s, t string) value.Value { return index(s, strings.Index(s, t)) }),
	"rfind":        oneText(func(s, t string) value.Value { return index(s, strings.LastIndex(s, t)) }),
	"count":        oneText(func(s, t string) value.Value { return value.FromInt(int64(strings.Count(s, t))) }),
	"upper":        noText(func(s string) value.Value { return value.FromString(strings.ToUpper(s)) }),
	"lower":        noText(func(s string) value.Value { return value.FromString(strings.ToLower(s)) }),
	"capitalize":   noText(func(s string) value.Value { return value.FromString(capitalize(s)) }),
	"title":        noText(func(s string) value.Value { return value.FromString(title(s)) }),
	"isdigit":      all(unicode.IsDigit),
	"isalpha":      all(unicode.IsLetter),
	"isalnum":      all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }),
	"isspace":      all(unicode.IsSpace),
	"format":       onText(format),
	"get":          onDict(get),
	"items": onDict(func(s filters.State, v value.Value, _ []value.Value) (value.Value, error) {
		return filters.FilterItems(s, v, nil, nil)
	}),
	"keys": onDict(func(_ filters.State, v value.Value, _ []value.Value) (value.Value, error) {
		return value.FromSlice(v.Iter()), nil
	}),
	"values": onDict(values),
}

// text returns a string, or an error that names its type.
func text(v value.Value) (string, error) {
	s, ok := v.AsString()
	if !ok {
		return "", fmt.Errorf("expected a string, found %s", v.Kind())
	}
	return s, nil
}

// onText makes a filter of a method of strings.
func onText(method func(st filters.State, s string, args []value.Value, named map[string]value.Value) (value.Value, error)) minijinja.FilterFunc {
	return func(st filters.State, v value.Value, args []value.Value, named map[string]value.Value) (value.Value, error) {
		s, err := text(v)
		if err != nil {
			return v, err
		}
		return method(st, s, args, named)
	}
}

func argument(args []value.Value, named map[string]value.Value, i int, name string) value.Value {
	if i < len(args) {
		return args[i]
	}
	if v, ok := named[name]; ok {
		return v
	}
	return value.Undefined()
}

func strip(space func(string) string, set func(s, cutset string) string) minijinja.FilterFunc {
	return onText(func(_ filters.State, s string, args []value.Value, _ map[string]value.Value) (value.Value, error) {
		if len(args) == 0 || args[0].IsNone() {
			return value.FromString(space(s)), nil
		}
		cutset, err := text(args[0])
		return value.FromString(set(s, cutset)), err
	})
}

// splitter reads the arguments of split and rsplit. sep "" means any white space, limit -1 no
// limit.
func splitter(args []value.Value, named map[string]value.Value) (sep string, limit int, err error) {
	limit = -1
	if a := argument(args, named, 0, "sep"); !a.IsNone() && !a.IsUndefined() {
		if sep, err = text(a); err == nil && sep == "" {
			err = fmt.Errorf("split at an empty string")
		}
	}
	if n, ok := argument(args, named, 1, "maxsplit").AsInt(); ok && n >= 0 && n < 1<<30 {
		limit = int(n)
	}
	return
}

func split(st filters.State, s string, args []value.Value, named map[string]value.Value) (value.Value, error) {
	sep, limit, err := splitter(args, named)
	if err != nil {
		return value.Undefined(), err
	}
	var parts []string
	switch {
	case sep != "" && limit >= 0:
		parts = strings.SplitN(s, sep, limit+1)
	case sep != "":
		parts = strings.Split(s, sep)
	case limit < 0:
		parts = strings.Fields(s)
	default:
		for s = strings.TrimSpace(s); s != "" && len(parts) < limit; s = strings.TrimLeftFunc(s, unicode.IsSpace) {
			end := strings.IndexFunc(s, unicode.IsSpace)
			if end < 0 {
				end = len(s)
			}
			parts = append(parts, s[:end])
			s = s[end:]
		}
		if s != "" {
			parts = append(parts, s)
		}
	}
	return texts(st, parts)
}

func rsplit(st filters.State, s string, args []value.Value, named map[string]value.Value) (value.Value, error) {
	sep, limit, err := splitter(args, named)
	if err != nil {
		return value.Undefined(), err
	}
	if limit < 0 {
		return split(st, s, args, named)
	}
	if sep == "" {
		return value.Undefined(), fmt.Errorf("rsplit at white space with a limit is not supported")
	}
	var parts []string
	for i := strings.LastIndex(s, sep); i >= 0 && len(parts) < limit; i = strings.LastIndex(s, sep) {
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return texts(st, parts)
}

func splitlines(st filters.State, s string, _ []value.Value, _ map[string]value.Value) (value.Value, error) {
	return texts(st, lines(s))
}

// lines are the lines of a text, without their ends.
func lines(s string) []string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	parts := strings.Split(s, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}

func texts(s filters.State, parts []string) (value.Value, error) {
	if err := meterOf(s).take(valueBytes * len(parts)); err != nil {
		return value.Undefined(), err
	}
	list := make([]value.Value, len(parts))
	for i, p := range parts {
		list[i] = value.FromString(p)
	}
	return value.FromSlice(list), nil
}

// repeat counts n copies of s.
func (m *meter) repeat(s string, n int) error {
	if len(s) > 0 && n > m.left/len(s) {
		return m.fail(errBytes)
	}
	return m.take(n * len(s))
}

func replace(st filters.State, s string, args []value.Value, named map[string]value.Value) (value.Value, error) {
	old, err := text(argument(args, named, 0, "old"))
	if err != nil {
		return value.Undefined(), err
	}
	with, err := text(argument(args, named, 1, "new"))
	if err != nil {
		return value.Undefined(), err
	}
	limit := -1
	if n, ok := argument(args, named, 2, "count").AsInt(); ok && n >= 0 && n < 1<<30 {
		limit = int(n)
	}
	if err := meterOf(st).repeat(with, strings.Count(s, old)); err != nil {
		return value.Undefined(), err
	}
	return value.FromString(strings.Replace(s, old, with, limit)), nil
}

func join(st filters.State, sep string, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	if len(args) != 1 {
		return value.Undefined(), fmt.Errorf("join wants a list")
	}
	var parts []string
	for _, item := range args[0].Iter() {
		s, err := text(item)
		if err != nil {
			return item, err
		}
		parts = append(parts, s)
	}
	if err := meterOf(st).repeat(sep, len(parts)); err != nil {
		return value.Undefined(), err
	}
	return value.FromString(strings.Join(parts, sep)), nil
}

// affix is startswith or endswith of a text or of any text of a list.
func affix(has func(s, t string) bool) minijinja.FilterFunc {
	return onText(func(_ filters.State, s string, args []value.Value, _ map[string]value.Value) (value.Value, error) {
		if len(args) != 1 {
			return value.Undefined(), fmt.Errorf("expected 1 argument, found %d", len(args))
		}
		list, ok := args[0].AsSlice()
		if !ok {
			list = args
		}
		for _, a := range list {
			t, err := text(a)
			if err != nil {
				return a, err
			}
			if has(s, t) {
				return value.True(), nil
			}
		}
		return value.False(), nil
	})
}

// format puts the arguments in place of {} in their order. Other fields are not supported.
func format(_ filters.State, s string, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	parts := strings.Split(s, "{}")
	if len(parts)-1 != len(args) || strings.ContainsAny(strings.Join(parts, ""), "{}") {
		return value.Undefined(), fmt.Errorf("format: %q does not have {} for each of %d arguments, or has other fields", s, len(args))
	}
	var b strings.Builder
	for i, p := range parts {
		b.WriteString(p)
		if i < len(args) {
			b.WriteString(args[i].String())
		}
	}
	return value.FromString(b.String()), nil
}

func oneText(f func(s, t string) value.Value) minijinja.FilterFunc {
	return onText(func(_ filters.State, s string, args []value.Value, _ map[string]value.Value) (value.Value, error) {
		if len(args) != 1 {
			return value.Undefined(), fmt.Errorf("expected 1 argument, found %d", len(args))
		}
		t, err := text(args[0])
		if err != nil {
			return args[0], err
		}
		return f(s, t), nil
	})
}

func noText(f func(s string) value.Value) minijinja.FilterFunc {
	return onText(func(_ filters.State, s string, _ []value.Value, _ map[string]value.Value) (value.Value, error) {
		return f(s), nil
	})
}

// all tests that a text is not empty and has only such characters.
func all(is func(r rune) bool) minijinja.FilterFunc {
	return noText(func(s string) value.Value {
		return value.FromBool(s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0)
	})
}

// index is a position in characters.
func index(s string, i int) value.Value {
	if i < 0 {
		return value.FromInt(-1)
	}
	return value.FromInt(int64(len([]rune(s[:i]))))
}

func capitalize(s string) string {
	r := []rune(strings.ToLower(s))
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r)
}

func title(s string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		before := inside
		inside = unicode.IsLetter(r)
		if before {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

// onDict makes a filter of a method of mappings.
func onDict(method func(s filters.State, v value.Value, args []value.Value) (value.Value, error)) minijinja.FilterFunc {
	return func(s filters.State, v value.Value, args []value.Value, _ map[string]value.Value) (value.Value, error) {
		if _, ok := v.AsMap(); !ok {
			return v, fmt.Errorf("expected a mapping, found %s", v.Kind())
		}
		return method(s, v, args)
	}
}

func get(_ filters.State, v value.Value, args []value.Value) (value.Value, error) {
	fields, _ := v.AsMap()
	if len(args) < 1 || len(args) > 2 {
		return v, fmt.Errorf("get wants 1 or 2 arguments, found %d", len(args))
	}
	if found, ok := fields[args[0].String()]; ok {
		return found, nil
	}
	if len(args) == 2 {
		return args[1], nil
	}
	return value.None(), nil
}

func values(_ filters.State, v value.Value, _ []value.Value) (value.Value, error) {
	fields, _ := v.AsMap()
	var list []value.Value
	for _, key := range v.Iter() {
		list = append(list, fields[key.String()])
	}
	return value.FromSlice(list), nil
}
