package chat

import (
	"fmt"
	"slices"
)

// maxOperators is the number of operators in an expression. Each may copy the text joined so far.
const maxOperators = 500

// operand says which filters the last operand in the output needs.
type operand struct {
	charge bool // has to pass the filter charge
	factor bool // has to pass the filter factor
}

// expression rewrites tokens up to a token that cannot belong to the expression: the end of the
// statement, a closing bracket, a comma, a colon, an =, or a name of until. joined says that the
// value is written or becomes a part of another value.
func (r *rewriter) expression(joined bool, until ...string) error {
	r.brackets++
	defer func() { r.brackets-- }()
	if r.brackets > 100 {
		return fmt.Errorf("an expression is nested more than 100 deep")
	}
	var (
		now       operand
		have      bool // an operand stands before the token
		start     = -1 // of the operand in out
		products  int
		operators int
	)
	finish := func() {
		if have && now.factor {
			r.emit("|" + factorFilter + " ")
		}
		if have && (now.charge || joined) {
			r.emit("|" + chargeFilter + " ")
		}
		have, now, start = false, operand{}, -1
	}
	for {
		switch t := r.tok; {
		case operators > maxOperators:
			return fmt.Errorf("more than %d operators in one expression", maxOperators)
		case t.kind == tokenEnd || t.kind == tokenBad || t.kind == tokenName && slices.Contains(until, t.text),
			t.kind == tokenOperator && slices.Contains([]string{")", "]", "}", ",", ":", "="}, t.text):
			finish()
			return nil
		case have && t.is(tokenOperator, "|"):
			if err := r.filters(); err != nil {
				return err
			}
		case have && t.is(tokenName, "is"):
			// A test is a part of its operand. The value of a test is small.
			r.out[start] = "(" + r.out[start]
			if err := r.test(); err != nil {
				return err
			}
			r.emit(")")
		case have && t.is(tokenName, "not"): // not in
			now.charge = true
			finish()
			r.copy()
			if !r.tok.is(tokenName, "in") {
				return r.unexpected("in")
			}
			r.copy()
			now.charge = true
		case t.kind == tokenName && slices.Contains([]string{"and", "or", "not", "if", "else"}, t.text):
			operators++
			finish()
			r.copy()
		case t.is(tokenOperator, "**"):
			return fmt.Errorf("the operator ** is not supported in chat templates")
		case have && t.is(tokenOperator, "*"):
			if products++; products > 1 {
				return fmt.Errorf("two products in one expression are not supported in chat templates")
			}
			now.factor = true
			finish()
			r.copy()
			now.factor = true
		case have && (t.kind == tokenOperator || t.is(tokenName, "in")):
			operators++
			// All operators but these four, for numbers, read both operands completely.
			compared := !slices.Contains([]string{"-", "/", "//", "%"}, t.text)
			now.charge = now.charge || compared
			finish()
			r.copy()
			now.charge = compared
		case have:
			return r.unexpected("an operator")
		default:
			if start < 0 {
				start = len(r.out)
				r.emit("")
			}
			if t.is(tokenOperator, "-") { // a sign
				operators++
				r.copy()
				continue
			}
			if err := r.chain(joined || now.charge); err != nil {
				return err
			}
			have = true
		}
	}
}

var closing = map[string]string{"(": ")", "[": "]", "{": "}"}

