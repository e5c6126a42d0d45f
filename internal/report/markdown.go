package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
)

// Markdown writes a report as a comment for a pull request: the gate, then collapsed tables.
func Markdown(w io.Writer, r *accuracy.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Accuracy of %s\n\n", code(r.File))
	if g := r.Gate; g != nil {
		if g.Passed {
			fmt.Fprintf(&b, "**Gate %s: met.** %s.\n\n", code(g.Gate), checked(g))
		} else {
			fmt.Fprintf(&b, "**Gate %s: NOT MET.** %s:\n\n", code(g.Gate), failed(g))
			for _, l := range failures(g, listed) {
				fmt.Fprintf(&b, "- %s\n", escapeMarkdown(l))
			}
			b.WriteByte('\n')
			if len(g.Blame) > 0 {
				b.WriteString("To blame, worst first:\n\n")
				for _, l := range blame(g) {
					fmt.Fprintf(&b, "- %s\n", escapeMarkdown(l))
				}
				b.WriteByte('\n')
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
