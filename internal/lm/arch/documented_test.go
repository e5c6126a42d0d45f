package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

var update = flag.Bool("update", false, "write the table of architectures")

// TestDocumented holds the table of docs/RUN.md, and the number in README.md, to the facts.
func TestDocumented(t *testing.T) {
	var rows []string
	for name, f := range architectures {
		types, gguf := []string{name}, "no"
		for outer, m := range multimodal {
			if m.text == name {
				types = append(types, outer)
			}
		}
		slices.Sort(types)
		if f.LlamaCpp != nil {
			gguf = f.LlamaCpp.Name
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", f.Title, strings.Join(types, ", "), gguf))
	}
	slices.Sort(rows)
	const head = "| architecture | model_type in config.json | .gguf |\n|---|---|---|\n"
	table := head + strings.Join(rows, "")
	read := func(elem ...string) (path, s string) {
		path = filepath.Join(append([]string{testshared.Root(t)}, elem...)...)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, string(b)
	}
	path, doc := read("docs", "RUN.md")
	_, rest, ok := strings.Cut(doc, head)
	if !ok {
		t.Fatalf("%s has no table of architectures", path)
	}
	old := head + rest[:strings.Index(rest, "\n\n")+1]
	if old != table && *update {
		if err := os.WriteFile(path, []byte(strings.Replace(doc, old, table, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if old != table {
		t.Errorf("%s has the table\n%swant, as -update writes,\n%s", path, old, table)
	}
	path, readme := read("README.md")
	if want := fmt.Sprintf("[%d architectures]", len(architectures)); !strings.Contains(readme, want) {
		t.Errorf("%s does not say %s", path, want)
	}
}

// TestPages holds the page of facts of each architecture to 120 lines, and all other code to the
// rule that it names no architecture.
func TestPages(t *testing.T) {
	names := map[string]bool{}
	for _, name := range Architectures() {
		names[name], names[ClassName(name)] = true, true
		if l := FactsOf(TextType(name)).LlamaCpp; l != nil {
			names[l.Name], names[l.MixtureName] = true, true
		}
	}
	delete(names, "")
	// These files write models, and name llama.cpp's tokenizers.
	others := []string{"internal/job/synth/spec.go", "internal/lm/llamacpp/names.go", "internal/lm/llamacpp/pretokenizers.go"}
	root, pages, found := testshared.Root(t), 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "tools" || name == "internal/test" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), "_")):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page := strings.HasPrefix(name, "internal/lm/arch/model_")
		if lines := bytes.Count(src, []byte("\n")); page && lines > 120 {
			t.Errorf("%s has %d lines: at most 120 were expected", name, lines)
		}
		if page {
			pages++
		}
		files := token.NewFileSet()
		var s scanner.Scanner
		s.Init(files.AddFile(name, -1, len(src)), src, nil, 0)
		for {
			pos, kind, literal := s.Scan()
			if kind == token.EOF {
				return nil
			}
			value, err := strconv.Unquote(literal)
			if kind != token.STRING || err != nil || !names[value] {
				continue
			}
			if found++; !page && !slices.Contains(others, name) {
				t.Errorf("%s names the architecture %s: only its page of facts may", files.Position(pos), literal)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages != len(architectures) || found < len(names) {
		t.Errorf("%d pages for %d architectures, and %d names where %d were expected", pages, len(architectures), found, len(names))
	}
}
