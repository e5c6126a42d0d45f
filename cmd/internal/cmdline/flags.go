package cmdline

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// Settings are the flags of settings of a recipe.
func Settings(category string, names ...string) (flags []cli.Flag) {
	for _, name := range names {
		s, _ := quantizer.SettingOf(name)
		usage := fmt.Sprintf("`%s`: %s", s.Value, s.Help)
		switch {
		case s.Value == "":
			flags = append(flags, &cli.BoolFlag{Name: name, Category: category, Usage: s.Help})
		case s.List:
			flags = append(flags, &cli.StringSliceFlag{Name: name, Category: category, Usage: usage + " (repeatable)"})
		default:
			flags = append(flags, &cli.StringFlag{Name: name, Category: category, DefaultText: s.Default, Usage: usage})
		}
	}
	return flags
}

// Override sets the settings in r for which flags are given.
func Override(c *cli.Context, r *quantizer.Recipe) error {
	for _, s := range quantizer.Settings() {
		if !c.IsSet(s.Name) {
			continue
		}
		values := []string{c.String(s.Name)}
		switch {
		case s.Value == "":
			values = []string{strconv.FormatBool(c.Bool(s.Name))}
		case s.List:
			values = c.StringSlice(s.Name)
		}
		if err := s.Set(r, values...); err != nil {
			return Usagef("--%s: %w", s.Name, err)
		}
	}
	return nil
}

// Recipe reads a recipe file. A signal does not wait for the parser: 100,000 rules take it seconds.
func Recipe(ctx context.Context, path string) (quantizer.Recipe, error) {
	return files.Await(ctx, func() (r quantizer.Recipe, err error) {
		raw, err := files.ReadContext(ctx, path, files.MaxYAML)
		if err != nil {
			return r, fmt.Errorf("recipe: %w", err)
		}
		if r, err = quantizer.ParseRecipe(path, raw); err != nil {
			err = &UsageError{Err: err}
		}
		return r, err
	})
}

// Needs refuses given flags unless one of others is given.
func Needs(c *cli.Context, flags []string, others ...string) error {
	if list := given(c, flags); len(list) > 0 && len(given(c, others)) == 0 {
		return Usagef("--%s goes with --%s", list[0], strings.Join(others, " or --"))
	}
	return nil
}

// Excludes refuses given flags together with one of others.
func Excludes(c *cli.Context, flags []string, others ...string) error {
	if list, beside := given(c, flags), given(c, others); len(list) > 0 && len(beside) > 0 {
		return Usagef("--%s beside --%s: give one of them", list[0], beside[0])
	}
	return nil
}

func given(c *cli.Context, flags []string) (list []string) {
	for _, name := range flags {
		if c.IsSet(name) {
			list = append(list, name)
		}
	}
	return list
}

// Names are the names of flags.
func Names(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	return names
}

// Size reads a flag that states a number of bytes; 0 if it is not given.
func Size(c *cli.Context, name string) (int64, error) {
	if !c.IsSet(name) {
		return 0, nil
	}
	n, err := ParseBytes(c.String(name))
	if err != nil {
		return 0, Usagef("--%s: %w", name, err)
	}
	return n, nil
}

// List reads a flag that lists values between commas, each once; nil if it is not given.
func List[T comparable](c *cli.Context, name string, parse func(string) (T, error)) (list []T, err error) {
	if !c.IsSet(name) {
		return nil, nil
	}
	for _, word := range strings.Split(c.String(name), ",") {
		v, err := parse(strings.TrimSpace(word))
		if err != nil {
			return nil, Usagef("--%s: %w", name, err)
		}
		if slices.Contains(list, v) {
			return nil, Usagef("--%s: %q is there twice", name, word)
		}
		list = append(list, v)
	}
	return list, nil
}

// Split is the flag --split.
func Split(category string) cli.Flag {
	return &cli.StringFlag{Name: "split", Category: category, DefaultText: "one .gguf file; 5GB for checkpoints", Usage: "`SIZE` of a .gguf file or of a checkpoint's files, at most: a larger model is divided"}
}

// Exactly is an action that refuses another number of arguments than the command's ArgsUsage shows.
func Exactly(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if want := len(strings.Fields(c.Command.ArgsUsage)); c.NArg() != want {
			return Usagef("%s wants %s, %d given", c.Command.HelpName, cmp.Or(c.Command.ArgsUsage, "no arguments"), c.NArg())
		}
		return action(c)
	}
}

// Threads is the flag --threads.
func Threads() cli.Flag {
	return Positive(&cli.IntFlag{Name: "threads", Category: common, DefaultText: "GOMAXPROCS", Usage: "`N`: workers; results do not depend on it"})
}

// Positive has a flag refuse numbers below 1, and beyond 2,147,483,647.
func Positive(f *cli.IntFlag) cli.Flag {
	f.Action = func(_ *cli.Context, n int) error {
		if n < 1 || n > math.MaxInt32 {
			return Usagef("--%s %d: at least 1, at most %d", f.Name, n, math.MaxInt32)
		}
		return nil
	}
	return f
}

