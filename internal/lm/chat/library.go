package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/filters"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/syntax"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/tests"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// Names that rewrite puts into a template.
const (
	chargeFilter = "gq_charge"
	factorFilter = "gq_factor"
	loopFilter   = "gq_loop"
	itemFilter   = "gq_item"
	methodPrefix = "py_"
)

// newEnvironment makes an environment in transformers' configuration of jinja2: blocks are trimmed,
// and raise_exception, strftime_now and tojson are transformers' own. No other template can be
// loaded.
func newEnvironment() *minijinja.Environment {
	e := minijinja.EmptyEnvironment()
	e.SetWhitespace(syntax.WhitespaceConfig{TrimBlocks: true, LstripBlocks: true})
	fuel := uint64(maxSteps)
	e.SetFuel(&fuel)
	add := func(count func(*meter, value.Value) error, list map[string]minijinja.FilterFunc) {
		for name, f := range list {
			e.AddFilter(name, metered(f, count))
		}
	}
	add((*meter).shallow, map[string]minijinja.FilterFunc{
		"default": filters.FilterDefault, "d": filters.FilterDefault, "length": filters.FilterLength, "count": filters.FilterLength,
	})
	add((*meter).items, map[string]minijinja.FilterFunc{
		"first": filters.FilterFirst, "last": filters.FilterLast, "list": filters.FilterList, "reverse": filters.FilterReverse,
		"items": filters.FilterItems,
	})
	add((*meter).valueItems, map[string]minijinja.FilterFunc{
		"sum": filters.FilterSum, "min": filters.FilterMin, "max": filters.FilterMax, "sort": filters.FilterSort, "unique": filters.FilterUnique,
		"dictsort": filters.FilterDictSort, "map": filters.FilterMap, "select": filters.FilterSelect, "reject": filters.FilterReject,
		"selectattr": filters.FilterSelectAttr, "rejectattr": filters.FilterRejectAttr, "join": joinFilter,
	})
	add((*meter).value, map[string]minijinja.FilterFunc{
		"upper": filters.FilterUpper, "lower": filters.FilterLower, "capitalize": filters.FilterCapitalize, "title": filters.FilterTitle,
		"trim": filters.FilterTrim, "string": filters.FilterString, "safe": filters.FilterSafe, "escape": filters.FilterEscape,
		"e": filters.FilterEscape, "int": filters.FilterInt, "float": filters.FilterFloat, "abs": filters.FilterAbs,
		"attr": filters.FilterAttr, "replace": replaceFilter, "indent": indentFilter, "tojson": toJSON,
	})
	for name, f := range methods {
		e.AddFilter(methodPrefix+name, metered(f, (*meter).value))
	}
	e.AddFilter(chargeFilter, charge)
	e.AddFilter(factorFilter, factor)
	e.AddFilter(loopFilter, loop)
	e.AddFilter(itemFilter, item)
	addTests(e)
	e.AddFunction("range", rangeFunction)
	e.AddFunction("namespace", namespaceFunction)
	e.AddFunction("raise_exception", raiseException)
	e.AddFunction("strftime_now", strftimeNow)
	return e
}

func addTests(e *minijinja.Environment) {
	for name, f := range map[string]minijinja.TestFunc{
		"defined": tests.TestDefined, "undefined": tests.TestUndefined, "none": tests.TestNone, "true": tests.TestTrue, "false": tests.TestFalse,
		"string": tests.TestString, "number": tests.TestNumber, "integer": tests.TestInteger, "float": tests.TestFloat,
		"boolean": tests.TestBoolean, "mapping": tests.TestMapping, "iterable": tests.TestIterable, "sequence": sequence,
		"odd": tests.TestOdd, "even": tests.TestEven, "divisibleby": tests.TestDivisibleBy, "callable": callable,
	} {
		e.AddTest(name, f)
	}
	for names, f := range map[string]minijinja.TestFunc{
		"eq equalto ==": tests.TestEq, "ne !=": tests.TestNe, "lt lessthan <": tests.TestLt, "le <=": tests.TestLe,
		"gt greaterthan >": tests.TestGt, "ge >=": tests.TestGe, "in": tests.TestIn, "sameas": tests.TestSameAs,
		"lower": tests.TestLower, "upper": tests.TestUpper,
	} {
		for _, name := range strings.Fields(names) {
			e.AddTest(name, meteredTest(f))
		}
	}
}

