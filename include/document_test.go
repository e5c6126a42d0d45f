//go:build unix

package include_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocument compiles the program of docs/C.md.
func TestDocument(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("needs gcc")
	}
	document, err := os.ReadFile("../docs/C.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(document), "```c\n")
	program, _, end := strings.Cut(program, "```\n")
	if !ok || !end {
		t.Fatal("docs/C.md has no program")
	}
	source := "#include <stdio.h>\n#include \"gqf.h\"\n" +
		"void use(uint32_t layout, uint64_t rows, uint64_t cols, const void *data, uint64_t size);\n" +
		"int load(const void *mapped, size_t size);\nint load(const void *mapped, size_t size)\n{\n" + program + "return 0;\n}\n"
	file := filepath.Join(t.TempDir(), "document.c")
	if err := os.WriteFile(file, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", ".", "-fsyntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
