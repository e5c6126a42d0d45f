package gq

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// mostHops is how many functions that a walk does not name may stand between two steps.
const mostHops = 3

// TestArchitecture follows the calls of each walk of docs/ARCHITECTURE.md. A step must be called by
// the step that its row names, and this step must not have ended: the rows between are called
// within it. Functions between two steps are in the files of the two, so that the walk has a row
// for each passage to another file. A call of an interface's method, or of a function in a
// variable, must be named.
func TestArchitecture(t *testing.T) {
	testshared.SlowEmulated(t, "the calls are the same natively")
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to list packages with")
	}
	doc, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	walks := readWalks(t, string(doc))
	most := map[string]int{"A weight": 12, "A payload": 8, "A text": 10}
	g := readCalls(t)
	for _, w := range walks {
		for kind, n := range most {
			if strings.HasPrefix(w.title, kind) && len(w.steps) > n {
				t.Errorf("%s: %d steps, at most %d", w.title, len(w.steps), n)
			}
		}
		for i := range w.steps {
			if err := w.check(g, i); err != nil {
				t.Errorf("%s, step %d: %v", w.title, i+1, err)
			}
		}
	}
	if len(walks) < 10 {
		t.Errorf("the document has %d walks", len(walks))
	}
	_, section, ok := strings.Cut(string(doc), "## Calls of higher floors\n")
	var stated []string
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(section, -1) {
		stated = append(stated, m[1])
	}
	slices.Sort(stated)
	if found := g.upward(); !ok || !slices.Equal(stated, found) {
		t.Errorf("functions of higher floors are called through\n%q, the document has\n%q", found, stated)
	}
}

// upward lists the module's interfaces and the variables through which functions of higher floors
// are called.
func (g *callGraph) upward() []string {
	names := map[string]bool{}
	for fn, list := range g.calls {
		for _, c := range list {
			if g.file[c.to] != "" && c.through != "" && !c.standard && floorOf(path.Dir(g.file[c.to])) > floorOf(path.Dir(g.file[fn])) {
				names[c.through] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// A walk is a table of steps.
type walk struct {
	title string
	steps []walkStep
}

// walkStep is a row of a walk.
type walkStep struct {
	file    string
	names   []string // of functions in the file
	from    int      // index of the step that calls them; -1 in the first row
	through []string // interfaces and variables
}

// readWalks reads the walks of the document.
func readWalks(t *testing.T, doc string) (list []*walk) {
	row := regexp.MustCompile("^\\| (\\d+) \\| ((?:`\\w+`(?:, )?)+) in ([\\w/]+\\.go) \\| ?(\\d*)(?: ?through ((?:`\\w+`(?:, )?)+))? \\|")
	name := regexp.MustCompile("`(\\w+)`")
	names := func(s string) (list []string) {
		for _, m := range name.FindAllStringSubmatch(s, -1) {
			list = append(list, m[1])
		}
		return list
	}
	title := ""
	for line := range strings.Lines(doc) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(heading)
		}
		if !strings.HasPrefix(line, "| ") || title == "" || strings.HasPrefix(line, "| | ") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s: this row names no function and no caller: %s", title, line)
			continue
		}
		n, _ := strconv.Atoi(m[1])
		from, _ := strconv.Atoi(m[4])
		if n == 1 {
			list = append(list, &walk{title: title})
		}
		w := list[len(list)-1]
		if n != len(w.steps)+1 || from >= n || (from == 0) != (n == 1) {
			t.Errorf("%s: step %d, called by step %d, follows step %d", title, n, from, len(w.steps))
		}
		w.steps = append(w.steps, walkStep{m[3], names(m[2]), from - 1, names(m[5])})
	}
	return list
}

// check holds step i to the calls.
func (w *walk) check(g *callGraph, i int) error {
	s := &w.steps[i]
	for _, name := range s.names {
		if len(g.functions(s.file, name)) == 0 {
			return fmt.Errorf("%s has no function %s", s.file, name)
		}
	}
	var callers []types.Object
	if i == 0 {
		callers = g.functions(s.file, s.names[0])
	} else {
		from := &w.steps[s.from]
		for open := i - 1; open != s.from; open = w.steps[open].from {
			if open == 0 {
				return fmt.Errorf("step %d has ended: a step between is not called within it", s.from+1)
			}
		}
		for _, name := range from.names {
			callers = append(callers, g.functions(from.file, name)...)
		}
	}
	reached := callers
	for k, name := range s.names {
		if i == 0 && k == 0 {
			continue
		}
		ends := g.functions(s.file, name)
		if !g.reaches(reached, ends, s.through) {
			return fmt.Errorf("step %d does not call %s in %s through %v", s.from+1, name, s.file, s.through)
		}
		reached = slices.Concat(reached, ends) // which may call the names that follow
	}
	for k := range s.through {
		if g.reaches(callers, g.functions(s.file, s.names[0]), slices.Delete(slices.Clone(s.through), k, k+1)) {
			return fmt.Errorf("%s is called without %s", s.names[0], s.through[k])
		}
	}
	return nil
}

// A callGraph has the calls between the functions of the module. A function literal, and a function
// in the arguments of a call, are called by the function that holds them.
type callGraph struct {
	packages map[string]*listedPackage
	gc       types.Importer // of packages outside the module, from export data
	root     string
	fset     *token.FileSet
	file     map[types.Object]string // of each function, relative to the root
	calls    map[types.Object][]called
	values   map[types.Object][]types.Object // functions assigned to a variable, field or parameter
	types    []*types.TypeName
}

// called is a function that is called: through an interface, or through a variable that holds
// it, if through is not "".
type called struct {
	to       types.Object
	through  string
	standard bool // the interface is declared outside the module
}

// listedPackage is a package as go list describes it.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Main bool }

	checked *types.Package
}

