package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

const schemaFile = "../../docs/accuracy-report.schema.json"

// TestSchema compares docs/accuracy-report.schema.json with the Go types. `go test
// ./internal/measure -run TestSchema -update` writes the schema.
func TestSchema(t *testing.T) {
	want := schemaOf(t)
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types are: run go test ./internal/measure -run TestSchema -update", schemaFile)
	}
}

// schema is the part of JSON Schema that is used here.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Ref         string             `json:"$ref,omitempty"`
	Type        any                `json:"type,omitempty"`
	Const       string             `json:"const,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"`
	Defs        map[string]*schema `json:"$defs,omitempty"`
}

func schemaOf(t *testing.T) []byte {
	s := &schemaWriter{comments: commentsOf(t), defs: map[string]*schema{}}
	root := s.object(reflect.TypeFor[accuracy.Report]())
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", "Report of gq accuracy --json"
	root.Description += " Keys may be added: readers should pass over those that they do not know. Decibels without noise, +Inf, are null, and so are standard errors of one window."
	root.Properties["schema"].Const = accuracy.ReportSchema
	root.Defs = s.defs
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// commentsOf finds the comments of types and fields: "Report", "Report.Totals".
func commentsOf(t *testing.T) map[string]string {
	comments := map[string]string{}
	var files []string
	for _, pattern := range []string{"../../accuracy/*.go", "../../internal/lm/eval/*.go", "../../internal/lm/text/*.go"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	text := func(groups ...*ast.CommentGroup) string {
		for _, g := range groups {
			if g != nil {
				var p comment.Parser
				d := (&comment.Printer{TextWidth: -1}).Text(p.Parse(g.Text()))
				return strings.Join(strings.Fields(string(d)), " ")
			}
		}
		return ""
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				comments[ts.Name.Name] = text(ts.Doc, g.Doc)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						comments[ts.Name.Name+"."+n.Name] = text(field.Doc, field.Comment)
					}
				}
			}
		}
	}
	return comments
}

type schemaWriter struct {
	comments map[string]string
	defs     map[string]*schema
}

func (w *schemaWriter) object(t reflect.Type) *schema {
	s := &schema{Type: "object", Description: w.comments[t.Name()], Properties: map[string]*schema{}}
	for _, f := range reflect.VisibleFields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" || !f.IsExported() {
			continue
		}
		owner := t
		for _, i := range f.Index[:len(f.Index)-1] {
			if owner = owner.Field(i).Type; owner.Kind() == reflect.Pointer {
				owner = owner.Elem()
			}
		}
		p := w.of(f.Type)
		if c := w.comments[owner.Name()+"."+f.Name]; c != "" {
			p.Description = c
		}
		s.Properties[name] = p
		if opts != "omitempty" {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

func (w *schemaWriter) of(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[accuracy.Decibels](), reflect.TypeFor[accuracy.Figure](), reflect.TypeFor[eval.StdErr]():
		return &schema{Type: []string{"number", "null"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.of(t.Elem())
	case reflect.Struct:
		if w.defs[t.Name()] == nil {
			w.defs[t.Name()] = &schema{}
			w.defs[t.Name()] = w.object(t)
		}
		return &schema{Ref: "#/$defs/" + t.Name()}
	case reflect.Slice, reflect.Array:
		return &schema{Type: []string{"array", "null"}, Items: w.of(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", Additional: w.of(t.Elem())}
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Float64:
		return &schema{Type: "number"}
	}
	return &schema{Type: "integer"}
}

// validate checks a JSON value against a schema. Unknown keys are errors here.
func validate(root, s *schema, v any, path string) error {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = root.Defs[name]
	}
	kind := map[reflect.Kind]string{reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number", reflect.Invalid: "null"}[reflect.ValueOf(v).Kind()]
	want := []string{fmt.Sprint(s.Type)}
	if list, ok := s.Type.([]any); ok {
		want = nil
		for _, x := range list {
			want = append(want, x.(string))
		}
	}
	if f, ok := v.(float64); ok && f == float64(int64(f)) && slices.Contains(want, "integer") {
		kind = "integer"
	}
	if !slices.Contains(want, kind) {
		return fmt.Errorf("%s is of type %s, want %v", path, kind, want)
	}
	if s.Const != "" && v != s.Const {
		return fmt.Errorf("%s is %v, want %s", path, v, s.Const)
	}
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			if err := validate(root, s.Items, x, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, x := range v {
			p := s.Properties[key]
			if p == nil && s.Additional != nil {
				p = &schema{Type: "number"}
			}
			if p == nil {
				return fmt.Errorf("%s.%s is not in the schema", path, key)
			}
			if err := validate(root, p, x, path+"."+key); err != nil {
				return err
			}
		}
		for _, key := range s.Required {
			if _, ok := v[key]; !ok {
				return fmt.Errorf("%s.%s is missing", path, key)
			}
		}
	}
	return nil
}

// checkSchema checks a report, which has everything but these keys, against the schema.
func checkSchema(t *testing.T, r *accuracy.Report, without ...string) {
	t.Helper()
	b, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	root := &schema{}
	if err := json.Unmarshal(b, root); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if err := validate(root, root, v, "report"); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"baseline", "model", "text", "tensors", "parity", "gate", "run", "totals"} {
		if _, ok := v.(map[string]any)[key]; !ok && !slices.Contains(without, key) {
			t.Errorf("the report has no %s: the test does not say much", key)
		}
	}
}
