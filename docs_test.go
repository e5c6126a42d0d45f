package gq

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestGoProgram runs the program of docs/GO.md.
func TestGoProgram(t *testing.T) {
	testshared.SlowEmulated(t, "it is compiled and run natively")
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to compile it with")
	}
	doc, err := os.ReadFile("docs/GO.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(doc), "```go\n")
	program, _, closed := strings.Cut(program, "```\n")
	if !ok || !closed {
		t.Fatal("docs/GO.md has no program")
	}
	dir := t.TempDir()
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", main, books, filepath.Join(dir, "model.gqf")).CombinedOutput()
	if err != nil || !regexp.MustCompile(`^5\.3\d\d bits per weight\nKL 0\.0\d+ nats per token\n$`).Match(out) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestRecipeDocument quantizes with the recipe of docs/RECIPES.md.
func TestRecipeDocument(t *testing.T) {
	doc, err := os.ReadFile("docs/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "```yaml\n")
	text, _, closed := strings.Cut(text, "```\n")
	if !ok || !closed {
		t.Fatal("docs/RECIPES.md has no recipe")
	}
	recipe, err := quantizer.ParseRecipe("docs/RECIPES.md", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Quantize(t.Context(), books, filepath.Join(t.TempDir(), "model.gqf"), QuantizeOptions{Recipe: recipe}); err != nil {
		t.Error(err)
	}
}

// TestLinks follows the links between documents, to files, directories and headings.
func TestLinks(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "tools/quality/TABLES.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(document), path)
			if path == "" {
				target = document
			}
			if fi, err := os.Stat(target); err == nil && fi.IsDir() && anchor == "" {
				continue
			}
			body, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: %v", document, err)
			} else if anchor != "" && !slices.Contains(anchors(string(body)), anchor) {
				t.Errorf("%s: %s has no heading #%s", document, target, anchor)
			}
		}
	}
}

// anchors lists the names that GitHub gives to the headings of a document.
func anchors(document string) []string {
	var list []string
	for line := range strings.Lines(document) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			kept := strings.Map(func(r rune) rune {
				if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" -_", r) {
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(title))
			list = append(list, strings.ReplaceAll(kept, " ", "-"))
		}
	}
	return list
}

// floors are the rows of docs/ARCHITECTURE.md's table, from the ground up, by the folders of their
// packages.
var floors = [][]string{
	{"internal"},
	{"packing"},
	{"formats", "internal/inspect", "internal/onnx"},
	{"kernels", "internal/kernels"},
	{"embedding"},
	{"model", "internal/lm"},
	{"quantizer", "internal/job"},
	{"accuracy", "internal/measure", "internal/serve"},
	{"internal/report"},
	{"."},
	{"cmd"},
}

// floorOf returns the floor of a package. The longest folder that holds the package decides.
func floorOf(dir string) (floor int) {
	best := ""
	for i, folders := range floors {
		for _, folder := range folders {
			if (dir == folder || strings.HasPrefix(dir, folder+"/")) && len(folder) > len(best) {
				floor, best = i, folder
			}
		}
	}
	return floor
}

// TestFloors demands that a package imports only packages of its own floor and of floors below.
func TestFloors(t *testing.T) {
	testshared.SlowEmulated(t, "the imports are the same natively")
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to list packages with")
	}
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/lowbit-go/gq"
	relative := func(path string) string {
		return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		list := strings.Fields(line)
		dir := relative(list[0])
		if strings.HasPrefix(dir, "internal/test/") || strings.HasPrefix(dir, "docs/") {
			continue
		}
		packages++
		for _, path := range list[1:] {
			if !strings.HasPrefix(path, module) {
				continue
			}
			if to := relative(path); floorOf(cmp.Or(to, ".")) > floorOf(cmp.Or(dir, ".")) {
				t.Errorf("%s imports %s, which is on a higher floor", cmp.Or(dir, "package gq"), to)
			}
		}
	}
	if packages < 50 {
		t.Errorf("found %d packages", packages)
	}
}
