package tokenizer

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// class is a set of characters in a regular expression.
type class struct {
	neg    bool                  // the complement
	cats   uint32                // the categories 1 << category
	ranges []rune                // pairs: first and last
	tables []*unicode.RangeTable // scripts and properties
	subs   []*class              // classes within the class
	and    []*class              // && intersections
	fold   bool                  // ignore case
	ascii  [2]uint64             // bit r: r < 128 is in the class; set by finish
}

// finish must be called when the class is complete.
func (c *class) finish() *class {
	c.ascii = [2]uint64{}
	for r := rune(0); r < utf8.RuneSelf; r++ {
		if c.eval(r) {
			c.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return c
}

func (c *class) has(r rune) bool {
	if uint32(r) < utf8.RuneSelf {
		return c.ascii[r>>6]>>(r&63)&1 != 0
	}
	return c.eval(r)
}

func (c *class) eval(r rune) bool {
	in := c.plain(r)
	if c.fold {
		for o := unicode.SimpleFold(r); o != r && !in; o = unicode.SimpleFold(o) {
			in = c.plain(o)
		}
	}
	return in != c.neg
}

// plain is eval without fold and neg.
func (c *class) plain(r rune) bool {
	in := c.cats != 0 && c.cats>>catTable[r]&1 != 0
	for i := 0; i < len(c.ranges) && !in; i += 2 {
		in = c.ranges[i] <= r && r <= c.ranges[i+1]
	}
	for i := 0; i < len(c.tables) && !in; i++ {
		in = unicode.Is(c.tables[i], r)
	}
	for i := 0; i < len(c.subs) && !in; i++ {
		in = c.subs[i].eval(r)
	}
	for i := 0; i < len(c.and) && in; i++ {
		in = c.and[i].eval(r)
	}
	return in
}

// categoryNames are the general categories by number. Control characters that are white space have
// a separate category, so that \s and \S are sets of categories. Number 0 is an unassigned code
// point.
var categoryNames = [...]string{
	"Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No",
	"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs", "", "",
}

// catSpace is U+0009 to U+000D and U+0085.
const catSpace = 30

// catMasks has the sets of categories by their first letter or both: "L", "Lu".
var catMasks = func() map[string]uint32 {
	m := map[string]uint32{}
	for i, name := range categoryNames {
		if name != "" {
			m[name] |= 1 << i
			m[name[:1]] |= 1 << i
		}
	}
	m["Cc"] |= 1 << catSpace
	m["C"] |= 1 << catSpace
	m["LC"] = m["Lu"] | m["Ll"] | m["Lt"]
	return m
}()

// catTable has the category of each code point. A look-up takes 2 ns, compared with 6 ns in a range
// table of package unicode (EPYC).
var catTable [unicode.MaxRune + 1]uint8

var fillCategories = sync.OnceFunc(func() {
	for i, name := range categoryNames {
		if i == 0 || name == "" {
			continue
		}
		rangetable.Visit(unicode.Categories[name], func(r rune) { catTable[r] = uint8(i) })
	}
	for _, c := range [...]rune{'\t', '\n', '\v', '\f', '\r', 0x85} {
		catTable[c] = catSpace
	}
})

// The classes of escapes.
var (
	spaceCats = catMasks["Z"] | 1<<catSpace
	digitCats = catMasks["Nd"]
)

// wordInClass is \w within brackets. Alphabetic characters other than letters, marks and digits are
// letter numbers and circled letters; Unicode defines the circled letters by a property.
var wordInClass = sync.OnceValue(func() *class {
	fillCategories()
	cats := catMasks["L"] | catMasks["M"] | catMasks["Nd"] | catMasks["Nl"] | catMasks["Pc"]
	return (&class{cats: cats, tables: []*unicode.RangeTable{unicode.Other_Alphabetic}}).finish()
})

// word is \w outside of brackets, and in \b: Oniguruma includes the superscripts and fractions of
// Latin-1 there.
var word = sync.OnceValue(func() *class {
	latin1 := []rune{0xB2, 0xB3, 0xB9, 0xB9, 0xBC, 0xBE}
	return (&class{ranges: latin1, subs: []*class{wordInClass()}}).finish()
})

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

// classChar reads a character, or adds a set to c.
func (p *reParser) classChar(c *class) (r rune, ok bool) {
	if p.accept(`\`) {
		if p.accept("b") {
			return '\b', true
		}
		return p.escape(c)
	}
	return p.take(), true
}
