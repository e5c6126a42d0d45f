package asmtest

import (
	"encoding/binary"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const objdump = "aarch64-linux-gnu-objdump"

// Words decodes each instruction that the package's arm64 assembly sources, *_arm64.s, write as a
// number, and compares the result with the name and the arguments of its macro. mnemonics maps each
// such macro to the disassembler's output, with %[1]s and so on for its arguments. A macro that no
// source uses is an error. Without a disassembler the test is skipped, or fails if CI is set.
func Words(t *testing.T, mnemonics map[string]string) {
	t.Helper()
	if _, err := exec.LookPath(objdump); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	sources, err := filepath.Glob("*_arm64.s")
	if err != nil || len(sources) == 0 {
		t.Fatal("no *_arm64.s: ", err)
	}
	var words []word
	used, all := map[string]bool{}, map[string]bool{}
	for _, name := range sources {
		source, headers := readFile(t, name), ""
		for _, m := range include.FindAllStringSubmatch(source, -1) {
			headers += readFile(t, m[1])
		}
		macros := parseMacros(headers + source)
		for name, def := range macros {
			if len(def.params) > 0 || len(def.body) > 1 { // not the name of a number
				all[name] = true
			}
		}
		words = append(words, expandWords(t, macros, name, source, used)...)
	}
	if len(words) == 0 {
		t.Fatal("no numeric instruction found")
	}
	for name := range all {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
	var code []byte
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w.bits)
	}
	for i, got := range disassemble(t, code) {
		w := words[i]
		format, ok := mnemonics[w.macro]
		if !ok {
			t.Fatalf("%s is not in the table of mnemonics", w.macro)
		}
		if want := fmt.Sprintf(format, w.args...); got != want {
			t.Errorf("%s: %s%v is %08x, %q, want %q", w.source, w.macro, w.args, w.bits, got, want)
		}
	}
}

type macro struct {
	params []string
	body   []string
}

var (
	include  = regexp.MustCompile(`(?m)^#include "(\w+_arm64\.h)"$`)
	define   = regexp.MustCompile(`(?m)^#define (\w+)(?:\(([^)]*)\))?\s*(.*)$`)
	call     = regexp.MustCompile(`^\s*([A-Z]\w*)(?:\(([^)]*)\))?\s*(?://.*)?$`)
	number   = regexp.MustCompile(`^\s*WORD\s+\$(.*)$`)
	wrapped  = regexp.MustCompile(`\s*\\\n`)
	noMacros = regexp.MustCompile(`(?m)^#define (.*\\\n)*.*\n`)
)

// parseMacros reads the #defines of assembly source, including those that span several lines.
func parseMacros(source string) map[string]macro {
	macros := map[string]macro{}
	for _, m := range define.FindAllStringSubmatch(wrapped.ReplaceAllString(source, "\x00"), -1) {
		macros[m[1]] = macro{arguments(m[2]), strings.Split(m[3], "\x00")}
	}
	return macros
}

// arguments splits the text between a macro's parentheses.
func arguments(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ", ")
}

type word struct {
	source string
	macro  string
	args   []any
	bits   uint32
}

// expandWords returns the numeric instructions of the source in order, with macros of macros
// expanded, and marks the used macros.
func expandWords(t *testing.T, macros map[string]macro, file, source string, used map[string]bool) (words []word) {
	t.Helper()
	var expand func(line, name string, args []string)
	expand = func(line, name string, args []string) {
		if m := number.FindStringSubmatch(line); m != nil {
			bits, ok := evaluate(m[1])
			if !ok || name == "" {
				t.Fatalf("%s: a word outside of macros or without a value: %s", file, line)
			}
			w := word{source: file, macro: name, bits: uint32(bits)}
			for _, arg := range args {
				if v, ok := evaluate(arg); ok {
					arg = fmt.Sprint(v)
				}
				w.args = append(w.args, arg)
			}
			words = append(words, w)
			return
		}
		m := call.FindStringSubmatch(line)
		if m == nil {
			return // an instruction that the assembler knows
		}
		def, ok := macros[m[1]]
		if !ok && !strings.Contains(line, "(") {
			return // such as RET
		}
		values := arguments(m[2])
		if !ok || len(values) != len(def.params) {
			t.Fatalf("%s: %s: no such macro or wrong arguments", file, line)
		}
		used[m[1]] = true
		for _, body := range def.body {
			expand(substitute(body, def.params, values), m[1], values)
		}
	}
	_, code, _ := strings.Cut(noMacros.ReplaceAllString(source, ""), "TEXT")
	for line := range strings.Lines(code) {
		expand(strings.TrimSuffix(line, "\n"), "", nil)
	}
	return words
}

var name = regexp.MustCompile(`\w+`)

// substitute puts values in the place of parameters, all at once.
func substitute(body string, params, values []string) string {
	return name.ReplaceAllStringFunc(body, func(s string) string {
		for i, p := range params {
			if s == p {
				return values[i]
			}
		}
		return s
	})
}

// evaluate computes a constant expression.
func evaluate(expression string) (value uint64, ok bool) {
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
	if err != nil || v.Value == nil {
		return 0, false
	}
	return constant.Uint64Val(constant.ToInt(v.Value))
}

func disassemble(t *testing.T, code []byte) (lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code.bin")
	if err := os.WriteFile(file, code, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-z", "-b", "binary", "-m", "aarch64", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.SplitN(strings.TrimSpace(line), "\t", 3); len(fields) == 3 {
			text, _, _ := strings.Cut(strings.ReplaceAll(fields[2], "\t", " "), " // ")
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	if len(lines) != len(code)/4 {
		t.Fatalf("%d instructions shown of %d", len(lines), len(code)/4)
	}
	return lines
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