// metered counts the value and the arguments of a filter before the filter runs, and then the
// result.
func metered(f minijinja.FilterFunc, count func(*meter, value.Value) error) minijinja.FilterFunc {
	return func(s filters.State, v value.Value, args []value.Value, named map[string]value.Value) (value.Value, error) {
		m := meterOf(s)
		if err := count(m, v); err != nil {
			return v, err
		}
		for _, a := range args {
			if err := m.value(a); err != nil {
				return v, err
			}
		}
		for _, a := range named {
			if err := m.value(a); err != nil {
				return v, err
			}
		}
		out, err := f(s, whole(v), args, named)
		if err != nil {
			return out, err
		}
		return out, count(m, out)
	}
}

func meteredTest(f minijinja.TestFunc) minijinja.TestFunc {
	return func(s filters.State, v value.Value, args []value.Value) (bool, error) {
		for _, a := range append([]value.Value{v}, args...) {
			if err := meterOf(s).value(a); err != nil {
				return false, err
			}
		}
		return f(s, v, args)
	}
}

// sequence is Jinja's test: texts and mappings are sequences too.
func sequence(_ filters.State, v value.Value, _ []value.Value) (bool, error) {
	_, ok := v.Len()
	return ok, nil
}

func callable(_ filters.State, v value.Value, _ []value.Value) (bool, error) {
	return v.IsCallable(), nil
}

// replaceFilter is Jinja's replace(old, new, count).
func replaceFilter(s filters.State, v value.Value, args []value.Value, named map[string]value.Value) (value.Value, error) {
	return replace(s, v.String(), args, named)
}

// joinFilter counts the separators, then joins.
func joinFilter(s filters.State, v value.Value, args []value.Value, named map[string]value.Value) (value.Value, error) {
	if len(args) > 0 {
		n, _ := v.Len()
		if err := meterOf(s).repeat(args[0].String(), n); err != nil {
			return v, err
		}
	}
	return filters.FilterJoin(s, v, args, named)
}

// indentFilter is Jinja's indent(width, first, blank). minijinja's drops a line break at the end.
func indentFilter(s filters.State, v value.Value, args []value.Value, named map[string]value.Value) (value.Value, error) {
	width := int64(4)
	if n, ok := argument(args, named, 0, "width").AsInt(); ok {
		width = n
	}
	first, _ := argument(args, named, 1, "first").AsBool()
	blank, _ := argument(args, named, 2, "blank").AsBool()
	if width < 0 || width > maxFactor {
		return v, meterOf(s).fail(fmt.Errorf("an indentation of %d is not between 0 and %d", width, maxFactor))
	}
	list := lines(v.String() + "\n") // keeps a break at the end
	if err := meterOf(s).take(int(width) * len(list)); err != nil {
		return v, err
	}
	indent := strings.Repeat(" ", int(width))
	for i, line := range list {
		if i == 0 && first || i > 0 && (line != "" || blank) {
			list[i] = indent + line
		}
	}
	return value.FromString(strings.Join(list, "\n")), nil
}

// toJSON is transformers' tojson: Python's json.dumps without escapes for HTML. Characters beyond
// ASCII are escaped only with ensure_ascii. Members of objects are sorted by name, since minijinja
// keeps no order.
func toJSON(_ filters.State, v value.Value, _ []value.Value, named map[string]value.Value) (value.Value, error) {
	indent := -1
	if n, ok := named["indent"].AsInt(); ok {
		indent = int(n)
	}
	if indent > 16 {
		return v, fmt.Errorf("tojson: an indent of %d is more than 16", indent)
	}
	plain, err := plainValue(v)
	if err != nil {
		return v, err
	}
	var compact, b bytes.Buffer
	e := json.NewEncoder(&compact)
	e.SetEscapeHTML(false)
	if err := e.Encode(plain); err != nil {
		return v, err
	}
	if err := json.Indent(&b, bytes.TrimSpace(compact.Bytes()), "", strings.Repeat(" ", max(indent, 0))); err != nil {
		return v, err
	}
	text := b.String()
	if indent < 0 { // Python separates elements by spaces; strings have no line breaks
		text = strings.NewReplacer(",\n", ", ", "\n", "").Replace(text)
	}
	if ascii, ok := named["ensure_ascii"].AsBool(); ok && ascii {
		text = escapeNonASCII(text)
	}
	return value.FromString(text), nil
}