// readCalls type-checks the packages of the module that package gq and its commands use.
func readCalls(t *testing.T) *callGraph {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Module", "./cmd/gq").Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("go list: %s", e.Stderr)
		}
		t.Fatal(err)
	}
	g := &callGraph{
		packages: map[string]*listedPackage{}, fset: token.NewFileSet(),
		file: map[types.Object]string{}, calls: map[types.Object][]called{}, values: map[types.Object][]types.Object{},
	}
	if g.root, err = os.Getwd(); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listedPackage{}
		if err := d.Decode(p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		g.packages[p.ImportPath] = p
	}
	g.gc = importer.ForCompiler(g.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(g.packages[path].Export) })
	for _, path := range slices.Sorted(maps.Keys(g.packages)) {
		if g.packages[path].own() {
			if _, err := g.Import(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.resolve()
	return g
}

func (p *listedPackage) own() bool { return p != nil && p.Module != nil && p.Module.Main }

// Import type-checks a package of the module from source. It reads other packages' export data.
func (g *callGraph) Import(path string) (*types.Package, error) {
	p := g.packages[path]
	if !p.own() {
		return g.gc.Import(path)
	}
	if p.checked != nil {
		return p.checked, nil
	}
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(g.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, f)
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var err error
	if p.checked, err = (&types.Config{Importer: g}).Check(path, g.fset, syntax, info); err != nil {
		return nil, err
	}
	for _, name := range p.checked.Scope().Names() {
		if n, ok := p.checked.Scope().Lookup(name).(*types.TypeName); ok && !types.IsInterface(n.Type()) {
			g.types = append(g.types, n)
		}
	}
	for _, f := range syntax {
		g.add(&source{g: g, Info: info, pkg: p.checked, file: g.fileOf(f.Pos())}, f)
	}
	return p.checked, nil
}

// fileOf is the path of the file with a position, relative to the root.
func (g *callGraph) fileOf(pos token.Pos) string {
	name := g.fset.Position(pos).Filename
	if rel, err := filepath.Rel(g.root, name); err == nil {
		name = rel
	}
	return filepath.ToSlash(name)
}

// source is a file with its types.
type source struct {
	*types.Info
	g     *callGraph
	pkg   *types.Package
	file  string
	stack []ast.Node
}

// add adds the functions of a file.
func (g *callGraph) add(s *source, f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			fn := s.Defs[d.Name]
			g.file[fn] = s.file
			if d.Body != nil {
				s.read(d.Body, fn)
			}
		case *ast.GenDecl:
			s.read(d, nil) // functions in the values of variables
		}
	}
}

