package cmdline

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// reorder returns args with the flags first, then "--" and the positionals, each in
// their order. A flag that takes a value takes the next argument, whatever it looks
// like, unless it has the form --flag=value; "--" ends the flags; "-" is a
// positional. Flags that are not among flags count as taking no value: they are left
// for cli to complain about.
// It also reports whether the flag for help is among args.
func reorder(flags []cli.Flag, args []string) (sorted []string, help bool) {
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
		if slices.Contains(cli.HelpFlag.Names(), flagName(arg)) {
			help = true
		}
		if !takesNext(valued, arg) {
			continue
		}
		if i++; i == len(args) {
			// Its value is missing. Without the positionals, so that it does not take the
			// first of them, cli reports that.
			return sorted, help
		}
		sorted = append(sorted, args[i])
	}
	if len(positionals) == 0 {
		return sorted, help
	}
	return append(append(sorted, "--"), positionals...), help
}

// sortArgs reorders the arguments of the command that args ask for, and returns the
// words that lead to it ("gq quantize"). Flags of app itself, and of a command that
// has subcommands, stay where they are, before the subcommand's name.
func sortArgs(app *cli.App, args []string) (sorted []string, path string) {
	path = app.Name
	commands, valued := app.Commands, valuedNames(app.Flags)
	for at := 1; at < len(args) && args[at] != "--"; at++ {
		if isFlag(args[at]) {
			if takesNext(valued, args[at]) {
				at++
			}
			continue
		}
		c := find(commands, args[at])
		if c == nil {
			break
		}
		path += " " + c.Name
		if len(c.Subcommands) == 0 {
			rest, help := reorder(c.Flags, args[at+1:])
			if help { // alone: beside --help, cli takes a positional for a help topic
				rest = []string{"--help"}
			}
			return append(args[:at+1:at+1], rest...), path
		}
		commands, valued = c.Subcommands, valuedNames(c.Flags)
	}
	return args, path
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// valuedNames returns the names and aliases of those flags that take a value.
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

// isFlag tells flags from positionals as package flag does.
func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// flagName returns the name in a flag without value: package flag accepts one dash or
// two before every name.
func flagName(arg string) string { return strings.TrimPrefix(arg[1:], "-") }

// takesNext reports whether the value of the flag arg is the argument after it.
func takesNext(valued map[string]bool, arg string) bool {
	return valued[flagName(arg)] // no name holds a "="
}
