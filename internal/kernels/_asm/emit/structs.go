package emit

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Struct holds the offsets of the fields of a structure that kernels read.
type Struct map[string]int64

// ParseStruct reads a structure from a Go file, so that its fields are not listed twice. The types
// of its fields must be built-in, unsafe.Pointer, or structures of the file. The fields of an
// embedded structure are fields of the structure, too.
func ParseStruct(file, name string) Struct {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		log.Fatal(err)
	}
	// What the file uses of other packages and files is unknown, so errors are expected.
	config := types.Config{Importer: onlyUnsafe{}, Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := config.Check(f.Name.Name, fset, []*ast.File{f}, nil)
	t := pkg.Scope().Lookup(name)
	if t == nil {
		log.Fatalf("%s: no type %s", file, name)
	}
	s := Struct{}
	s.add(t.Type(), 0)
	return s
}

// onlyUnsafe imports nothing but package unsafe.
type onlyUnsafe struct{}

func (onlyUnsafe) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	return nil, errors.New("not needed")
}

// add adds the fields of a structure that begins at offset at.
func (s Struct) add(t types.Type, at int64) {
	st := t.Underlying().(*types.Struct)
	fields := slices.Collect(st.Fields())
	for i, offset := range types.SizesFor("gc", "amd64").Offsetsof(fields) {
		if fields[i].Type() == types.Typ[types.Invalid] {
			log.Fatalf("%v: field %s: unknown type", t, fields[i].Name())
		}
		s[fields[i].Name()] = at + offset
		if fields[i].Embedded() {
			s.add(fields[i].Type(), at+offset)
		}
	}
}

// Field is a field of the structure at base.
func (s Struct) Field(base reg.Register, name string) operand.Mem {
	offset, ok := s[name]
	if !ok {
		log.Fatalf("no field %s", name)
	}
	return operand.Mem{Base: base, Disp: int(offset)}
}