// read adds the calls in a node to the functions that hold it.
func (s *source) read(n ast.Node, holders ...types.Object) {
	stack := len(s.stack)
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			s.stack = s.stack[:len(s.stack)-1]
			return true
		}
		if lit, ok := n.(*ast.FuncLit); ok {
			fn := types.NewFunc(lit.Pos(), s.pkg, "func literal", nil)
			s.g.file[fn] = s.file
			s.assign(lit, fn)
			outer := s.stack
			s.stack = nil
			s.read(lit.Body, append(slices.Clone(holders), fn)...)
			s.stack = outer
			return false
		}
		if id, ok := n.(*ast.Ident); ok {
			s.use(id, holders)
		}
		s.stack = append(s.stack, n)
		return true
	})
	s.stack = s.stack[:stack]
}

// use adds the call of a function, or the function as a value.
func (s *source) use(id *ast.Ident, holders []types.Object) {
	var expr ast.Expr = id
	parents := s.stack
	above := func() ast.Node {
		if len(parents) == 0 {
			return nil
		}
		return parents[len(parents)-1]
	}
	through := ""
	if sel, ok := above().(*ast.SelectorExpr); ok && sel.Sel == id {
		expr, parents = sel, parents[:len(parents)-1]
		if chosen := s.Selections[sel]; chosen != nil {
			through = interfaceName(chosen)
		}
	}
	if index, ok := above().(*ast.IndexExpr); ok && index.X == expr {
		expr, parents = index, parents[:len(parents)-1]
	}
	call, _ := above().(*ast.CallExpr)
	switch o := s.Uses[id].(type) {
	case *types.Func:
		o = o.Origin()
		if call != nil {
			s.call(holders, called{to: o, through: through})
			if call.Fun != expr {
				s.assigned(expr, o, parents)
			}
		} else {
			s.assigned(expr, o, parents)
		}
	case *types.Var:
		if _, ok := o.Type().Underlying().(*types.Signature); ok && call != nil && call.Fun == expr {
			s.call(holders, called{to: o.Origin(), through: o.Name()})
		}
	}
}

func (s *source) call(holders []types.Object, c called) {
	for _, h := range holders {
		if h != nil {
			s.g.calls[h] = append(s.g.calls[h], c)
		}
	}
}

// interfaceName is the name of the interface that a method is called through, or "".
func interfaceName(s *types.Selection) string {
	fn, ok := s.Obj().(*types.Func)
	if !ok {
		return ""
	}
	recv := fn.Signature().Recv()
	if recv == nil || !types.IsInterface(recv.Type()) {
		return ""
	}
	if types.IsInterface(s.Recv()) {
		if n, ok := s.Recv().(*types.Named); ok {
			return n.Obj().Name()
		}
	}
	if n, ok := recv.Type().(*types.Named); ok {
		return n.Obj().Name()
	}
	return "interface"
}

// assign notes the variable, field or parameter that a function is assigned to.
func (s *source) assign(expr ast.Expr, fn types.Object) { s.assigned(expr, fn, s.stack) }

