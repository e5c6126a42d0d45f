package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rewrite prepares a template for minijinja. In the result
//
//   - methods of Python's types are filters, since minijinja calls no methods of strings:
//     x.split('a')[0] becomes (x|py_split('a'))[0];
//   - operands that are joined or written pass the filter charge, factors pass the filter factor,
//     and the values of a for statement pass the filter loop: these filters limit the data that the
//     template moves (see meter.go);
//   - the statements generation and endgeneration (marks for training) do nothing;
//   - statements that the limits do not cover are refused. Chat templates do not need these.
//
// Lines stay lines, so that errors of minijinja have the right line.
func rewrite(source string) (string, error) {
	if len(source) > maxTemplate {
		return "", fmt.Errorf("%d bytes, at most %d are read", len(source), maxTemplate)
	}
	r := &rewriter{scanner: scanner{text: source, line: 1}}
	if err := r.template(); err != nil {
		return "", fmt.Errorf("line %d: %w", r.tokenLine(), err)
	}
	return strings.Join(r.out, ""), nil
}

type rewriter struct {
	scanner
	out      []string
	tok      token
	last     string // text of the token before
	literal  int    // bytes of text outside of statements so far
	loops    []openLoop
	brackets int
}

// openLoop is a for statement without its end so far.
type openLoop struct {
	count int // index in out of the literal text's size
	start int // literal text before the statement
}

// template rewrites text, {{ expressions }}, {% statements %} and {# comments #}.
func (r *rewriter) template() error {
	for {
		text, kind := r.data()
		r.literal += len(text)
		r.emit(text)
		var err error
		switch kind {
		case "":
			if len(r.loops) > 0 {
				return fmt.Errorf("a for has no endfor")
			}
			return nil
		case "{#":
			var comment string
			if comment, err = r.comment(); err == nil {
				r.emit(comment)
			}
		default:
			end, rest := "}}", func() error { return r.expression(true) }
			if kind == "{%" {
				end, rest = "%}", r.statement
			}
			r.emit(r.open())
			r.next()
			if err = rest(); err == nil {
				err = r.close(end)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (r *rewriter) emit(text string) { r.out = append(r.out, text) }

// next emits the spaces before the next token and takes the token.
func (r *rewriter) next() {
	r.last = r.tok.text
	space, tok := r.token()
	r.emit(space)
	r.tok = tok
}

func (r *rewriter) copy() {
	r.emit(r.tok.text)
	r.next()
}

func (r *rewriter) close(end string) error {
	text := strings.TrimLeft(r.tok.text, "-+")
	if r.tok.kind != tokenEnd || text != end {
		return r.unexpected("the end of " + map[string]string{"}}": "{{", "%}": "{%"}[end])
	}
	r.emit(r.tok.text)
	r.tok = token{}
	return nil
}

func (r *rewriter) unexpected(expected string) error {
	switch {
	case r.tok.kind == tokenBad:
		return fmt.Errorf("%s", r.tok.text)
	case r.tok.text == "":
		return fmt.Errorf("the template ends, expected %s", expected)
	}
	return fmt.Errorf("unexpected %q, expected %s", r.tok.text, expected)
}

// plain are statements that end after their name.
var plain = []string{"endfor", "else", "endif", "endset", "endmacro", "endwith", "endfilter", "break", "continue"}

func (r *rewriter) statement() error {
	if r.tok.kind != tokenName {
		return r.unexpected("a statement")
	}
	name := r.tok.text
	switch name {
	case "generation", "endgeneration":
		r.tok.text = map[string]string{"generation": "if true", "endgeneration": "endif"}[name]
		r.copy()
		return nil
	case "endfor":
		if len(r.loops) == 0 {
			return fmt.Errorf("an endfor without a for")
		}
		l := r.loops[len(r.loops)-1]
		r.loops = r.loops[:len(r.loops)-1]
		r.out[l.count] = strconv.Itoa(r.literal - l.start)
	}
	r.copy()
	switch name {
	case "if", "elif":
		return r.expression(false)
	case "for":
		return r.forLoop()
	case "set":
		return r.set()
	case "macro":
		return r.macro()
	case "with":
		return r.assignments()
	case "filter":
		return r.blockFilter()
	}
	if slices.Contains(plain, name) {
		return nil
	}
	return fmt.Errorf("the statement %s is not supported in chat templates", name)
}

// forLoop rewrites the rest of {% for target in values if condition %}.
func (r *rewriter) forLoop() error {
	for r.tok.kind != tokenEnd && !r.tok.is(tokenName, "in") && r.tok.kind != tokenBad {
		r.copy()
	}
	if !r.tok.is(tokenName, "in") {
		return r.unexpected("in")
	}
	r.copy()
	r.emit("(")
	if err := r.expression(false, "if", "recursive"); err != nil {
		return err
	}
	r.emit(")|" + loopFilter + "(")
	r.loops = append(r.loops, openLoop{count: len(r.out), start: r.literal})
	r.emit("0")
	r.emit(") ")
	if r.tok.is(tokenName, "if") {
		r.copy()
		return r.expression(false)
	}
	return nil
}

// set rewrites the rest of {% set target = value %} or {% set target %}.
func (r *rewriter) set() error {
	for r.tok.kind != tokenEnd && !r.tok.is(tokenOperator, "=") && r.tok.kind != tokenBad {
		if r.tok.is(tokenOperator, "|") {
			r.copy()
			return r.blockFilter()
		}
		r.copy()
	}
	if !r.tok.is(tokenOperator, "=") {
		return nil
	}
	r.copy()
	return r.expression(false)
}

// blockFilter rewrites the filter of {% filter name(arguments) %} and {% set target | name %}.
func (r *rewriter) blockFilter() error {
	if err := r.filter(); err != nil {
		return err
	}
	if r.tok.is(tokenOperator, "|") { // minijinja applies the last filter of a block only
		return fmt.Errorf("two filters of one block are not supported in chat templates")
	}
	return nil
}

// macro rewrites the rest of {% macro name(a, b=value) %}.
func (r *rewriter) macro() error {
	if r.tok.kind != tokenName {
		return r.unexpected("the name of a macro")
	}
	r.copy()
	if !r.tok.is(tokenOperator, "(") {
		return r.unexpected("(")
	}
	r.copy()
	for !r.tok.is(tokenOperator, ")") {
		switch {
		case r.tok.is(tokenOperator, "="):
			r.copy()
			if err := r.expression(false); err != nil {
				return err
			}
		case r.tok.kind == tokenName || r.tok.is(tokenOperator, ","):
			r.copy()
		default:
			return r.unexpected("a parameter")
		}
	}
	r.copy()
	return nil
}

// assignments rewrites the rest of {% with a = value, b = value %}.
func (r *rewriter) assignments() error {
	for r.tok.kind != tokenEnd {
		if r.tok.kind != tokenName {
			return r.unexpected("a name")
		}
		r.copy()
		if !r.tok.is(tokenOperator, "=") {
			return r.unexpected("=")
		}
		r.copy()
		if err := r.expression(false); err != nil {
			return err
		}
		if r.tok.is(tokenOperator, ",") {
			r.copy()
		}
	}
	return nil
}
