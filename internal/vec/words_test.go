package vec

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
	"VFADD_4S":   "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFSUB_4S":   "fsub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMUL_4S":   "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMAX_4S":   "fmax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMIN_4S":   "fmin v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFADD_2D":   "fadd v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
	"VSMAX_4S":   "smax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VUMAXV_4S":  "umaxv s%[2]s, v%[1]s.4s",
	"VFCVTNS_4S": "fcvtns v%[2]s.4s, v%[1]s.4s",
	"VSCVTF_4S":  "scvtf v%[2]s.4s, v%[1]s.4s",
	"VFCVTL_4S":  "fcvtl v%[2]s.4s, v%[1]s.4h",
	"VFCVTL2_4S": "fcvtl2 v%[2]s.4s, v%[1]s.8h",
	"VFCVTL_2D":  "fcvtl v%[2]s.2d, v%[1]s.2s",
	"VFCVTL2_2D": "fcvtl2 v%[2]s.2d, v%[1]s.4s",
	"VFDIV_4S":   "fdiv v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMAXNM_4S": "fmaxnm v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFRINTN_4S": "frintn v%[2]s.4s, v%[1]s.4s",
	"VFSQRT_4S":  "fsqrt v%[2]s.4s, v%[1]s.4s",
}

// TestWords decodes each instruction that kernels_arm64.s has as a number and compares it with its macro's name and
// arguments.
func TestWords(t *testing.T) {
	if _, err := exec.LookPath(objdump); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	header, source := readFile(t, "neon_arm64.h"), readFile(t, "kernels_arm64.s")
	words := expandWords(t, parseMacros(header+source), source)

	var code []byte
	used := map[string]bool{}
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w.bits)
		used[w.macro] = true
	}
	for name := range parseMacros(header) {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
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
}

// TestNoFusedInstructions: a fused multiply-add rounds once where the portable code rounds twice.
func TestNoFusedInstructions(t *testing.T) {
	fused := regexp.MustCompile(`(?mi)^\s*V?F?N?(MADD|MSUB|FMLA|FMLS|MLA|MLS|NMADD|NMSUB)[A-Z0-9_]*\b`)
	for _, name := range []string{"kernels_arm64.s", "kernels_amd64.s", "neon_arm64.h"} {
		if m := fused.FindString(readFile(t, name)); m != "" {
			t.Errorf("%s has %s", name, strings.TrimSpace(m))
		}
	}
}

type macro struct {
	params []string
	body   []string
}

var (
	define = regexp.MustCompile(`(?m)^#define (\w+)\(([^)]*)\)\s*(.*)$`)
	call   = regexp.MustCompile(`^\s*([A-Z]\w*)\(([^)]*)\)\s*(?://.*)?$`)
	number = regexp.MustCompile(`^\s*WORD\s+\$(.*)$`)
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

// expandWords returns the numeric instructions of the source in order, with macros of macros expanded.
func expandWords(t *testing.T, macros map[string]macro, source string) (words []word) {
	t.Helper()
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
		values := strings.Split(m[2], ", ")
		if !ok || len(values) != len(def.params) {
			t.Fatalf("%s: no such macro or wrong arguments", line)
		}
		inner := make([]any, len(values))
		for i, v := range values {
			inner[i] = v
		}
		for _, body := range def.body {
			for i, p := range def.params {
				body = regexp.MustCompile(`\b`+p+`\b`).ReplaceAllString(body, values[i])
			}
			expand(body, m[1], inner)
		}
	}
	_, code, _ := strings.Cut(source, "TEXT")
	for line := range strings.Lines(regexp.MustCompile(`(?m)^#define (.*\\\n)*.*\n`).ReplaceAllString(code, "")) {
		expand(strings.TrimSuffix(line, "\n"), "", nil)
	}
	if len(words) == 0 {
		t.Fatal("no numeric instruction found")
	}
	return words
}

func disassemble(t *testing.T, code []byte) (lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code.bin")
	if err := os.WriteFile(file, code, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "aarch64", file).Output()
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
