// Command arrows draws an arrow from each file of a package to each other file of the package that
// declares something the first file uses. It orders the files so that few arrows run back up, and
// fails if more than one in ten does. A package in good order reads from its first file to its
// last.
//
//	go run -C tools ./arrows [-v] PACKAGES
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("arrows: ")
	verbose := flag.Bool("v", false, "list the files in order, and the arrows that run up")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	list, err := load(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	bad := 0
	for _, p := range list {
		g, err := p.graph()
		if err != nil {
			log.Fatal(err)
		}
		order := g.order()
		up, all := g.count(order)
		mark := ""
		if up*10 > all {
			bad, mark = bad+1, "  too many"
		}
		fmt.Printf("%-60s %3d of %3d arrows run up%s\n", p.ImportPath, up, all, mark)
		if *verbose {
			g.print(order)
		}
	}
	if bad > 0 {
		log.Fatalf("%d packages: move declarations to the files that use them, or below these", bad)
	}
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool

	exports map[string]string // export data by import path, of all packages
}

// load lists the packages that match patterns.
func load(patterns []string) (list []*pkg, err error) {
	args := append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("go list: %s", e.Stderr)
		}
		return nil, err
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{exports: exports}
		if err := d.Decode(p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			list = append(list, p)
		}
	}
}

// graph has, for each file, the names that it uses of each other file.
type graph struct {
	files []string
	uses  [][][]string // uses[i][j]: names in file j that file i uses
}

// graph reads the files of the package.
func (p *pkg) graph() (*graph, error) {
	fset, index := token.NewFileSet(), map[string]int{}
	var syntax []*ast.File
	for i, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax, index[path] = append(syntax, f), i
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(p.exports[path]) })}
	own, err := conf.Check(p.ImportPath, fset, syntax, info)
	if err != nil {
		return nil, err
	}
	g := &graph{files: p.GoFiles, uses: make([][][]string, len(syntax))}
	for i := range g.uses {
		g.uses[i] = make([][]string, len(syntax))
	}
	for id, o := range info.Uses {
		if o.Pkg() != own || !global(o) {
			continue
		}
		i, j := index[fset.Position(id.Pos()).Filename], index[fset.Position(o.Pos()).Filename]
		if i != j && !slices.Contains(g.uses[i][j], o.Name()) {
			g.uses[i][j] = append(g.uses[i][j], o.Name())
		}
	}
	return g, nil
}

// global reports whether an object is declared outside of functions: a field and a method, too.
func global(o types.Object) bool {
	switch v := o.(type) {
	case *types.Var:
		return v.IsField() || o.Parent() == o.Pkg().Scope()
	case *types.Func:
		return true
	}
	return o.Parent() == o.Pkg().Scope()
}

// order sorts the files so that few arrows run up. It starts from the files with the most arrows
// going out, and moves files to better places until no single move helps.
func (g *graph) order() []int {
	weight := make([]int, len(g.files)) // arrows out of a file less arrows into it
	order := make([]int, len(g.files))
	for i := range g.files {
		order[i] = i
		for j := range g.files {
			weight[i] += g.arrow(i, j) - g.arrow(j, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return weight[b] - weight[a] })
	for best, _ := g.count(order); ; {
		found := false
		for i := range order {
			for to := range order {
				moved := slices.Insert(slices.Delete(slices.Clone(order), i, i+1), to, order[i])
				if up, _ := g.count(moved); up < best {
					order, best, found = moved, up, true
				}
			}
		}
		if !found {
			return order
		}
	}
}

// arrow is 1 if file i uses file j.
func (g *graph) arrow(i, j int) int { return min(len(g.uses[i][j]), 1) }

// count counts the arrows that run up in an order, and all arrows.
func (g *graph) count(order []int) (up, all int) {
	for at, i := range order {
		for k, j := range order {
			n := g.arrow(i, j)
			if all += n; k < at {
				up += n
			}
		}
	}
	return up, all
}

// print lists the files in order, and the names behind each arrow that runs up.
func (g *graph) print(order []int) {
	for at, i := range order {
		fmt.Println("  ", g.files[i])
		for _, j := range order[:at] {
			if names := g.uses[i][j]; len(names) > 0 {
				slices.Sort(names)
				fmt.Printf("      up to %s: %v\n", g.files[j], names)
			}
		}
	}
}
