// Command price measures what the project's features cost its readers, and fails if a figure
// exceeds the limit in .ci/price. An issue that adds a capability says by how much it may raise a
// limit.
//
//	go run -C tools ./price            # the figures beside their limits
//	go run -C tools ./price -folders   # the figures of comments, folder by folder
package main

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("price: ")
	folders := flag.Bool("folders", false, "print the figures of comments for each folder, without limits")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	list, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		log.Fatalf("git ls-files: %v", err)
	}
	files := strings.Fields(string(list))
	if *folders {
		if err := printFolders(files); err != nil {
			log.Fatal(err)
		}
		return
	}
	over, err := run(files)
	if err != nil {
		log.Fatal(err)
	}
	if over > 0 {
		log.Fatalf("%d figures exceed their limits in %s: delete what nobody needs", over, limitsFile)
	}
}

// limitsFile has a line "NAME LIMIT" for each figure.
const limitsFile = ".ci/price"

// run prints each figure beside its limit. over counts the figures that exceed their limits.
func run(files []string) (over int, err error) {
	t, err := measure(files)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(limitsFile)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for line := 1; s.Scan(); line++ {
		fields := strings.Fields(s.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		now, ok := t[fields[0]]
		if !ok || len(fields) != 2 {
			return 0, fmt.Errorf("%s:%d: expected the name of a figure and its limit, found %q", limitsFile, line, s.Text())
		}
		limit, err := strconv.Atoi(fields[1])
		if err != nil {
			return 0, fmt.Errorf("%s:%d: %w", limitsFile, line, err)
		}
		mark := ""
		if now > limit {
			over, mark = over+1, "  too many"
		}
		fmt.Printf("%-10s %8d of %8d%s\n", fields[0], now, limit, mark)
	}
	return over, s.Err()
}

// notProduct matches Go files that users neither build nor read.
var notProduct = regexp.MustCompile(`_test\.go$|_asm/|^(tools|docs|\.ci)/|(^|/)testdata/|^internal/test/`)

// measure returns the figures of the files of the repository:
//
//   - lines: lines of the product's Go files that people wrote;
//   - names: constants, variables, types and functions that packages outside internal/ and cmd/
//     export;
//   - methods: methods that the exported types of these packages export;
//   - commands and flags: sections of docs/CLI.md, and flags of gq quantize there;
//   - words: of README.md and docs/*.md without the specifications FORMAT.md and FOLDS.md;
//   - the figures of comments that type prose describes.
func measure(files []string) (map[string]int, error) {
	t := map[string]int{}
	names, methods := map[string]bool{}, map[string]bool{}
	var comments prose
	for _, name := range files {
		dir := path.Dir(name)
		document := name == "README.md" || dir == "docs" && path.Ext(name) == ".md" && name != "docs/FORMAT.md" && name != "docs/FOLDS.md"
		if !document && path.Ext(name) != ".go" {
			continue
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !document {
			comments.add(name, raw)
			if notProduct.MatchString(name) {
				continue
			}
		}
		switch text := string(raw); {
		case name == "docs/CLI.md":
			t["commands"], t["flags"] = commands(text), flags(text)
			t["words"] += len(strings.Fields(text))
		case document:
			t["words"] += len(strings.Fields(text))
		default:
			if !generated(text) {
				t["lines"] += strings.Count(text, "\n")
			}
			if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "internal/") || strings.Contains(name, "/internal/") {
				continue
			}
			exported, called, err := exports(name, raw)
			if err != nil {
				return nil, err
			}
			for _, e := range exported { // files for several platforms may have the same names
				names[dir+"."+e] = true
			}
			for _, e := range called {
				methods[dir+"."+e] = true
			}
		}
	}
	t["names"], t["methods"] = len(names), len(methods)
	maps.Copy(t, comments.figures())
	return t, nil
}

// generated reports whether a program wrote the Go file.
func generated(text string) bool { return strings.Contains("\n"+text, "\n// Code generated") }

// exports lists the package-level names that a Go file exports, and methods as Type.Method.
func exports(name string, raw []byte) (list, methods []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, raw, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				list = append(list, id.Name)
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			} else if of := receiver(d.Recv.List[0].Type); ast.IsExported(of) && d.Name.IsExported() {
				methods = append(methods, of+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					add(s.Names...)
				}
			}
		}
	}
	return list, methods, nil
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // with a type parameter
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return ""
}

// commands counts the sections "## gq NAME" of docs/CLI.md.
func commands(text string) int { return strings.Count("\n"+text, "\n## gq ") }

// flags counts the flags of gq quantize in docs/CLI.md.
func flags(text string) int {
	_, section, _ := strings.Cut(text, "\n## gq quantize\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return strings.Count(section, "\n| `--")
}
