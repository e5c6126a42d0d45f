package cmdline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// Shape spells the shape of a tensor: "4096x1024", "scalar" without dimensions.
func Shape(dims []int64) string {
	if len(dims) == 0 {
		return "scalar"
	}
	var b strings.Builder
	for i, d := range dims {
		if i > 0 {
			b.WriteByte('x')
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	return b.String()
}

// Text makes a string from a file safe for a terminal. It quotes the string if it is empty, looks
// quoted, or has characters that a terminal does not show.
func Text(s string) string {
	if s == "" || s[0] == '"' || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Table prints lines with aligned columns below headings. Columns whose heading ends in ">" are
// aligned right, for numbers, other columns left. Cells are formatted by fmt.Sprint. Columns that
// are empty in every line are left out.
//
// lines calls line for each line. It is called twice, first to measure, so a table of 100,000
// tensors is never in memory as a whole.
func Table(w io.Writer, heads []string, lines func(line func(cells ...any))) error {
	widths, right := make([]int, len(heads)), make([]bool, len(heads))
	titles := make([]any, len(heads))
	for i, h := range heads {
		h, right[i] = strings.CutSuffix(h, ">")
		titles[i] = h
	}
	lines(func(cells ...any) {
		for i, c := range cells {
			if n := utf8.RuneCountInString(fmt.Sprint(c)); n > 0 {
				widths[i] = max(widths[i], n, len(titles[i].(string)))
			}
		}
	})
	var err error
	var b bytes.Buffer
	line := func(cells ...any) {
		b.Reset()
		for i, c := range cells {
			if widths[i] == 0 {
				continue
			}
			width := widths[i]
			if !right[i] {
				width = -width
			}
			fmt.Fprintf(&b, "%*s  ", width, fmt.Sprint(c))
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", bytes.TrimRight(b.Bytes(), " "))
		}
	}
	line(titles...)
	lines(line)
	return err
}

// Bytes writes a number of bytes with three digits and a decimal unit: "999 B", "1.23 kB", "45.6
// MB".
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	x := float64(n)
	const units = "kMGTPE" // an int64 is below 9.3 EB
	unit := -1
	for x >= 999.5 { // would print as 1000
		x /= 1000
		unit++
	}
	decimals := 0
	switch {
	case x < 9.995:
		decimals = 2
	case x < 99.95:
		decimals = 1
	}
	return fmt.Sprintf("%.*f %cB", decimals, x, units[unit])
}

// byteUnits are units of sizes; longer ones before their endings.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}, {"b", 1}, {"", 1},
}

// ParseBytes reads a number of bytes: "700MB", "650 MiB", "1.5GB", "123456".
func ParseBytes(s string) (int64, error) {
	word := strings.ToLower(s)
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(word, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v > 0) || float64(v*u.bytes) >= 1<<62 || strings.ContainsAny(number, "xp_") {
			break
		}
		return int64(v * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is no size: write bytes, or a number with kB, MB, GB, KiB, MiB or GiB", s)
}

// Count writes a number as Bytes does: "12.3 k".
func Count(n int64) string { return strings.TrimRight(strings.TrimSuffix(Bytes(n), "B"), " ") }

// Show prints the result of a job that ended with err: as JSON with --json, else by print.
func Show[T any](c *cli.Context, result T, err error, print func(w io.Writer, result T) error) error {
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return PrintJSON(c.App.Writer, result)
	}
	return print(c.App.Writer, result)
}

// PrintJSON writes v as indented JSON with a newline at the end, without escapes for HTML. If v is
// a struct, the elements of lists in its fields are written one by one: encoding/json would hold
// the text of 200,000 tensors twice (700 MB). JSON in a field keeps its bytes: indented, 10 MB of
// it may become gigabytes.
func PrintJSON(w io.Writer, v any) error {
	p := &jsonPrinter{w: w}
	p.encoder = json.NewEncoder(&p.text)
	p.encoder.SetEscapeHTML(false)
	if s := reflect.Indirect(reflect.ValueOf(v)); s.Kind() == reflect.Struct {
		p.fields(s)
	} else {
		p.value("", v)
	}
	p.put("\n")
	return p.err
}

// A jsonPrinter keeps the first error and writes nothing after it.
type jsonPrinter struct {
	w       io.Writer
	err     error
	text    bytes.Buffer
	encoder *json.Encoder // to text
}

func (p *jsonPrinter) put(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

// value writes v; the lines after its first begin with indent.
func (p *jsonPrinter) value(indent string, v any) {
	if p.err != nil {
		return
	}
	p.text.Reset()
	p.encoder.SetIndent(indent, "  ")
	if p.err = p.encoder.Encode(v); p.err == nil {
		_, p.err = p.w.Write(bytes.TrimSuffix(p.text.Bytes(), []byte("\n")))
	}
}

// fields writes the outermost struct by the rules of encoding/json for names, omitempty and
// embedded structs.
func (p *jsonPrinter) fields(s reflect.Value) {
	before := "{\n  "
	for _, f := range reflect.VisibleFields(s.Type()) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		v := s.FieldByIndex(f.Index)
		if opts == "omitempty" && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		p.put(before)
		before = ",\n  "
		p.value("", name)
		p.put(": ")
		if raw, ok := v.Interface().(json.RawMessage); ok && len(raw) > 0 {
			p.put(string(bytes.TrimSpace(raw)))
		} else if v.Kind() == reflect.Slice && v.Len() > 0 && reflect.Indirect(v.Index(0)).Kind() == reflect.Struct {
			p.list(v)
		} else {
			p.value("  ", v.Interface())
		}
	}
	p.put("\n}")
}

// list writes the elements of a list that is a field.
func (p *jsonPrinter) list(l reflect.Value) {
	before := "[\n    "
	for i := range l.Len() {
		p.put(before)
		before = ",\n    "
		p.value("    ", reflect.Indirect(l.Index(i)).Addr().Interface())
	}
	p.put("\n  ]")
}
