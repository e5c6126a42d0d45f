package cmdline

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
