package cmdline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// ErrShell reports a shell without a completion script.
var ErrShell = errors.New("no completion script for this shell")

var completions = map[string]func(words []completionWords) string{
	"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion, "powershell": powershellCompletion,
}

// Shells lists the shells that Completion knows.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

// Completion writes a script with which a shell completes app's commands and flags, and files. The
// script holds the words of this build. It fails with ErrShell for a shell that it does not know.
func Completion(w io.Writer, app *cli.App, shell string) error {
	script := completions[shell]
	if script == nil {
		return ErrShell
	}
	_, err := io.WriteString(w, script(wordsOf(app.Name, app.Usage, app.Commands, app.Flags)))
	return err
}

// completionWords are the words that may follow a command.
type completionWords struct {
	path     string // "gq quantize"
	usage    string
	commands []completionWord
	flags    []completionWord
}

type completionWord struct {
	name, usage string
	valued      bool
}

// wordsOf lists the words of a command and of all its subcommands.
func wordsOf(path, usage string, commands []*cli.Command, flags []cli.Flag) []completionWords {
	w := completionWords{path: path, usage: usage}
	var below []completionWords
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		w.commands = append(w.commands, completionWord{name: c.Name, usage: c.Usage})
		below = append(below, wordsOf(path+" "+c.Name, c.Usage, c.Subcommands, c.Flags)...)
	}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		_, usage := describe(f)
		doc, ok := f.(cli.DocGenerationFlag)
		for _, name := range f.Names() {
			w.flags = append(w.flags, completionWord{dashed(name), usage, ok && doc.TakesValue()})
		}
	}
	w.flags = append(w.flags, completionWord{name: "--help", usage: "show help"})
	if len(commands) == 0 {
		w.flags = append(w.flags, completionWord{name: "--help-all", usage: "show help with every flag"})
	}
	return append([]completionWords{w}, below...)
}

func namesOf(words []completionWord) []string {
	var list []string
	for _, w := range words {
		list = append(list, w.name)
	}
	return list
}

// valued lists the flags that take a value. Values are completed as files.
func (w completionWords) valued() []string {
	var list []string
	for _, f := range w.flags {
		if f.valued {
			list = append(list, f.name)
		}
	}
	return list
}

func bashCompletion(all []completionWords) string {
	var b strings.Builder
	b.WriteString(`# bash completion of gq: source <(gq completion bash)
_gq() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=gq word words= valued=
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$path $word" in
`)
	var paths []string
	for _, w := range all[1:] {
		paths = append(paths, fmt.Sprintf("%q", w.path))
	}
	fmt.Fprintf(&b, "\t\t%s) path=\"$path $word\" ;;\n\t\tesac\n\tdone\n\tcase \"$path\" in\n", strings.Join(paths, "|"))
	for _, w := range all {
		fmt.Fprintf(&b, "\t%q) words=%q valued=%q ;;\n", w.path, strings.Join(slices.Concat(namesOf(w.commands), namesOf(w.flags)), " "), " "+strings.Join(w.valued(), " ")+" ")
	}
	b.WriteString(`	esac
	COMPREPLY=()
	if [[ $valued != *" $prev "* && ( $cur == -* || $path == gq || $words == [a-z]* ) ]]; then
		COMPREPLY=($(compgen -W "$words" -- "$cur"))
	fi
	if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
		compopt -o filenames 2>/dev/null
		local IFS=$'\n'
		COMPREPLY=($(compgen -f -- "$cur"))
	fi
}
complete -F _gq gq
`)
	return b.String()
}

// zshQuote quotes a description within single quotes. _arguments gives : and [] a meaning.
func zshQuote(s string) string {
	return strings.NewReplacer("'", `'\''`, ":", `\:`, "[", `\[`, "]", `\]`).Replace(s)
}

func zshCompletion(all []completionWords) string {
	var b strings.Builder
	b.WriteString("#compdef gq\n# zsh completion of gq: a file _gq in a directory of $fpath\n")
	for _, w := range all {
		fmt.Fprintf(&b, "\n_%s() {\n", strings.ReplaceAll(w.path, " ", "_"))
		if len(w.commands) > 0 {
			b.WriteString("\tlocal -a commands=(\n")
			for _, c := range w.commands {
				fmt.Fprintf(&b, "\t\t'%s:%s'\n", c.name, zshQuote(c.usage))
			}
			depth := strings.Count(w.path, " ") + 2
			fmt.Fprintf(&b, "\t)\n\tif (( CURRENT == %d )); then\n\t\t_describe command commands\n\telse\n\t\tlocal command=_%s_${words[%d]}\n\t\t(( $+functions[$command] )) && $command\n\tfi\n}\n",
				depth, strings.ReplaceAll(w.path, " ", "_"), depth)
			continue
		}
		b.WriteString("\t_arguments -s \\\n")
		for _, f := range w.flags {
			value := ""
			if f.valued {
				value = ":value:_files"
			}
			fmt.Fprintf(&b, "\t\t'%s[%s]%s' \\\n", f.name, zshQuote(f.usage), value)
		}
		b.WriteString("\t\t'*:file:_files'\n}\n")
	}
	b.WriteString("\ncompdef _gq gq\n")
	return b.String()
}

func fishCompletion(all []completionWords) string {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	var b strings.Builder
	b.WriteString("# fish completion of gq: ~/.config/fish/completions/gq.fish\n")
	for _, w := range all {
		words := strings.Fields(w.path)[1:]
		var conditions []string
		for _, word := range words {
			conditions = append(conditions, "__fish_seen_subcommand_from "+word)
		}
		for _, c := range w.commands {
			more := append(slices.Clone(conditions), "not __fish_seen_subcommand_from "+strings.Join(namesOf(w.commands), " "))
			fmt.Fprintf(&b, "complete -c gq -f -n %s -a %s -d %s\n", quote(strings.Join(more, "; and ")), c.name, quote(c.usage))
		}
		for _, f := range w.flags {
			line := "complete -c gq"
			if len(conditions) > 0 {
				line += " -n " + quote(strings.Join(conditions, "; and "))
			}
			if name, long := strings.CutPrefix(f.name, "--"); long {
				line += " -l " + name
			} else {
				line += " -s " + strings.TrimPrefix(f.name, "-")
			}
			if f.valued {
				line += " -r"
			}
			b.WriteString(line + " -d " + quote(f.usage) + "\n")
		}
	}
	return b.String()
}

func powershellCompletion(all []completionWords) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	var b strings.Builder
	b.WriteString(`# PowerShell completion of gq: gq completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName gq -ScriptBlock {
	param($wordToComplete, $commandAst, $cursorPosition)
	$words = @{
`)
	for _, w := range all {
		fmt.Fprintf(&b, "\t\t%s = @(\n", quote(w.path))
		for _, word := range slices.Concat(w.commands, w.flags) {
			fmt.Fprintf(&b, "\t\t\t@(%s, %s)\n", quote(word.name), quote(word.usage))
		}
		b.WriteString("\t\t)\n")
	}
	b.WriteString(`	}
	$path = 'gq'
	foreach ($element in $commandAst.CommandElements | Select-Object -Skip 1) {
		if ($words.ContainsKey("$path $element")) { $path = "$path $element" }
	}
	$words[$path] | Where-Object { $_[0] -like "$wordToComplete*" } | ForEach-Object {
		[System.Management.Automation.CompletionResult]::new($_[0], $_[0], 'ParameterName', $_[1])
	}
}
`)
	return b.String()
}
