package cmdline

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// completions are the scripts. Each asks `gq completion reply -- WORDS... =WORD`, where WORD is the
// word that is being typed, and completes files if there is no reply. The sign keeps an empty word
// from getting lost.
var completions = map[string]string{
	"bash": `# bash completion of gq: source <(gq completion bash)
_gq() {
	local IFS=$'\n'
	COMPREPLY=($("$1" completion reply -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "=${COMP_WORDS[COMP_CWORD]}" 2>/dev/null | cut -f1))
}
complete -o default -F _gq gq
`,
	"zsh": `#compdef gq
# zsh completion of gq: a file _gq in a directory of $fpath
_gq() {
	local line
	local -a replies
	for line in ${(f)"$($words[1] completion reply -- "${(@)words[2,CURRENT-1]}" "=$words[CURRENT]" 2>/dev/null)"}; do
		replies+=("${${line//:/\\:}/$'\t'/:}")
	done
	if (( $#replies )); then
		_describe word replies
	else
		_files
	fi
}
# The first completion loads this file as the body of _gq.
if [[ $funcstack[1] == _gq ]]; then
	_gq
else
	compdef _gq gq
fi
`,
	"fish": `# fish completion of gq: ~/.config/fish/completions/gq.fish
function __gq_reply
	set -l words (commandline -opc)
	set -l word (commandline -ct)
	$words[1] completion reply -- $words[2..] "=$word" 2>/dev/null
end
complete -c gq -n 'count (__gq_reply) >/dev/null' -f -a '(__gq_reply)'
`,
	"powershell": `# PowerShell completion of gq: gq completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName gq -ScriptBlock {
	param($wordToComplete, $commandAst, $cursorPosition)
	$command, $words = @($commandAst.CommandElements | ForEach-Object { "$_" })
	if ($wordToComplete) { $words = @($words | Select-Object -SkipLast 1) }
	& $command completion reply -- @words "=$wordToComplete" 2>$null | ForEach-Object {
		$name, $usage = $_ -split [char]9, 2
		[System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterName', $usage)
	}
}
`,
}

// Shells lists the shells that Completion knows.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

// Completion writes a script with which a shell completes gq's commands, flags, values of flags,
// and files.
func Completion(w io.Writer, shell string) error {
	_, err := io.WriteString(w, completions[shell])
	return err
}

// knownValues returns the values that a flag takes, as far as they have names. A single value is an
// alternative to the name of a file.
func knownValues(path, flag string) []string {
	// gq bench kernels takes layouts, not families of layouts.
	if s, ok := quantizer.SettingOf(flag); ok && (flag != "layout" || path != "gq bench kernels") {
		return s.Values
	}
	switch flag {
	case "gate":
		return []string{accuracy.DefaultGateName}
	case "activations":
		return []string{forward.Int8.String(), forward.Float32.String(), forward.ONNX.String()}
	case "convention":
		return []string{string(text.Windows), string(text.Documents), string(text.LlamaCpp), string(text.LMEval)}
	case "cpu":
		return cpu.Names
	}
	return nil
}

// Reply writes what a word may become that follows words of a command: a line each, with its
// meaning behind a tab. It writes nothing where a file is expected.
func Reply(w io.Writer, app *cli.App, words []string, word string) {
	r := parseRequest(app, append([]string{app.Name}, words...))
	if r.unknown != "" {
		return
	}
	flags := app.Flags
	if r.command != nil {
		flags = r.command.Flags
	}
	add := func(name, usage string) {
		if strings.HasPrefix(name, word) {
			fmt.Fprintf(w, "%s\t%s\n", name, usage)
		}
	}
	if last := append(words, "")[max(0, len(words)-1)]; isFlag(last) && takesNext(valuedNames(flags), last) {
		if values := knownValues(r.path, flagName(last)); len(values) > 1 || word != "" {
			for _, value := range values {
				add(value, last)
			}
		}
		return
	}
	for _, name := range names(r.commands()) {
		add(name, find(r.commands(), name).Usage)
	}
	if word == "" {
		return
	}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		for _, name := range f.Names() {
			_, usage := describe(f)
			add(dashed(name), usage)
		}
	}
	add("--help", "show help")
	if len(r.commands()) == 0 {
		add("--help-all", "show help with every flag")
	}
}
