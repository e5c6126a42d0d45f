package tile

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

// mnemonics says for each macro of neon_arm64.h what a disassembler shows of it, %[1]s and so on being its arguments.
var mnemonics = map[string]string{
	"VZERO":        "movi v%[1]s.2d, #0x0",
	"VFADD_4S":     "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFSUB_4S":     "fsub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMULLANE_4S": "fmul v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
	"VFMLALANE_4S": "fmla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
	"VFCMEQ_4S":    "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
	"VNEG_4S":      "neg v%[2]s.4s, v%[1]s.4s",
	"VMUL_4S":      "mul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VMULLANE_4S":  "mul v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
	"VMLSLANE_4S":  "mls v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
	"VSMULL_8H":    "smull v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
	"VSMULL2_8H":   "smull2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
	"VSMLAL_8H":    "smlal v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
	"VSMLAL2_8H":   "smlal2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
	"VSADALP_4S":   "sadalp v%[2]s.4s, v%[1]s.8h",
	"VBIF_16B":     "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
	"VADDP_4S":     "addp v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMADD_4S":    "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VZIPLOW_2D":   "zip1 v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
	"VZIPHIGH_2D":  "zip2 v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
	"VSDOT":        "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
	"VSDOTLANE":    "sdot v%[4]s.4s, v%[3]s.16b, v%[2]s.4b[%[1]s]",
	"VSMMLA":       "smmla v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
}

// TestWords decodes each instruction that an assembly file for arm64 has as a number and compares it with its macro's
// name and arguments.
func TestWords(t *testing.T) {
	if _, err := exec.LookPath(objdump); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_arm64.s")
	if err != nil || len(files) == 0 {
		t.Fatal("no assembly files: ", err)
	}
	used := map[string]bool{}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			var code []byte
			words := expandWords(t, name)
			for _, w := range words {
				code = binary.LittleEndian.AppendUint32(code, w.bits)
				used[w.macro] = true
			}
			for i, got := range disassemble(t, code) {
				w := words[i]
				format, ok := mnemonics[w.macro]
				if !ok {
					t.Fatalf("%s is not in the table of mnemonics", w.macro)
				}
				if want := fmt.Sprintf(format, w.args...); got != want {
					t.Errorf("%s%v is %08x, %q, want %q", w.macro, w.args, w.bits, got, want)
				}
			}
		})
	}
	for name := range parseMacros(readFile(t, "neon_arm64.h")) {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
}

type macro struct {
	params []*regexp.Regexp
	body   []string
}

var (
	include   = regexp.MustCompile(`(?m)^#include "(\w+_arm64\.h)"$`)
	define    = regexp.MustCompile(`(?m)^#define (\w+)(?:\(([^)]*)\))?\s*(.*)$`)
	defines   = regexp.MustCompile(`(?m)^#define (.*\\\n)*.*\n`)
	continued = regexp.MustCompile(`\s*\\\n`)
	call      = regexp.MustCompile(`^\s*([A-Z]\w*)(?:\(([^)]*)\))?\s*(?://.*)?$`)
	number    = regexp.MustCompile(`^\s*WORD\s+\$(.*)$`)
)

// parseMacros reads the #defines of assembly source, those of several lines included.
func parseMacros(source string) map[string]macro {
	macros := map[string]macro{}
	for _, m := range define.FindAllStringSubmatch(continued.ReplaceAllString(source, "\x00"), -1) {
		def := macro{body: strings.Split(m[3], "\x00")}
		if m[2] != "" {
			for _, p := range strings.Split(m[2], ", ") {
				def.params = append(def.params, regexp.MustCompile(`\b`+p+`\b`))
			}
		}
		macros[m[1]] = def
	}
	return macros
}

type word struct {
	macro string
	args  []any
	bits  uint32
}

// expandWords returns the numeric instructions of a file in order, with macros of macros expanded.
func expandWords(t *testing.T, name string) (words []word) {
	t.Helper()
	source := readFile(t, name)
	headers := ""
	for _, m := range include.FindAllStringSubmatch(source, -1) {
		headers += readFile(t, m[1])
	}
	macros := parseMacros(headers + source)
	var expand func(line, name string, args []any)
	expand = func(line, name string, args []any) {
		if m := number.FindStringSubmatch(line); m != nil {
			v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, m[1])
			if err != nil || name == "" {
				t.Fatalf("a word outside of macros or without a value: %s (%v)", line, err)
			}
			bits, _ := constant.Uint64Val(v.Value)
			words = append(words, word{name, args, uint32(bits)})
			return
		}
		m := call.FindStringSubmatch(line)
		if m == nil {
			return // an instruction that the assembler knows
		}
		def, ok := macros[m[1]]
		var values []string
		if m[2] != "" {
			values = strings.Split(m[2], ", ")
		}
		if !ok && m[1] == "RET" {
			return
		}
		if !ok || len(values) != len(def.params) {
			t.Fatalf("%s: no such macro or wrong arguments", line)
		}
		inner := make([]any, len(values))
		for i, v := range values {
			inner[i] = v
		}
		for _, body := range def.body {
			for i, p := range def.params {
				body = p.ReplaceAllString(body, values[i])
			}
			expand(body, m[1], inner)
		}
	}
	_, code, _ := strings.Cut(source, "#include")
	for line := range strings.Lines(defines.ReplaceAllString(code, "")) {
		expand(strings.TrimSuffix(line, "\n"), "", nil)
	}
	return words
}

func disassemble(t *testing.T, code []byte) (lines []string) {
	t.Helper()
	if len(code) == 0 {
		return nil
	}
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