// escapeNonASCII escapes all characters of a JSON text beyond ASCII as UTF-16. Only strings have
// such characters.
func escapeNonASCII(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// plainValue is v for package json. Numbers keep minijinja's spelling.
func plainValue(v value.Value) (plain any, err error) {
	if v.IsNone() {
		return nil, nil
	}
	if fields, ok := v.AsMap(); ok {
		object := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if object[key], err = plainValue(fields[key]); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	if text, ok := v.AsString(); ok {
		return text, nil
	}
	if list, ok := v.AsSlice(); ok {
		array := make([]any, len(list))
		for i := range list {
			if array[i], err = plainValue(list[i]); err != nil {
				return nil, err
			}
		}
		return array, nil
	}
	if truth, ok := v.AsBool(); ok {
		return truth, nil
	}
	if _, ok := v.AsFloat(); ok {
		return json.RawMessage(v.String()), nil
	}
	return nil, fmt.Errorf("tojson: a value of type %s has no JSON", v.Kind())
}

func rangeFunction(s *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	bounds := []int64{0, 0, 1}
	if len(args) < 1 || len(args) > 3 {
		return value.Undefined(), fmt.Errorf("range wants 1 to 3 numbers, got %d", len(args))
	}
	for i, a := range args {
		n, ok := a.AsInt()
		if !ok || n > 1<<40 || n < -1<<40 {
			return value.Undefined(), fmt.Errorf("range: %s is not a number in range", a.Kind())
		}
		bounds[i] = n
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if len(args) == 1 {
		start, stop = 0, bounds[0]
	}
	if step == 0 {
		return value.Undefined(), fmt.Errorf("range: the step is 0")
	}
	var list []value.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == maxRange {
			return value.Undefined(), meterOf(s).fail(fmt.Errorf("a range has more than %d numbers", maxRange))
		}
		list = append(list, value.FromInt(i))
	}
	return value.FromSlice(list), meterOf(s).take(valueBytes * len(list))
}

// namespace is an object with attributes that set statements change.
type namespace map[string]value.Value

func (n namespace) GetAttr(name string) value.Value {
	if v, ok := n[name]; ok {
		return v
	}
	return value.Undefined()
}
func (n namespace) SetAttr(name string, v value.Value) { n[name] = v }
func (n namespace) Map() map[string]value.Value        { return n }

func namespaceFunction(s *minijinja.State, args []value.Value, named map[string]value.Value) (value.Value, error) {
	n := namespace{}
	for _, a := range args {
		fields, ok := a.AsMap()
		if !ok {
			return value.Undefined(), fmt.Errorf("namespace wants a mapping, got %s", a.Kind())
		}
		maps.Copy(n, fields)
	}
	maps.Copy(n, named)
	return value.FromObject(n), meterOf(s).take(valueBytes * (1 + len(n)))
}

func raiseException(s *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	var words []string
	for _, a := range args {
		if err := meterOf(s).value(a); err != nil {
			return a, err
		}
		words = append(words, a.String())
	}
	return value.Undefined(), meterOf(s).fail(&RefusedError{refusal + strings.Join(words, " ")})
}

// strftimeNow formats the time with the codes of Python's strftime that dates need.
func strftimeNow(s *minijinja.State, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	if len(args) != 1 {
		return value.Undefined(), fmt.Errorf("strftime_now wants a format")
	}
	format, now := args[0].String(), meterOf(s).now
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := dateCodes[format[i]]
		if !ok {
			return value.Undefined(), fmt.Errorf("strftime_now: the code %%%c is not supported", format[i])
		}
		b.WriteString(now.Format(layout))
	}
	return value.FromString(b.String()), meterOf(s).take(b.Len())
}

// dateCodes has Go's layouts of Python's codes.
var dateCodes = map[byte]string{
	'd': "02", 'm': "01", 'Y': "2006", 'y': "06", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'e': "_2", '%': "%",
}
