// Package yamldoc reads the YAML that people write: a single document, of bounded size and depth.
//
// The parser of github.com/goccy/go-yaml takes memory that grows with the square of the depth (2.4
// GB for 80 kB of nested lists). Its lexer does not, so the depth is checked before parsing.
package yamldoc

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/suggest"
)

// maxDepth bounds how deep lists and mappings are nested. Recipes and gates need 4 levels.
const maxDepth = 32

type Error struct {
	Line int // 1 is the first line; 0 if unknown
	Msg  string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
}

// Parse returns the single document of raw, or nil if raw holds at most comments. Anchors and
// aliases are refused, because they let a short text stand for a huge text. Tags are refused, too.
// Errors are of type *Error.
func Parse(raw []byte) (ast.Node, error) {
	if len(raw) > files.MaxYAML {
		return nil, &Error{0, fmt.Sprintf("%d bytes, more than the limit of %d", len(raw), files.MaxYAML)}
	}
	tokens := lexer.Tokenize(string(raw))
	if err := check(tokens); err != nil {
		return nil, err
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body != nil && body != nil {
			return nil, &Error{Line(d.Body), "a second document: only one is expected"}
		}
		if d.Body != nil {
			body = d.Body
		}
	}
	return body, nil
}

// Decode puts the single document of raw into the struct that v points to; a key that the struct
// does not have is an error. Errors are of type *Error.
func Decode(raw []byte, v any) error {
	n, err := Parse(raw)
	if err != nil || n == nil {
		return err
	}
	if err = yaml.NodeToValue(n, v, yaml.Strict()); err == nil {
		return nil
	}
	e := syntaxError(err)
	if u, ok := errors.AsType[*yaml.UnknownFieldError](err); ok {
		var known []string
		for f := range reflect.TypeOf(v).Elem().Fields() {
			known = append(known, f.Tag.Get("yaml"))
		}
		e.Msg += suggest.DidYouMean(u.Token.Value, known)
	}
	return e
}

// check refuses documents that would cost the parser too much.
func check(tokens token.Tokens) error {
	var d depth
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return &Error{t.Position.Line, fmt.Sprintf("%s: anchors, aliases and merge keys are not supported: write the value out", strings.TrimSpace(t.Value))}
		case token.TagType: // the decoder panics at a tag without a value
			return &Error{t.Position.Line, fmt.Sprintf("%s: tags are not supported: write the plain value", strings.TrimSpace(t.Value))}
		}
		if d.add(t) > maxDepth {
			return &Error{t.Position.Line, fmt.Sprintf("lists and mappings are nested deeper than %d levels", maxDepth)}
		}
	}
	return nil
}

type depth struct {
	flow   int   // open brackets and braces
	blocks []int // the columns of the open block lists and mappings, ascending
}

// add returns the depth with the next token.
func (d *depth) add(t *token.Token) int {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		d.flow++
	case token.SequenceEndType, token.MappingEndType:
		d.flow = max(0, d.flow-1)
	case token.SequenceEntryType, token.MappingKeyType:
		d.block(t.Position.Column)
	case token.MappingValueType: // the preceding key has the column
		if t.Prev != nil {
			d.block(t.Prev.Position.Column)
		}
	}
	return d.flow + len(d.blocks)
}

func (d *depth) block(column int) {
	if d.flow > 0 {
		return
	}
	for len(d.blocks) > 0 && d.blocks[len(d.blocks)-1] > column {
		d.blocks = d.blocks[:len(d.blocks)-1]
	}
	if len(d.blocks) == 0 || d.blocks[len(d.blocks)-1] < column {
		d.blocks = append(d.blocks, column)
	}
}

// syntaxError returns the line and the plain message of goccy/go-yaml's error, without its excerpt
// of the text. The lines of a message with a long key are joined.
func syntaxError(err error) *Error {
	lines := strings.NewReplacer("\r", " ", "\n", " ")
	var y yaml.Error
	if !errors.As(err, &y) {
		return &Error{Msg: lines.Replace(err.Error())}
	}
	e := &Error{Msg: lines.Replace(y.GetMessage())}
	if t := y.GetToken(); t != nil && t.Position != nil {
		e.Line = t.Position.Line
	}
	return e
}

// Line returns the line of a node; 0 if unknown.
func Line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}
