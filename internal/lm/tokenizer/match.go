package tokenizer

import (
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// stepsPerByte bounds the work of a search by the length of the text. The patterns of published
// models take up to 5 steps per byte. An expression that backtracks without end, as in a hostile
// file, is stopped.
const stepsPerByte = 1000

type matcher struct {
	p     *pattern
	text  string
	stack []frame
	steps int // remaining
	next  int // start of the next search
	last  int // end of the last match, or -1
}

// frame is a choice to which the machine can backtrack.
type frame struct {
	pc, pos int
	min     int // shortest end of an iRun that may give back characters, or -1
}

func (m *matcher) reset(p *pattern, text string) {
	m.p, m.text, m.stack = p, text, m.stack[:0]
	m.steps = stepsPerByte * (len(text) + 100)
	m.next, m.last = 0, -1
}

// find returns the next match; start is -1 if there is none. As in Oniguruma's iterator, an empty
// match right after the last match does not count.
func (m *matcher) find() (start, end int, err error) {
	for start = m.next; start <= len(m.text); start += m.width(start) {
		end = m.matchAt(start)
		if m.steps < 0 {
			return 0, 0, fmt.Errorf("a regular expression takes more than %d steps a byte", stepsPerByte)
		}
		if end < 0 || end == start && start == m.last {
			continue
		}
		m.next, m.last = end, end
		return start, end, nil
	}
	m.next = len(m.text) + 1
	return -1, -1, nil
}

// width returns the length of the character at pos; 1 at the end.
func (m *matcher) width(pos int) int {
	_, n := utf8.DecodeRuneInString(m.text[pos:])
	return max(1, n)
}

// matchAt returns the end of the match that begins at pos, or -1.
func (m *matcher) matchAt(pos int) int {
	if pos < len(m.text) && m.text[pos] < utf8.RuneSelf {
		for set := m.p.first[m.text[pos]]; set != 0; set &= set - 1 {
			if end := m.run(m.p.alts[bits.TrailingZeros64(set)], pos); end >= 0 {
				return end
			}
		}
		return -1
	}
	for _, pc := range m.p.alts {
		if end := m.run(pc, pos); end >= 0 {
			return end
		}
	}
	return -1
}

// run executes the program from pc at pos to its iMatch and returns the position there, or -1. The
// stack stays unchanged.
func (m *matcher) run(pc, pos int) int {
	base := len(m.stack)
	for {
		in := &m.p.prog[pc]
		ok := true
		if m.steps--; m.steps < 0 {
			m.stack = m.stack[:base]
			return -1
		}
		switch in.op {
		case iClass:
			var n int
			if n, ok = m.one(in.cls, pos); ok {
				pos += n
				pc++
			}
		case iRun:
			least, most := m.extent(in, pos)
			if ok = least >= 0; ok {
				if most > least && in.greed == greedy {
					m.stack = append(m.stack, frame{pc, most, least})
				}
				pos = most
				pc++
			}
		case iSplit:
			m.stack = append(m.stack, frame{in.y, pos, -1})
			pc = in.x
		case iJump:
			pc = in.x
		case iLook:
			ok = m.run(pc+1, pos) >= 0 != in.neg
			pc = in.x
		case iAtomic:
			end := m.run(pc+1, pos)
			if ok = end >= 0; ok {
				pos = end
				pc = in.x
			}
		case iBehind:
			ok = m.before(in.cls, pos) != in.neg
			pc++
		case iAssert:
			ok = m.holds(in.assert, pos)
			pc++
		case iMatch:
			m.stack = m.stack[:base]
			return pos
		}
		if ok {
			continue
		}
		if len(m.stack) == base {
			return -1
		}
		pc, pos = m.back()
	}
}

// back undoes the last choice and returns where to continue.
func (m *matcher) back() (pc, pos int) {
	top := &m.stack[len(m.stack)-1]
	if top.min < 0 {
		pc, pos = top.pc, top.pos
		m.stack = m.stack[:len(m.stack)-1]
		return pc, pos
	}
	_, n := utf8.DecodeLastRuneInString(m.text[:top.pos])
	top.pos -= n
	pc, pos = top.pc+1, top.pos
	if top.pos == top.min {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return pc, pos
}

func (m *matcher) one(c *class, pos int) (int, bool) {
	if pos >= len(m.text) {
		return 0, false
	}
	if b := m.text[pos]; b < utf8.RuneSelf {
		return 1, c.ascii[b>>6]>>(b&63)&1 != 0
	}
	r, n := utf8.DecodeRuneInString(m.text[pos:])
	return n, c.eval(r)
}

// extent returns the ends of the shortest and of the longest run of in at pos; least is -1 without
// a run.
func (m *matcher) extent(in *inst, pos int) (least, most int) {
	least, most = -1, pos
	count := 0
	for ; in.max < 0 || count < in.max; count++ {
		if count == in.min {
			least = most
		}
		n, ok := m.one(in.cls, most)
		if !ok {
			break
		}
		most += n
	}
	if count == in.min {
		least = most
	}
	m.steps -= count
	return least, most
}

func (m *matcher) before(c *class, pos int) bool {
	if pos == 0 {
		return false
	}
	r, _ := utf8.DecodeLastRuneInString(m.text[:pos])
	return c.has(r)
}

// holds reports whether an assertion is true at pos. In Ruby's syntax ^ and $ match at the ends of
// lines.
func (m *matcher) holds(assert byte, pos int) bool {
	rest := m.text[pos:]
	switch assert {
	case 'A':
		return pos == 0
	case 'z':
		return rest == ""
	case 'Z':
		return rest == "" || rest == "\n"
	case '^':
		return pos == 0 || m.text[pos-1] == '\n'
	case '$':
		return rest == "" || rest[0] == '\n'
	}
	_, after := m.one(word(), pos)
	return (m.before(word(), pos) != after) == (assert == 'b')
}
