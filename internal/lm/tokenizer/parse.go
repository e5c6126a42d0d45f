package tokenizer

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type reParser struct {
	src   string
	pos   int
	depth int  // of groups and classes
	fold  bool // (?i)
}

// maxGroups bounds how deep groups and classes nest.
const maxGroups = 50

// maxRepeat is Oniguruma's bound for the numbers in {n,m}.
const maxRepeat = 100000

func parsePattern(src string) (root *reNode, err error) {
	p := &reParser{src: src}
	// Errors in a deep recursion are thrown as *patternError.
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *patternError:
			root, err = nil, e
		default:
			panic(e)
		}
	}()
	root = p.alternatives()
	if p.pos < len(src) {
		p.fail("unmatched parenthesis")
	}
	return root, nil
}

func (p *reParser) fail(format string, args ...any) {
	panic(&patternError{fmt.Sprintf(format, args...) + fmt.Sprintf(" at byte %d of the expression", p.pos), false})
}

func (p *reParser) unsupported(what string) {
	panic(&patternError{fmt.Sprintf("%s is not supported, at byte %d of the expression", what, p.pos), true})
}

// peek returns the next character, or -1 at the end.
func (p *reParser) peek() rune {
	if p.pos >= len(p.src) {
		return -1
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	return r
}

func (p *reParser) take() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	if n == 0 {
		p.fail("unexpected end")
	}
	p.pos += n
	return r
}

