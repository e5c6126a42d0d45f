package cmdline

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// Man writes the manual page of app in section 1, in roff with the man macros: the app, then every
// command with its examples and all of its flags.
func Man(w io.Writer, app *cli.App) error {
	m := &manPage{}
	m.macro("TH", strings.ToUpper(app.Name), "1", "", app.Name, "User Commands")
	m.macro("SH", "NAME")
	m.text(app.Name + " - " + app.Usage)
	m.macro("SH", "SYNOPSIS")
	m.line(`\fB` + roff(app.Name) + `\fR \fICOMMAND\fR [\fIFLAGS\fR] [\fIARGUMENTS\fR]`)
	m.macro("SH", "DESCRIPTION")
	m.text(app.Description)
	m.macro("SH", "COMMANDS")
	eachCommand(app.Name, app.Commands, m.command)
	_, err := io.WriteString(w, m.String())
	return err
}

type manPage struct{ strings.Builder }

// command writes a subsection: a command's description, its examples and all of its flags.
func (m *manPage) command(path string, c *cli.Command) {
	m.macro("SS", strings.TrimSpace(path+" [FLAGS] "+c.ArgsUsage))
	m.text(sentence(c.Usage))
	if c.Description != "" {
		m.macro("PP")
		m.text(c.Description)
	}
	if c.UsageText != "" {
		m.macro("PP")
		m.macro("EX")
		for line := range strings.Lines(c.UsageText) {
			m.line(roff(strings.TrimSuffix(line, "\n")))
		}
		m.macro("EE")
	}
	for _, f := range byCategory(c.Flags) {
		names, usage := describe(f)
		m.macro("TP")
		m.line(`\fB` + roff(names) + `\fR`)
		m.text(usage)
	}
}

// macro writes a request with its arguments.
func (m *manPage) macro(name string, args ...string) {
	m.WriteString("." + name)
	for _, a := range args {
		fmt.Fprintf(m, ` "%s"`, strings.ReplaceAll(roff(a), `"`, `\(dq`))
	}
	m.WriteByte('\n')
}

// text writes paragraphs that blank lines separate.
func (m *manPage) text(s string) {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			m.macro("PP")
			continue
		}
		m.line(roff(line))
	}
}

func (m *manPage) line(s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s // no request
	}
	m.WriteString(s + "\n")
}

// roff escapes text.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\(rs`, "-", `\-`, "`", `\(ga`).Replace(s)
}
