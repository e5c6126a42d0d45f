package cmdline

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// Advanced is the category of flags that only --help-all shows.
const Advanced = "Advanced"

// common is the category of flags that many commands have.
const common = "Common"

// helpColumn is where the descriptions of flags and commands begin.
const helpColumn = 28

// help writes help for a command of app, or for app itself if c is nil. path has the words that
// call the command. all includes the flags of the category Advanced.
func help(w io.Writer, app *cli.App, c *cli.Command, path string, all bool, width int) error {
	if c == nil {
		c = &cli.Command{Usage: app.Usage, UsageText: app.UsageText, Description: app.Description, Subcommands: app.Commands, Flags: app.Flags, ArgsUsage: "COMMAND"}
	}
	p := &page{width: width}
	p.paragraph("", path+" - "+c.Usage)
	if c.UsageText != "" {
		p.heading("Examples")
		for line := range strings.Lines(c.UsageText) {
			p.WriteString("  " + line)
		}
	}
	p.heading("Usage")
	args := c.ArgsUsage
	if len(c.Subcommands) > 0 {
		args = cmp.Or(args, "COMMAND")
	}
	p.WriteString(strings.TrimRight("  "+path+" [FLAGS] "+args, " ") + "\n")
	if c.Description != "" {
		p.WriteByte('\n')
		p.text(c.Description)
	}
	if len(c.Subcommands) > 0 {
		p.heading("Commands")
		for _, sub := range c.Subcommands {
			if !sub.Hidden {
				p.entry(sub.Name, sub.Usage)
			}
		}
	}
	hidden := p.flags(c.Flags, all)
	if len(c.Subcommands) > 0 {
		p.WriteByte('\n')
		p.paragraph("", path+" COMMAND --help shows the flags and examples of a command.")
	}
	if hidden > 0 {
		p.WriteByte('\n')
		more := "flags"
		if hidden == 1 {
			more = "flag"
		}
		p.paragraph("", fmt.Sprintf("%s --help-all shows %d more %s.", path, hidden, more))
	}
	_, err := w.Write(p.Bytes())
	return err
}

// page collects the text of help.
type page struct {
	bytes.Buffer
	width int
}

func (p *page) heading(title string) { fmt.Fprintf(p, "\n%s:\n", title) }

// text writes paragraphs that blank lines separate. Indented lines stay as they are.
func (p *page) text(s string) {
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			p.paragraph("", strings.Join(paragraph, " "))
			paragraph = nil
		}
	}
	for _, line := range strings.Split(s, "\n") {
		switch {
		case line == "":
			flush()
			p.WriteByte('\n')
		case line[0] == ' ':
			flush()
			p.WriteString(line + "\n")
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
}

func (p *page) paragraph(indent, s string) {
	column := 0
	for _, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			p.WriteString(indent)
			column = len(indent)
		case column+1+n > p.width:
			p.WriteString("\n" + indent)
			column = len(indent)
		default:
			p.WriteByte(' ')
			column++
		}
		p.WriteString(word)
		column += n
	}
	p.WriteByte('\n')
}

// entry writes a name and, in the next column, its description.
func (p *page) entry(name, usage string) {
	left := "  " + name
	column := min(helpColumn, p.width/2)
	if usage == "" {
		p.WriteString(left + "\n")
		return
	}
	if utf8.RuneCountInString(left)+2 > column {
		p.WriteString(left + "\n")
		p.paragraph(strings.Repeat(" ", column), usage)
		return
	}
	var body page
	body.width = p.width
	body.paragraph(strings.Repeat(" ", column), usage)
	p.WriteString(fmt.Sprintf("%-*s", column, left) + body.String()[min(column, body.Len()):])
}

// flags writes flags by category and returns how many it left out.
func (p *page) flags(flags []cli.Flag, all bool) (hidden int) {
	var group string
	for _, f := range byCategory(flags) {
		name := cmp.Or(category(f), "Flags")
		if name == Advanced && !all {
			hidden++
			continue
		}
		if name != group {
			p.heading(name)
			group = name
		}
		names, usage := describe(f)
		p.entry(names, usage)
	}
	return hidden
}

// byCategory returns the visible flags by category. Categories are in the order of their first
// flags, common flags and Advanced last.
func byCategory(flags []cli.Flag) []cli.Flag {
	var visible []cli.Flag
	order := map[string]int{common: len(flags), Advanced: len(flags) + 1}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		visible = append(visible, f)
		if _, ok := order[category(f)]; !ok {
			order[category(f)] = len(order)
		}
	}
	slices.SortStableFunc(visible, func(a, b cli.Flag) int { return order[category(a)] - order[category(b)] })
	return visible
}

func category(f cli.Flag) string {
	if c, ok := f.(cli.CategorizableFlag); ok {
		return c.GetCategory()
	}
	return ""
}

// describe returns the names of a flag with the name of its value ("-o, --output FILE"), and its
// description with the default.
func describe(f cli.Flag) (names, usage string) {
	value, usage := valueName(f)
	var list []string
	for _, n := range f.Names() {
		list = append(list, dashed(n))
	}
	if len(list) > 1 && len(list[0]) > len(list[1]) {
		list[0], list[1] = list[1], list[0] // the short one first
	}
	names = strings.TrimRight(strings.Join(list, ", ")+" "+value, " ")
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok || !doc.TakesValue() {
		return names, usage
	}
	if d := doc.GetDefaultText(); d != "" {
		usage += " (default: " + strings.Trim(d, `"`) + ")"
	}
	return names, usage
}

// valueName splits the usage text of a flag into the name of its value, which is in backquotes, and
// the text without quotes: "`BITS`: bits per code" has the value BITS and reads "bits per code".
func valueName(f cli.Flag) (value, usage string) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return "", ""
	}
	usage = doc.GetUsage()
	if !doc.TakesValue() {
		return "", usage
	}
	before, rest, _ := strings.Cut(usage, "`")
	value, after, quoted := strings.Cut(rest, "`")
	if !quoted {
		return "", usage
	}
	if after, ok := strings.CutPrefix(after, ": "); ok && before == "" {
		return value, after
	}
	return value, before + value + after
}
