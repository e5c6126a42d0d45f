package gemv

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
	"slices"
	"strings"
	"testing"
)

const objdump = "aarch64-linux-gnu-objdump"

// mnemonics says for each macro of neon_arm64.h what a disassembler shows of it, %[1]s and so on being its arguments.
var mnemonics = map[string]string{
	"VSDOT_4S":     "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
	"VSDOT_4S_0":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[0]",
	"VSDOT_4S_1":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[1]",
	"VSDOT_4S_2":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[2]",
	"VSDOT_4S_3":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[3]",
	"VMOVI_2D":     "movi v%[1]s.2d, #0x0",
	"VAND_16B":     "and v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
	"VCMTST_16B":   "cmtst v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
	"VBIF_16B":     "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
	"VSHL_16B":     "shl v%[3]s.16b, v%[2]s.16b, #%[1]s",
	"VUSHR_16B":    "ushr v%[3]s.16b, v%[2]s.16b, #%[1]s",
	"VSSHR_16B":    "sshr v%[3]s.16b, v%[2]s.16b, #%[1]s",
	"VSRI_16B":     "sri v%[3]s.16b, v%[2]s.16b, #%[1]s",
	"VSMULL_8H":    "smull v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
	"VSMULL2_8H":   "smull2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
	"VSMLAL_8H":    "smlal v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
	"VSMLAL2_8H":   "smlal2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
	"VSADALP_4S":   "sadalp v%[2]s.4s, v%[1]s.8h",
	"VADDP_8H":     "addp v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VADDP_4S":     "addp v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VSXTL_8H":     "sxtl v%[2]s.8h, v%[1]s.8b",
	"VSSHLL_8H":    "sshll v%[3]s.8h, v%[2]s.8b, #%[1]s",
	"VSXTL_4S":     "sxtl v%[2]s.4s, v%[1]s.4h",
	"VSXTL2_4S":    "sxtl2 v%[2]s.4s, v%[1]s.8h",
	"VMUL_4S":      "mul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VMLA_4S":      "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VMLS_4S":      "mls v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VMLA_4S_0":    "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
	"VSSRA_4S":     "ssra v%[3]s.4s, v%[2]s.4s, #%[1]s",
	"VSMLAL_4S_0":  "smlal v%[3]s.4s, v%[2]s.4h, v%[1]s.h[0]",
	"VSMLAL2_4S_0": "smlal2 v%[3]s.4s, v%[2]s.8h, v%[1]s.h[0]",
	"VSMLSL_4S_0":  "smlsl v%[3]s.4s, v%[2]s.4h, v%[1]s.h[0]",
	"VSMLSL2_4S_0": "smlsl2 v%[3]s.4s, v%[2]s.8h, v%[1]s.h[0]",
	"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
	"VSCVTF_4S_F":  "scvtf v%[3]s.4s, v%[2]s.4s, #%[1]s",
	"VSHLL_4S":     "shll v%[2]s.4s, v%[1]s.4h, #16",
	"VSHLL2_4S":    "shll2 v%[2]s.4s, v%[1]s.8h, #16",
	"VFADD_4S":     "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMUL_4S_0":   "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
	"VFMLA_4S":     "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMLS_4S":     "fmls v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMLA_4S_0":   "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
	"VFCMEQ_4S":    "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
}

// TestWords decodes each instruction that the assembly for arm64 has as a number, and compares it with its macro's name
// and arguments.
func TestWords(t *testing.T) {
	if _, err := exec.LookPath(objdump); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	sources, err := filepath.Glob("*_arm64.s")
	if err != nil || len(sources) == 0 {
		t.Fatal("no sources", err)
	}
	used, all := map[string]bool{}, map[string]bool{}
	for _, name := range sources {
		source := readFile(t, name)
		headers := ""
		for _, m := range include.FindAllStringSubmatch(source, -1) {
			headers += readFile(t, m[1])
		}
		macros := parseMacros(headers + source)
		for macro := range macros {
			all[macro] = true
		}
		words := expandWords(t, macros, source, used)
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
				t.Errorf("%s: %s%v is %08x, %q, want %q", name, w.macro, w.args, w.bits, got, want)
			}
		}
	}
	for macro := range all {
		if !used[macro] {
			t.Errorf("%s is not used", macro)
		}
	}
}

type macro struct {
	params []string
	body   []string
}

var (
	include = regexp.MustCompile(`(?m)^#include "(\w+_arm64\.h)"$`)
	define  = regexp.MustCompile(`(?m)^#define (\w+)\(([^)]*)\)\s*(.*)$`)
	defines = regexp.MustCompile(`(?m)^#define (.*\\\n)*.*\n`)
	call    = regexp.MustCompile(`^\s*([A-Z]\w*)\(([^)]*)\)\s*(?://.*)?$`)
	number  = regexp.MustCompile(`^\s*WORD\s+\$(.*)$`)
)

// parseMacros reads the #defines of assembly source, those of several lines included.
func parseMacros(source string) map[string]macro {
	source = regexp.MustCompile(`\s*\\\n`).ReplaceAllString(source, "\x00")
	macros := map[string]macro{}
	for _, m := range define.FindAllStringSubmatch(source, -1) {
		macros[m[1]] = macro{strings.Split(m[2], ", "), strings.Split(m[3], "\x00")}
	}
	return macros
}

type word struct {
	macro string
	args  []any
	bits  uint32
}

// expandWords returns the numeric instructions of the source in order, with macros of macros, and macros that are
// arguments of macros, expanded. It notes the macros in used.
func expandWords(t *testing.T, macros map[string]macro, source string, used map[string]bool) (words []word) {
	t.Helper()
	values := map[string]uint32{} // of the expressions met
	var expand func(line, name string, args []string)
	expand = func(line, name string, args []string) {
		if m := number.FindStringSubmatch(line); m != nil {
			if _, ok := values[m[1]]; !ok {
				v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, m[1])
				if err != nil || name == "" {
					t.Fatalf("a word outside of macros or without a value: %s (%v)", line, err)
				}
				bits, _ := constant.Uint64Val(v.Value)
				values[m[1]] = uint32(bits)
			}
			operands := make([]any, len(args))
			for i, a := range args {
				operands[i] = a
			}
			words = append(words, word{name, operands, values[m[1]]})
			return
		}
		m := call.FindStringSubmatch(line)
		if m == nil {
			return // an instruction that the assembler knows
		}
		def, ok := macros[m[1]]
		inner := strings.Split(m[2], ", ")
		if !ok || len(inner) != len(def.params) {
			t.Fatalf("%s: no such macro or wrong arguments", line)
		}
		used[m[1]] = true
		for _, body := range def.body {
			body = identifier.ReplaceAllStringFunc(body, func(id string) string {
				if i := slices.Index(def.params, id); i >= 0 {
					return inner[i]
				}
				return id
			})
			expand(body, m[1], inner)
		}
	}
	for line := range strings.Lines(defines.ReplaceAllString(source, "")) {
		expand(strings.TrimSuffix(line, "\n"), "", nil)
	}
	if len(words) == 0 {
		t.Fatal("no numeric instruction found")
	}
	return words
}

var identifier = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)

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
			lines = append(lines, strings.ReplaceAll(fields[2], "\t", " "))
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
