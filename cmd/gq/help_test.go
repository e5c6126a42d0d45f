package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// TestHelp checks every command's help: examples, a name for every value, at most 80 columns.
func TestHelp(t *testing.T) {
	var walk func(path []string, list []*cli.Command)
	walk = func(path []string, list []*cli.Command) {
		for _, c := range list {
			args := append(path[:len(path):len(path)], c.Name)
			walk(args, c.Subcommands)
			name := strings.Join(args, " ")
			if c.UsageText == "" && len(c.Subcommands) == 0 {
				t.Errorf("%s has no examples", name)
			}
			for line := range strings.Lines(c.UsageText) {
				if !strings.HasPrefix(line, "# ") && !strings.Contains(line, name) {
					t.Errorf("%s: example %q is of another command", name, line)
				}
			}
			for _, f := range c.Flags {
				if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() && strings.Count(d.GetUsage(), "`") != 2 {
					t.Errorf("%s --%s: its value has no name, a word in backquotes: %q", name, f.Names()[0], d.GetUsage())
				}
			}
			var out bytes.Buffer
			app := newApp()
			app.Writer = &out
			if code := cmdline.Run(t.Context(), app, append(args[:len(args):len(args)], "--help-all")); code != 0 {
				t.Errorf("%s --help-all: status %d", name, code)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 && !strings.HasPrefix(line, "  gq ") {
					t.Errorf("%s: %d columns: %q", name, n, line)
				}
			}
		}
	}
	walk([]string{"gq"}, newApp().Commands)
}
