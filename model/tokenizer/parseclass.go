package tokenizer

import "strings"

// class reads the rest of a class after the opening bracket. && binds weaker than union, and ^
// weakest.
func (p *reParser) class() *class {
	p.enter()
	c := &class{neg: p.accept("^"), fold: p.fold}
	operand := &class{}
	var operands []*class
	for first := true; ; first = false {
		switch {
		case p.pos >= len(p.src):
			p.fail("class without end")
		case p.accept("]"):
			if !first {
				p.depth--
				operands = append(operands, operand)
				c.subs, c.and = operands[:1], operands[1:]
				if len(operands) == 1 { // the usual case, without another level
					c.subs, c.and = operand.subs, nil
					c.cats, c.ranges, c.tables = operand.cats, operand.ranges, operand.tables
				}
				return c.finish()
			}
			p.pos--
			p.unsupported("] as the first character of a class")
		case p.accept("&&"):
			if first || strings.HasPrefix(p.src[p.pos:], "]") {
				p.unsupported("&& without a left and a right side")
			}
			operands = append(operands, operand)
			operand = &class{}
		case p.accept("[:"):
			p.unsupported("a POSIX bracket expression")
		case p.accept("["):
			operand.subs = append(operand.subs, p.class())
		default:
			p.classRange(operand)
		}
	}
}

// classRange reads a character, a set, or a range of characters.
func (p *reParser) classRange(c *class) {
	low, ok := p.classChar(c)
	if !ok {
		if p.peek() == '-' && !strings.HasPrefix(p.src[p.pos:], "-]") {
			p.unsupported("a range that begins with a set")
		}
		return
	}
	high := low
	if rest := p.src[p.pos:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' && !strings.HasPrefix(rest[1:], "&&") {
		p.take()
		if strings.HasPrefix(p.src[p.pos:], "[") {
			p.unsupported("a range that ends with a set")
		}
		if high, ok = p.classChar(c); !ok {
			p.unsupported("a range that ends with a set")
		}
		if high < low {
			p.fail("a range whose end is before its beginning")
		}
	}
	c.ranges = append(c.ranges, low, high)
}

// classChar reads one character, or adds a set to c.
func (p *reParser) classChar(c *class) (r rune, ok bool) {
	if p.accept(`\`) {
		if p.accept("b") {
			return '\b', true
		}
		return p.escape(c)
	}
	return p.take(), true
}
