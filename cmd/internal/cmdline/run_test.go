package cmdline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/urfave/cli/v2"
)

// testApp has a command that prints its arguments and a command that fails.
func testApp(out, errs *bytes.Buffer, err error) *cli.App {
	return &cli.App{
		Name:      "gq",
		Version:   "1",
		Writer:    out,
		ErrWriter: errs,
		Commands: []*cli.Command{
			{
				Name:  "show",
				Flags: testFlags(),
				Action: func(c *cli.Context) error {
					_, err := fmt.Fprintf(c.App.Writer, "bits %d, output %q, rules %q, json %v, args %q", c.Int("bits"), c.String("output"), c.StringSlice("rule"), c.Bool("json"), c.Args().Slice())
					return err
				},
			},
			{Name: "fail", Action: func(*cli.Context) error { return err }},
		},
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args       string
		code       int
		out, errs  string // errs in full
		outHasOnly bool   // out is all of it, not a part
	}{
		{args: "show dir --bits 8", out: `bits 8, output "", rules [], json false, args ["dir"]`, outHasOnly: true},
		{args: "show help", out: `bits 4, output "", rules [], json false, args ["help"]`, outHasOnly: true},
		{args: "show h", out: `args ["h"]`},
		{args: "show a -j b -o out -- -c", out: `bits 4, output "out", rules [], json true, args ["a" "b" "-c"]`, outHasOnly: true},
		{args: "show --rule a=4,32,asymmetric --rule b=skip", out: `rules ["a=4,32,asymmetric" "b=skip"]`},
		{args: "show dir --help", out: "gq show"},
		{args: "show dir -h --foo", out: "gq show"},
		{args: "show -o --help", out: `output "--help"`},
		{args: "--help", out: "Commands:\n  show\n"},
		{args: "", out: "Commands:\n  show\n"},
		{args: "show --help-all", out: "gq show"},
		{args: "help show", out: "gq show"},
		{args: "--version", out: "gq version 1"},
		{args: "show dir --foo", code: 2, errs: "gq: unknown flag --foo; run gq show --help\n"},
		{args: "show dir -x", code: 2, errs: "gq: unknown flag -x; run gq show --help\n"},
		{args: "show dir --bits", code: 2, errs: "gq: flag --bits needs a value; run gq show --help\n"},
		{args: "show dir -o", code: 2, errs: "gq: flag -o needs a value; run gq show --help\n"},
		{args: "show dir --bits four", code: 2, errs: "gq: invalid value \"four\" for flag --bits: expected an integer; run gq show --help\n"},
		{args: "show dir --json=perhaps", code: 2, errs: "gq: invalid boolean value \"perhaps\" for flag --json: expected true or false; run gq show --help\n"},
		{args: "show --output=a -o b", code: 2, errs: "gq: -o and --output are the same flag: give one of them; run gq show --help\n"},
		{args: "--foo show", code: 2, errs: "gq: unknown flag --foo; run gq --help\n"},
		{args: "shwo dir --bits 8", code: 2, errs: "gq: unknown command \"shwo\"; did you mean \"show\"?; run gq --help\n"},
		{args: "help shwo", code: 2, errs: "gq: unknown command \"shwo\"; did you mean \"show\"?; run gq --help\n"},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), testApp(&out, &errs, nil), append([]string{"gq"}, strings.Fields(c.args)...))
		if code != c.code || errs.String() != c.errs || !strings.Contains(out.String(), c.out) || c.outHasOnly && out.String() != c.out || c.out == "" && out.Len() != 0 {
			t.Errorf("gq %s: %d, out %q, errors %q, want %d, %q, %q", c.args, code, out.String(), errs.String(), c.code, c.out, c.errs)
		}
	}
}

func TestRunErrors(t *testing.T) {
	terminated, end := context.WithCancelCause(t.Context())
	end(&SignalError{syscall.SIGTERM})
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
		errs string
	}{
		{t.Context(), errors.New("broken"), 1, "gq: broken\n"},
		{t.Context(), Usagef("%d is too many", 9), 2, "gq: 9 is too many; run gq fail --help\n"},
		{t.Context(), fmt.Errorf("recipe: %w", Usagef("bad")), 2, "gq: recipe: bad; run gq fail --help\n"},
		{t.Context(), cli.Exit("gate not met", 3), 3, "gq: gate not met\n"},
		{interrupted, fmt.Errorf("write: %w", context.Canceled), 130, "gq: interrupted\n"},
		{terminated, fmt.Errorf("write: %w", context.Canceled), 143, "gq: interrupted\n"},
		{terminated, fmt.Errorf("quantizing: %w", context.Cause(terminated)), 143, "gq: interrupted\n"},
		{interrupted, errors.New("disk full"), 1, "gq: disk full\n"},
	} {
		var out, errs bytes.Buffer
		code := Run(c.ctx, testApp(&out, &errs, c.err), []string{"gq", "fail"})
		if code != c.code || errs.String() != c.errs || out.Len() != 0 {
			t.Errorf("%v: %d, out %q, errors %q, want %d, %q", c.err, code, out.String(), errs.String(), c.code, c.errs)
		}
	}
}
