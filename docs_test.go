package gq

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestGoProgram runs the program of docs/GO.md.
func TestGoProgram(t *testing.T) {
	testshared.SlowEmulated(t, "it is compiled and run natively")
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
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md") {
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

// TestArchitecture holds the walks of docs/ARCHITECTURE.md to the code: every function that they name
// is in the file that they name.
func TestArchitecture(t *testing.T) {
	doc, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile("`(\\w+)` in ([\\w/]+\\.go)").FindAllStringSubmatch(string(doc), -1)
	if len(steps) < 30 {
		t.Errorf("the walks have %d steps", len(steps))
	}
	for _, s := range steps {
		code, err := os.ReadFile(filepath.FromSlash(s[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + s[1] + `[\[(]`).Match(code) {
			t.Errorf("%s has no function %s", s[2], s[1])
		}
	}
}
