package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/lowbit-go/gq/accuracy"
)

// listed is how many failures, tensors and tokens are shown unless all are wanted.
const listed = 10

type TextOptions struct {
	// Verbose lists all tensors and conditions. Default: false.
	Verbose bool
	// Color colours the gate's verdict, for a terminal that understands ECMA-48. Default: false.
	Color bool
}

// Text writes a report for a terminal. The first lines say whether the gate is met. If not, they
// list the failed conditions, by how much, the tensors to blame, and changes to try.
func Text(w io.Writer, r *accuracy.Report, o TextOptions) error {
	var b bytes.Buffer
	gateText(&b, r, o)
	heads := headline(r)
	if s := timing(r); s != "" {
		heads = append(heads, [2]string{"time", s})
	}
	limit, tokens := 5, 5
	if o.Verbose {
		limit, tokens = 0, listed
	}
	list := byLoss(r)
	title := "Tensors that lost most"
	if limit == 0 {
		title = "Tensors"
	}
	tables := append(models(r), byKind(r), tensors(list, title, limit), unquantized(r))
	tables = append(tables, worstTokens(r, tokens)...)
	if o.Verbose {
		tables = append(append(tables, positions(r)...), parity(r), conditions(r))
	}
	writeText(&b, heads, tables)
	_, err := w.Write(b.Bytes())
	return err
}

func writeText(b *bytes.Buffer, heads [][2]string, tables []*table) {
	for _, l := range heads {
		fmt.Fprintf(b, "%-8s  %s\n", l[0], l[1])
	}
	for _, t := range withRows(tables...) {
		fmt.Fprintf(b, "\n%s\n", t.title)
		t.text(b)
	}
}

func gateText(b *bytes.Buffer, r *accuracy.Report, o TextOptions) {
	g := r.Gate
	if g == nil {
		return
	}
	if g.Passed {
		fmt.Fprintf(b, "%s  %s: %s\n\n", o.colored(green, "GATE MET"), text(g.Gate), checked(g))
		return
	}
	fmt.Fprintf(b, "%s  %s: %s\n", o.colored(red, "GATE NOT MET"), text(g.Gate), failed(g))
	most := listed
	if o.Verbose {
		most = len(g.Failures)
	}
	for _, l := range failures(g, most) {
		fmt.Fprintf(b, "  %s\n", l)
	}
	list := func(head string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(b, "  %s:\n    %s\n", head, strings.Join(lines, "\n    "))
		}
	}
	list("to blame, worst first", blame(g))
	list("to try with gq quantize", tries(g))
	b.WriteByte('\n')
}

// The colours of a verdict, as parameters of ECMA-48's Select Graphic Rendition: bold, and a
// foreground colour that every palette has.
const (
	green = "1;32"
	red   = "1;31"
)

// colored returns s in a colour, if the text has colours.
func (o TextOptions) colored(color, s string) string {
	if !o.Color {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func checked(g *accuracy.GateResult) string {
	return fmt.Sprintf("%s, %s%s", count(len(g.Conditions), "condition"), count(g.Checked, "figure"), notRun(g))
}

// notRun says that only tensors were checked; "" if the model was run.
func notRun(g *accuracy.GateResult) string {
	if g.ModelRun {
		return ""
	}
	return "; the model was not run"
}

// failed counts: "2 of 5 conditions are not met".
func failed(g *accuracy.GateResult) string {
	n := 0
	for i := range g.Conditions {
		if !g.Conditions[i].Passed() {
			n++
		}
	}
	is := "are"
	if n == 1 {
		is = "is"
	}
	return fmt.Sprintf("%d of %s %s not met%s", n, count(len(g.Conditions), "condition"), is, notRun(g))
}

// failures describes at most most failures, and counts the others.
func failures(g *accuracy.GateResult, most int) (lines []string) {
	for _, f := range g.Failures[:min(most, len(g.Failures))] {
		lines = append(lines, text(f.String()))
	}
	if n := len(g.Failures) - len(lines); n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return lines
}

func blame(g *accuracy.GateResult) (lines []string) {
	for _, t := range g.Blame {
		lines = append(lines, fmt.Sprintf("%s (%d bits): %s %v", text(t.Tensor), t.Bits, t.Of, t.SQNR))
	}
	return lines
}

func tries(g *accuracy.GateResult) (lines []string) {
	for _, t := range g.Try {
		lines = append(lines, fmt.Sprintf("%s (%s)", text(t.Flags), t.Why))
	}
	return lines
}

// text writes aligned columns, numbers to the right, without empty columns.
func (t *table) text(w io.Writer) {
	widths, filled := make([]int, len(t.heads)), make([]bool, len(t.heads))
	for i, h := range t.heads {
		widths[i] = utf8.RuneCountInString(strings.TrimSuffix(h, ">"))
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
			filled[i] = filled[i] || c != ""
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		var parts []string
		for i, c := range cells {
			if !filled[i] {
				continue
			}
			if strings.HasSuffix(t.heads[i], ">") {
				c = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)) + c
			}
			parts = append(parts, c)
		}
		fmt.Fprintln(tw, strings.TrimRight("  "+strings.Join(parts, "\t"), " \t"))
	}
	heads := make([]string, len(t.heads))
	for i, h := range t.heads {
		heads[i] = strings.TrimSuffix(h, ">")
	}
	line(heads)
	for _, row := range t.rows {
		line(row)
	}
	tw.Flush()
}

