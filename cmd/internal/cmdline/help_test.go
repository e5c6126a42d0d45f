package cmdline

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func helpApp() *cli.App {
	return &cli.App{
		Name:  "gq",
		Usage: "a program",
		Commands: []*cli.Command{{
			Name:        "show",
			Usage:       "show a thing",
			ArgsUsage:   "FILE",
			UsageText:   "# a comment\ngq show file\n",
			Description: "One line\nand the next.\n\n  as it is\n\nA second paragraph.",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: "Basics", Value: "x.gqf", Usage: "`FILE` to write; words that go on beyond the end of the line"},
				&cli.IntFlag{Name: "bits", Category: "Basics", Value: 4, Usage: "`BITS`: of a code"},
				&cli.BoolFlag{Name: "json", Usage: "print JSON"},
				&cli.StringFlag{Name: "a-very-long-name-of-a-flag", Category: Advanced, Usage: "`NAME` of it"},
				&cli.BoolFlag{Name: "secret", Hidden: true},
			},
		}},
	}
}

func TestHelp(t *testing.T) {
	app := helpApp()
	prepare(app.Commands, nil)
	for _, tt := range []struct {
		all  bool
		want string
	}{
		{false, `gq show - show a thing

Examples:
  # a comment
  gq show file

Usage:
  gq show [FLAGS] FILE

One line and the next.

  as it is

A second paragraph.

Basics:
  -o, --output FILE         FILE to write; words that go on
                            beyond the end of the line
                            (default: x.gqf)
  --bits BITS               of a code (default: 4)

Flags:
  --json                    print JSON

gq show --help-all shows 1 more flag.
`},
		{true, `gq show - show a thing

Examples:
  # a comment
  gq show file

Usage:
  gq show [FLAGS] FILE

One line and the next.

  as it is

A second paragraph.

Basics:
  -o, --output FILE         FILE to write; words that go on
                            beyond the end of the line
                            (default: x.gqf)
  --bits BITS               of a code (default: 4)

Flags:
  --json                    print JSON

Advanced:
  --a-very-long-name-of-a-flag NAME
                            NAME of it
`},
	} {
		var b bytes.Buffer
		if err := help(&b, app, app.Commands[0], "gq show", tt.all, 60); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, b.String()); d != "" {
			t.Errorf("all %v (-want +got):\n%s", tt.all, d)
		}
	}
}

func TestHelpFitsItsWidth(t *testing.T) {
	app := helpApp()
	for _, width := range []int{40, 60, 80, 100} {
		var b bytes.Buffer
		if err := help(&b, app, app.Commands[0], "gq show", true, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns in a page of %d: %q", n, width, line)
			}
		}
	}
}

// TestReply holds replies to the commands, flags and values of the app. Scripts of cmd/gq test the
// shells that are installed.
func TestReply(t *testing.T) {
	for _, tt := range []struct{ words, word, want string }{
		{"", "", "show"},
		{"", "-", "--help"},
		{"", "x", ""},
		{"sohw", "", ""},
		{"show", "", ""},
		{"show", "--o", "--output"},
		{"show file", "--help", "--help --help-all"},
		{"show --bits", "", "1 2 3 4 5 6 7 8"},
		{"show --output", "", ""},
		{"show --output", "-", ""},
		{"show", "--sec", ""}, // is hidden
	} {
		var b bytes.Buffer
		Reply(&b, helpApp(), strings.Fields(tt.words), tt.word)
		var got []string
		for line := range strings.Lines(b.String()) {
			name, _, _ := strings.Cut(line, "\t")
			got = append(got, name)
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%q, then %q: %q, want %q", tt.words, tt.word, got, tt.want)
		}
	}
	for _, shell := range Shells() {
		var script bytes.Buffer
		if err := Completion(&script, shell); err != nil || script.Len() == 0 {
			t.Errorf("%s: %v, %d bytes", shell, err, script.Len())
		}
	}
}

func TestMan(t *testing.T) {
	var b bytes.Buffer
	if err := Man(&b, helpApp()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH \"GQ\" \"1\"", ".SS \"gq show [FLAGS] FILE\"", "\\fB\\-o, \\-\\-output FILE\\fR", "gq show file"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := Markdown(&b, helpApp()); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "## ")
	want := `gq show

` + "```\ngq show [FLAGS] FILE\n```" + `

One line and the next.

  as it is

A second paragraph.

` + "```sh\n# a comment\ngq show file\n```" + `

| flag | meaning |
|---|---|
| **Basics** |  |
` + "| `-o, --output FILE` | FILE to write; words that go on beyond the end of the line (default: x.gqf) |\n" +
		"| `--bits BITS` | of a code (default: 4) |\n| **Flags** |  |\n| `--json` | print JSON |\n" +
		"| **Advanced** |  |\n| `--a-very-long-name-of-a-flag NAME` | NAME of it |\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := escape(`*.q_proj, <|endoftext|>`); got != `\*.q_proj, \<\|endoftext\|>` {
		t.Errorf("escaped: %s", got)
	}
}
