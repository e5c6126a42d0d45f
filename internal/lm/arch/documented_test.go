package arch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