func (p *reParser) accept(s string) bool {
	if !strings.HasPrefix(p.src[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *reParser) enter() {
	if p.depth++; p.depth > maxGroups {
		p.fail("groups nest deeper than %d", maxGroups)
	}
}

// alternatives reads up to the end of the group. A (?i) in the middle holds up to the same place.
func (p *reParser) alternatives() *reNode {
	p.enter()
	fold := p.fold
	alt := &reNode{op: reAlt}
	for {
		alt.subs = append(alt.subs, p.sequence())
		if !p.accept("|") {
			break
		}
	}
	p.depth--
	p.fold = fold
	if len(alt.subs) == 1 {
		return alt.subs[0]
	}
	return alt
}

func (p *reParser) sequence() *reNode {
	cat := &reNode{op: reCat}
	for {
		switch p.peek() {
		case -1, '|', ')':
			return cat
		case '*', '+', '?':
			p.fail("nothing to repeat")
		}
		cat.subs = append(cat.subs, p.quantified(p.atom()))
	}
}

func (p *reParser) quantified(n *reNode) *reNode {
	for {
		start := p.pos
		var min, max int
		braces := false
		switch {
		case p.accept("*"):
			min, max = 0, -1
		case p.accept("+"):
			min, max = 1, -1
		case p.accept("?"):
			min, max = 0, 1
		default:
			if min, max, braces = p.braces(); !braces {
				return n
			}
		}
		if n.op != reClass && n.op != reCat && n.op != reAlt && n.op != reRepeat && n.op != reAtomic {
			p.pos = start
			p.unsupported("a quantifier on an assertion")
		}
		n = &reNode{op: reRepeat, subs: []*reNode{n}, min: min, max: max}
		switch {
		case braces && p.peek() == '?':
			// In Ruby's syntax {n}? means ({n})?, but {n,m}? is lazy.
			p.unsupported("? after a quantifier in braces")
		case braces: // {n,m}+ repeats {n,m}
		case p.accept("?"):
			n.greed = lazy
		case p.accept("+"):
			n.greed = possessive
		}
	}
}

// braces reads {n}, {n,}, {n,m} or {,m}. Braces around anything else are literal.
func (p *reParser) braces() (min, max int, ok bool) {
	rest := p.src[p.pos:]
	end := strings.IndexByte(rest, '}')
	if end < 2 || rest[0] != '{' || strings.Trim(rest[1:end], "0123456789,") != "" {
		return 0, 0, false
	}
	low, high, comma := strings.Cut(rest[1:end], ",")
	if strings.Contains(high, ",") || low == "" && high == "" {
		return 0, 0, false
	}
	number := func(s string, without int) int {
		if s == "" {
			return without
		}
		n, err := strconv.Atoi(s)
		if err != nil || n > maxRepeat {
			p.fail("a number of repeats above %d", maxRepeat)
		}
		return n
	}
	min = number(low, 0)
	max = min
	if comma {
		max = number(high, -1)
	}
	if max >= 0 && max < min {
		p.unsupported("a quantifier whose maximum is below its minimum")
	}
	p.pos += end + 1
	return min, max, true
}

func (p *reParser) atom() *reNode {
	switch {
	case p.accept("("):
		return p.group()
	case p.accept("["):
		return &reNode{op: reClass, cls: p.class()}
	case p.accept("."):
		return &reNode{op: reClass, cls: (&class{neg: true, ranges: []rune{'\n', '\n'}}).finish()}
	case p.accept("^"):
		return &reNode{op: reAssert, assert: '^'}
	case p.accept("$"):
		return &reNode{op: reAssert, assert: '$'}
	case p.accept(`\`):
		return p.escapeAtom()
	}
	return p.literal(p.take())
}

func (p *reParser) literal(r rune) *reNode {
	return &reNode{op: reClass, cls: (&class{ranges: []rune{r, r}, fold: p.fold}).finish()}
}

func (p *reParser) group() *reNode {
	fold := p.fold
	n := &reNode{}
	switch {
	case !p.accept("?"), p.accept(":"): // captures are not used
		n = p.alternatives()
	case p.accept("i:"):
		p.fold = true
		n = p.alternatives()
	case p.accept("-i:"):
		p.fold = false
		n = p.alternatives()
	case p.accept("i)"): // up to the end of the enclosing group
		p.fold = true
		// The rest includes alternatives: in Oniguruma a(?i)b|c is a(?i:b|c).
		return &reNode{op: reCat, subs: []*reNode{p.alternatives()}}
	case p.accept("="):
		n = &reNode{op: reLook, subs: []*reNode{p.alternatives()}}
	case p.accept("!"):
		n = &reNode{op: reLook, neg: true, subs: []*reNode{p.alternatives()}}
	case p.accept(">"):
		n = &reNode{op: reAtomic, subs: []*reNode{p.alternatives()}}
	case p.accept("<="), p.accept("<!"):
		n = p.behind(p.src[p.pos-1] == '!')
	case p.accept("#"):
		end := strings.IndexByte(p.src[p.pos:], ')')
		if end < 0 {
			p.fail("comment without end")
		}
		p.pos += end
		n = &reNode{op: reCat}
	default:
		p.unsupported(fmt.Sprintf("a group that begins with (?%.3s", p.src[p.pos:]))
	}
	if !p.accept(")") {
		p.fail("missing parenthesis")
	}
	p.fold = fold
	if n.op != reCat && n.op != reAlt && n.op != reLook && n.op != reBehind {
		n = &reNode{op: reCat, subs: []*reNode{n}}
	}
	return n
}

func (p *reParser) behind(neg bool) *reNode {
	n := p.alternatives()
	for (n.op == reCat || n.op == reAlt) && len(n.subs) == 1 {
		n = n.subs[0]
	}
	if n.op == reAlt {
		all := &class{}
		for _, s := range n.subs {
			for s.op == reCat && len(s.subs) == 1 {
				s = s.subs[0]
			}
			if s.op != reClass {
				p.unsupported("a look-behind of other than one character")
			}
			all.subs = append(all.subs, s.cls)
		}
		n = &reNode{op: reClass, cls: all.finish()}
	}
	if n.op != reClass {
		p.unsupported("a look-behind of other than one character")
	}
	return &reNode{op: reBehind, neg: neg, cls: n.cls}
}

// escapeAtom reads the character or set after a backslash outside of a class.
func (p *reParser) escapeAtom() *reNode {
	switch r := p.peek(); r {
	case 'A', 'z', 'Z', 'b', 'B':
		p.take()
		return &reNode{op: reAssert, assert: byte(r)}
	}
	switch {
	case p.accept("w"):
		return &reNode{op: reClass, cls: word()}
	case p.accept("W"):
		return &reNode{op: reClass, cls: (&class{neg: true, subs: []*class{word()}}).finish()}
	}
	c := &class{fold: p.fold}
	if r, ok := p.escape(c); ok {
		return p.literal(r)
	}
	return &reNode{op: reClass, cls: c.finish()}
}

// escape reads what a backslash escapes: a character, or a set to be added to c.
func (p *reParser) escape(c *class) (r rune, ok bool) {
	switch r = p.take(); r {
	case 's', 'S':
		c.cats |= flip(spaceCats, r == 'S')
	case 'd', 'D':
		c.cats |= flip(digitCats, r == 'D')
	case 'w':
		c.subs = append(c.subs, wordInClass())
	case 'W':
		c.subs = append(c.subs, &class{neg: true, subs: []*class{wordInClass()}})
	case 'h', 'H':
		hex := &class{ranges: []rune{'0', '9', 'a', 'f', 'A', 'F'}, neg: r == 'H'}
		c.subs = append(c.subs, hex)
	case 'p', 'P':
		p.property(c, r == 'P')
	case 'x':
		if p.accept("{") {
			return p.hex(strings.IndexByte(p.src[p.pos:], '}'), "}"), true
		}
		r := p.hex(2, "")
		if r >= utf8.RuneSelf {
			p.unsupported("a byte that is not a character")
		}
		return r, true
	case 'u':
		return p.hex(4, ""), true
	default:
		if control, ok := controls[r]; ok {
			return control, true
		}
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			p.unsupported(`\` + string(r))
		}
		return r, true
	}
	return 0, false
}

var controls = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

func flip(cats uint32, neg bool) uint32 {
	if neg {
		return ^cats
	}
	return cats
}

// hex reads a number of n digits and its closing character.
func (p *reParser) hex(n int, closing string) rune {
	if n < 1 || n > 8 || n > len(p.src)-p.pos {
		p.fail("malformed hexadecimal number")
	}
	v, err := strconv.ParseUint(p.src[p.pos:p.pos+n], 16, 32)
	if err != nil || v > unicode.MaxRune {
		p.fail("malformed hexadecimal number")
	}
	if p.pos += n; !p.accept(closing) {
		p.fail("malformed hexadecimal number")
	}
	return rune(v)
}

// property reads {Name} or {^Name}: a general category, a script or a property.
func (p *reParser) property(c *class, neg bool) {
	end := strings.IndexByte(p.src[p.pos:], '}')
	if !p.accept("{") || end < 0 {
		p.unsupported("a property without braces")
	}
	name := p.src[p.pos : p.pos+end-1]
	if strings.HasPrefix(name, "^") {
		name, neg = name[1:], !neg
	}
	if cats, ok := catMasks[name]; ok {
		c.cats |= flip(cats, neg)
		p.pos += end
		return
	}
	t := cmp.Or(unicode.Scripts[name], unicode.Properties[name])
	if t == nil {
		p.unsupported(fmt.Sprintf("the property %.30q", name))
	}
	c.subs = append(c.subs, &class{neg: neg, tables: []*unicode.RangeTable{t}})
	p.pos += end
}

// FormatError reports a file that is malformed or contradicts itself.
type FormatError struct {
	File string // "tokenizer.json"
	Path string // the component: "model.merges[17]"; "" for the whole file
	Msg  string
}

func (e *FormatError) Error() string { return place(e.File, e.Path) + e.Msg }

// UnsupportedError reports a component that this package does not implement.
type UnsupportedError FormatError

func (e *UnsupportedError) Error() string { return place(e.File, e.Path) + e.Msg }

func place(file, path string) string {
	if path == "" {
		return file + ": "
	}
	return fmt.Sprintf("%s: %s: ", file, path)
}
