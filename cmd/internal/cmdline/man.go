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
	m.commands(app.Name, app.Commands)
	_, err := io.WriteString(w, m.String())
	return err
}

type manPage struct{ strings.Builder }

// commands writes a subsection for each command that can be called by itself.
func (m *manPage) commands(path string, list []*cli.Command) {
	for _, c := range list {
		if c.Hidden {
			continue
		}
		name := path + " " + c.Name
		if len(c.Subcommands) > 0 {
			m.commands(name, c.Subcommands)
			continue
		}
		m.macro("SS", strings.TrimSpace(name+" [FLAGS] "+c.ArgsUsage))
		m.text(strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + ".")
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
		for _, f := range c.Flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			names, usage := describe(f)
			m.macro("TP")
			m.line(`\fB` + roff(names) + `\fR`)
			m.text(usage)
		}
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
