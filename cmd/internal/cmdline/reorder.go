package cmdline

import (
	"strings"

	"github.com/urfave/cli/v2"
)

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

func flagNames(flags []cli.Flag) []string {
	list := []string{"--help", "--help-all"}
	for _, f := range flags {
		for _, name := range f.Names() {
			list = append(list, dashed(name))
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

func takesNext(valued map[string]bool, arg string) bool {
	return valued[flagName(arg)] // no name holds a "="
}