// JSON is the flag --json.
func JSON() cli.Flag {
	return &cli.BoolFlag{Name: "json", Category: common, Usage: "print the result as JSON"}
}

// Quiet is the flag --quiet.
func Quiet() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Category: common, Usage: "show no progress"}
}

// Price reads --price-per-hour. 0: it is not given.
func Price(c *cli.Context) (float64, error) {
	p := c.Float64("price-per-hour")
	if c.IsSet("price-per-hour") && !(p > 0 && p <= math.MaxFloat32) {
		return 0, Usagef("--price-per-hour %v is not above 0", p)
	}
	return p, nil
}

// reorder returns args with the flags first, then "--" and the positionals, both in their order. A
// flag that takes a value takes the next argument, unless the flag has the form --flag=value. "--"
// ends the flags. "-" is a positional. An unknown flag takes no value; cli reports it. reorder also
// reports whether args have a flag for help, and a flag for all help.
func reorder(flags []cli.Flag, args []string) (sorted []string, help, all bool) {
	valued := valuedNames(flags)
	var positionals []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			positionals = append(positionals, args[i+1:]...)
			break
		}
		if !isFlag(arg) {
			positionals = append(positionals, arg)
			continue
		}
		sorted = append(sorted, arg)
		h, a := asksForHelp(arg)
		help, all = help || h, all || a
		if !takesNext(valued, arg) {
			continue
		}
		if i++; i == len(args) {
			// The value is missing. Drop the positionals: cli would take the first as the value
			// and not report the error.
			return sorted, help, all
		}
		sorted = append(sorted, args[i])
	}
	if len(positionals) == 0 {
		return sorted, help, all
	}
	return append(append(sorted, "--"), positionals...), help, all
}

// request is the meaning of arguments.
type request struct {
	app     *cli.App
	command *cli.Command // nil: the app itself
	path    string       // the words that call the command: "gq quantize"
	args    []string     // for cli: flags before positionals
	unknown string       // a word in the place of a command that names no command
	help    bool         // help was asked for, or a command with subcommands was called without one
	all     bool         // show the flags of the category Advanced too
}

// parseRequest finds the command that args ask for and reorders its arguments. Flags of app itself,
// and of a command that has subcommands, stay where they are, before the subcommand's name. "gq
// help NAME ..." is "gq NAME ... --help".
func parseRequest(app *cli.App, args []string) *request {
	r := &request{app: app, path: app.Name, args: args}
	if len(args) > 1 && args[1] == "help" {
		r.help = true
		args = append(args[:1:1], args[2:]...)
	}
	valued := valuedNames(app.Flags)
	own := false // flags of the app or of a command with subcommands, which cli reads
	for at := 1; at < len(args); at++ {
		arg := args[at]
		if arg == "--" {
			r.unknown = strings.Join(args[at+1:min(at+2, len(args))], "")
			return r
		}
		if isFlag(arg) {
			help, all := asksForHelp(arg)
			r.help, r.all, own = r.help || help, r.all || all, own || !help
			if takesNext(valued, arg) {
				at++
			}
			continue
		}
		c := find(r.commands(), arg)
		if c == nil {
			r.unknown = arg
			r.help = false
			return r
		}
		r.command, r.path = c, r.path+" "+c.Name
		if len(c.Subcommands) == 0 {
			rest, help, all := reorder(c.Flags, args[at+1:])
			r.args = append(args[:at+1:at+1], rest...)
			r.help, r.all = r.help || help, r.all || all
			return r
		}
		valued = valuedNames(c.Flags)
	}
	r.help = r.help || !own
	return r
}

// commands lists the words that may follow: the subcommands, or the app's commands.
func (r *request) commands() []*cli.Command {
	if r.command == nil {
		return r.app.Commands
	}
	return r.command.Subcommands
}

// asksForHelp reports whether a flag asks for help, and whether for all help.
func asksForHelp(arg string) (help, all bool) {
	switch flagName(arg) {
	case "help", "h":
		return true, false
	case "help-all":
		return true, true
	}
	return false, false
}

func names(commands []*cli.Command) []string {
	var list []string
	for _, c := range commands {
		if !c.Hidden {
			list = append(list, c.Name)
		}
	}
	return list
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// valuedNames returns the names and aliases of the flags that take a value.
func valuedNames(flags []cli.Flag) map[string]bool {
	names := make(map[string]bool)
	for _, f := range flags {
		if doc, ok := f.(cli.DocGenerationFlag); ok && doc.TakesValue() {
			for _, name := range f.Names() {
				names[name] = true
			}
		}
	}
	return names
}

// isFlag distinguishes flags from positionals as package flag does.
func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// flagName returns the name of a flag without its dashes: package flag accepts one or two.
func flagName(arg string) string { return strings.TrimPrefix(arg[1:], "-") }

// takesNext reports whether the flag arg takes the next argument as its value.
func takesNext(valued map[string]bool, arg string) bool {
	return valued[flagName(arg)] // no name holds a "="
}