// chain rewrites a name, a literal or brackets, with the following attributes, subscripts and
// calls.
func (r *rewriter) chain(joined bool) error {
	start := len(r.out)
	r.emit("")  // becomes brackets of methods
	r.emit("(") // minijinja's - takes only what follows immediately
	switch t := r.tok; {
	case t.kind == tokenString:
		for r.tok.kind == tokenString {
			r.copy()
		}
	case t.kind == tokenName || t.kind == tokenNumber:
		r.copy()
	case t.kind == tokenOperator && closing[t.text] != "":
		if err := r.list(closing[t.text], joined || t.text != "(", func() {}); err != nil {
			return err
		}
	default:
		return r.unexpected("a value")
	}
	for r.tok.kind == tokenOperator {
		var err error
		switch r.tok.text {
		case ".":
			err = r.attribute(start)
		case "[":
			err = r.subscript(start)
		case "(":
			err = r.call(start)
		default:
			r.emit(")")
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.emit(")")
	return nil
}

// call rewrites the arguments of a call. The result is charged because it may be the text of a
// macro.
func (r *rewriter) call(start int) error {
	if err := r.arguments(); err != nil {
		return err
	}
	r.out[start] += "("
	r.emit("|" + chargeFilter + ")")
	return nil
}

// subscript rewrites [index] or [from:to:step]. Both are charged: a list's slice is a copy, and a
// string is decoded.
func (r *rewriter) subscript(start int) error {
	r.out[start] += "("
	r.emit("|" + itemFilter + "(")
	slice := len(r.out)
	r.emit("false")
	r.emit("))")
	return r.list("]", false, func() { r.out[slice] = "true" })
}

func (r *rewriter) attribute(start int) error {
	r.next()
	if r.tok.kind == tokenNumber {
		r.emit(".")
		r.copy()
		return nil
	}
	if r.tok.kind != tokenName {
		return r.unexpected("the name of an attribute")
	}
	name := r.tok.text
	r.next()
	if _, ok := methods[name]; !ok || !r.tok.is(tokenOperator, "(") {
		r.emit("." + name)
		return nil
	}
	r.out[start] += "("
	r.emit("|" + methodPrefix + name)
	if err := r.arguments(); err != nil {
		return err
	}
	r.emit(")")
	return nil
}

// list rewrites brackets with comma-separated values, and calls colon for each colon.
func (r *rewriter) list(end string, joined bool, colon func()) error {
	r.copy()
	for !r.tok.is(tokenOperator, end) {
		if r.tok.is(tokenOperator, ",") || r.tok.is(tokenOperator, ":") {
			if r.tok.text == ":" {
				colon()
			}
			r.copy()
			continue
		}
		if err := r.element(end, joined); err != nil {
			return err
		}
	}
	r.copy()
	return nil
}

// element rewrites a value in brackets.
func (r *rewriter) element(end string, joined bool) error {
	before := r.at
	if err := r.expression(joined); err != nil {
		return err
	}
	if r.tok.kind == tokenEnd || r.tok.kind == tokenBad || before == r.at && !r.tok.is(tokenOperator, end) {
		return r.unexpected(end)
	}
	return nil
}

func (r *rewriter) arguments() error {
	r.copy()
	for !r.tok.is(tokenOperator, ")") {
		switch {
		case r.tok.is(tokenOperator, ","):
			r.copy()
			continue
		case r.tok.kind == tokenName && r.assigns():
			r.copy()
			r.copy()
		case r.tok.is(tokenOperator, "*"):
			return fmt.Errorf("lists of arguments are not supported in chat templates")
		}
		if err := r.element(")", false); err != nil {
			return err
		}
	}
	r.copy()
	return nil
}

// assigns reports whether the token is followed by a single =.
func (r *rewriter) assigns() bool {
	s := r.scanner
	_, t := s.token()
	return t.is(tokenOperator, "=")
}

// filters rewrites any number of |name and |name(arguments).
func (r *rewriter) filters() error {
	for r.tok.is(tokenOperator, "|") {
		r.copy()
		if err := r.filter(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rewriter) filter() error {
	if r.tok.kind != tokenName {
		return r.unexpected("the name of a filter")
	}
	r.copy()
	if r.tok.is(tokenOperator, "(") {
		return r.arguments()
	}
	return nil
}

func (r *rewriter) test() error {
	r.copy()
	if r.tok.is(tokenName, "not") {
		r.copy()
	}
	if r.tok.kind != tokenName {
		return r.unexpected("the name of a test")
	}
	r.copy()
	if r.tok.is(tokenOperator, "(") {
		return r.arguments()
	}
	// A test may have a single argument without brackets.
	if r.tok.kind == tokenString || r.tok.kind == tokenNumber || r.tok.is(tokenOperator, "[") ||
		r.tok.kind == tokenName && !slices.Contains([]string{"and", "or", "else", "is", "if", "not", "in"}, r.tok.text) {
		return r.chain(false)
	}
	return nil
}