// Extensions lists the file name extensions that Write supports.
func Extensions() []string { return []string{".html", ".md", ".xml", ".json", ".txt"} }

func Write(w io.Writer, extension string, r *accuracy.Report) error {
	text := func(w io.Writer, r *accuracy.Report) error { return Text(w, r, TextOptions{Verbose: true}) }
	write := map[string]func(io.Writer, *accuracy.Report) error{
		".html": HTML, ".md": Markdown, ".xml": JUnit, ".json": writeJSON[*accuracy.Report], ".txt": text,
	}[extension]
	if write == nil {
		return fmt.Errorf("no report is written as %q", extension)
	}
	return write(w, r)
}

// writeJSON writes a report with the keys of docs/accuracy-report.schema.json, or one of a sweep.
func writeJSON[R any](w io.Writer, r R) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Markdown writes a report as a comment for a pull request: the gate, then collapsed tables.
func Markdown(w io.Writer, r *accuracy.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Accuracy of %s\n\n", code(r.File))
	if g := r.Gate; g != nil {
		if g.Passed {
			fmt.Fprintf(&b, "**Gate %s: met.** %s.\n\n", code(g.Gate), checked(g))
		} else {
			fmt.Fprintf(&b, "**Gate %s: NOT MET.** %s:\n\n", code(g.Gate), failed(g))
			list := func(lines []string) {
				for _, l := range lines {
					fmt.Fprintf(&b, "- %s\n", escapeMarkdown(l))
				}
				b.WriteByte('\n')
			}
			list(failures(g, listed))
			if len(g.Blame) > 0 {
				b.WriteString("To blame, worst first:\n\n")
				list(blame(g))
			}
			if len(g.Try) > 0 {
				b.WriteString("To try with `gq quantize`:\n\n")
				for _, t := range g.Try {
					fmt.Fprintf(&b, "- %s: %s\n", code(t.Flags), escapeMarkdown(t.Why))
				}
				b.WriteByte('\n')
			}
		}
	}
	writeMarkdown(&b, headline(r), append(models(r), byKind(r)))
	// A GitHub comment holds 65,536 characters.
	tables := append([]*table{conditions(r), unquantized(r), tensors(byLoss(r), "Tensors that lost most", 2*listed)}, positions(r)...)
	tables = append(tables, worstTokens(r, listed)...)
	for _, t := range withRows(append(tables, parity(r))...) {
		more := 0
		if n := 5 * listed; len(t.rows) > n {
			more, t.rows = len(t.rows)-n, t.rows[:n]
		}
		fmt.Fprintf(&b, "<details><summary>%s</summary>\n\n", escapeMarkdown(t.title))
		t.markdown(&b)
		if more > 0 {
			fmt.Fprintf(&b, "and %d more\n\n", more)
		}
		b.WriteString("</details>\n\n")
	}
	_, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

func writeMarkdown(b *bytes.Buffer, heads [][2]string, tables []*table) {
	for _, l := range heads {
		fmt.Fprintf(b, "- %s: %s\n", l[0], escapeMarkdown(l[1]))
	}
	b.WriteByte('\n')
	for _, t := range withRows(tables...) {
		fmt.Fprintf(b, "### %s\n\n", escapeMarkdown(t.title))
		t.markdown(b)
	}
}

func (t *table) markdown(b *bytes.Buffer) {
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(b, "| %s ", escapeMarkdown(c))
		}
		b.WriteString("|\n")
	}
	heads, rules := make([]string, len(t.heads)), ""
	for i, h := range t.heads {
		var right bool
		heads[i], right = strings.CutSuffix(h, ">")
		if rules += "|---"; right {
			rules += ":"
		}
	}
	line(heads)
	b.WriteString(rules + "|\n")
	for _, row := range t.rows {
		line(row)
	}
	if t.note != "" {
		fmt.Fprintf(b, "\n%s\n", escapeMarkdown(t.note))
	}
	b.WriteByte('\n')
}

func escapeMarkdown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, s)
	return strings.NewReplacer(
		"\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "<", "&lt;", ">", "&gt;", "&", "&amp;", "|", "\\|", "#", "\\#", "~", "\\~", "@", "@\u200b",
	).Replace(s)
}

func code(s string) string {
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + text(s) + " " + fence
	}
	return fence + text(s) + fence
}