func (s *source) assigned(expr ast.Expr, fn types.Object, parents []ast.Node) {
	if len(parents) == 0 {
		return
	}
	var to types.Object
	object := func(e ast.Expr) types.Object {
		switch e := e.(type) {
		case *ast.Ident:
			return cmp.Or(s.Defs[e], s.Uses[e])
		case *ast.SelectorExpr:
			return s.Uses[e.Sel]
		}
		return nil
	}
	switch p := parents[len(parents)-1].(type) {
	case *ast.KeyValueExpr:
		to = object(p.Key)
	case *ast.CompositeLit:
		if st, ok := s.TypeOf(p).Underlying().(*types.Struct); ok {
			if i := slices.Index(p.Elts, expr); i >= 0 {
				to = st.Field(i)
			}
		}
	case *ast.AssignStmt:
		if i := slices.Index(p.Rhs, expr); i >= 0 && i < len(p.Lhs) {
			to = object(p.Lhs[i])
		}
	case *ast.ValueSpec:
		if i := slices.Index(p.Values, expr); i >= 0 && i < len(p.Names) {
			to = s.Defs[p.Names[i]]
		}
	case *ast.CallExpr:
		sig, ok := s.TypeOf(p.Fun).Underlying().(*types.Signature)
		if i := slices.Index(p.Args, expr); ok && i >= 0 && sig.Params().Len() > 0 {
			to = sig.Params().At(min(i, sig.Params().Len()-1))
		}
	}
	if v, ok := to.(*types.Var); ok {
		s.g.values[v.Origin()] = append(s.g.values[v.Origin()], fn)
	}
}

// resolve replaces calls of interfaces' methods and of variables by calls of the functions that may
// be called.
func (g *callGraph) resolve() {
	found := map[*types.Func][]types.Object{}
	for fn, list := range g.calls {
		var known []called
		for _, c := range list {
			switch to := c.to.(type) {
			case *types.Var:
				for _, f := range g.values[to] {
					known = append(known, called{to: f, through: c.through})
				}
			case *types.Func:
				recv := to.Signature().Recv()
				if recv == nil || !types.IsInterface(recv.Type()) {
					known = append(known, called{to: c.to})
					continue
				}
				if _, ok := found[to]; !ok {
					found[to] = g.implementations(recv.Type().Underlying().(*types.Interface), to)
				}
				for _, f := range found[to] {
					known = append(known, called{f, c.through, to.Pkg() == nil || !g.packages[to.Pkg().Path()].own()})
				}
			}
		}
		g.calls[fn] = known
	}
}

// implementations lists the methods of the module's types that implement a method of an interface.
func (g *callGraph) implementations(of *types.Interface, method *types.Func) (list []types.Object) {
	for _, n := range g.types {
		p := types.NewPointer(n.Type())
		if named, ok := n.Type().(*types.Named); ok && named.TypeParams().Len() > 0 || !types.Implements(p, of) {
			continue
		}
		if f, _, _ := types.LookupFieldOrMethod(p, false, method.Pkg(), method.Name()); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// functions lists the functions and methods with a name in a file.
func (g *callGraph) functions(file, name string) (list []types.Object) {
	for fn, of := range g.file {
		if of == file && fn.Name() == name {
			list = append(list, fn)
		}
	}
	return list
}

// reaches reports whether starts call one of ends: directly, or by at most mostHops functions in
// the same files, and through interfaces and variables with these names only.
func (g *callGraph) reaches(starts, ends []types.Object, through []string) bool {
	in := map[string]bool{g.file[starts[0]]: true, g.file[ends[0]]: true}
	seen := map[types.Object]bool{}
	next := starts
	for hops := 0; hops <= mostHops && len(next) > 0; hops++ {
		var after []types.Object
		for _, fn := range next {
			for _, c := range g.calls[fn] {
				if c.through != "" && !slices.Contains(through, c.through) {
					continue
				}
				if slices.Contains(ends, c.to) {
					return true
				}
				if !seen[c.to] && in[g.file[c.to]] {
					seen[c.to] = true
					after = append(after, c.to)
				}
			}
		}
		next = after
	}
	return false
}
