package emit

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Struct holds the offsets of the fields of a structure that kernels read.
type Struct map[string]int64

// ParseStruct reads a structure from a Go file, so that its fields are not listed twice. The
// fields' types must be built-in, or unsafe.Pointer.
func ParseStruct(file, name string) Struct {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		log.Fatal(err)
	}
	var source strings.Builder
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name == name {
			if err := format.Node(&source, fset, s.Type); err != nil {
				log.Fatal(err)
			}
		}
		return true
	})
	t, err := types.Eval(fset, nil, token.NoPos, strings.ReplaceAll(source.String(), "unsafe.Pointer", "uintptr"))
	if err != nil {
		log.Fatalf("%s: type %s: %v", file, name, err)
	}
	st := t.Type.Underlying().(*types.Struct)
	var fields []*types.Var
	for i := range st.NumFields() {
		fields = append(fields, st.Field(i))
	}
	s := Struct{}
	for i, offset := range types.SizesFor("gc", "amd64").Offsetsof(fields) {
		s[fields[i].Name()] = offset
	}
	return s
}

// Field is a field of the structure at base.
func (s Struct) Field(base reg.Register, name string) operand.Mem {
	offset, ok := s[name]
	if !ok {
		log.Fatalf("no field %s", name)
	}
	return operand.Mem{Base: base, Disp: int(offset)}
}
