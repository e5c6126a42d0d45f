package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// The regular expressions of tokenizer.json have Oniguruma's Ruby syntax. Package regexp has no
// look-ahead, but the pattern of every byte-level model needs \s+(?!\S). Package regexp2 has
// look-ahead, but is 7 to 17 times as slow (6 to 10 MB/s for the patterns of GPT-2, Llama 3,
// gpt-oss and DeepSeek-V3, against 41 to 126 here; EPYC, one core), has no bound, and implements
// another dialect. This package therefore has a parser for the constructs that tokenizers use (this
// file and parse.go) and a backtracking machine that counts its steps (match.go). Tests compare the
// results with regexp2's. Other constructs are refused by name: back references, named captures,
// look-behind of several characters, conditions, recursion.

type reOp uint8

const (
	reEmpty  reOp = iota
	reClass       // a character of cls
	reCat         // subs in sequence
	reAlt         // the first of subs that leads to a match
	reRepeat      // subs[0], min to max times (max -1: any number)
	reLook        // subs[0] matches here (neg: does not), without width
	reBehind      // the character before is of cls (neg: is not)
	reAtomic      // subs[0], without backtracking inside
	reAssert      // a position: an assertion below
)

// greed is the order in which a repeat tries counts.
type greed uint8

const (
	greedy     greed = iota // the most first
	lazy                    // the least first
	possessive              // only the most
)

type reNode struct {
	op       reOp
	cls      *class
	subs     []*reNode
	min, max int
	greed    greed
	neg      bool
	assert   byte // '^' '$' 'A' 'z' 'Z' 'b' 'B'
}

// starts reports whether a match of the node may begin with the ASCII character b, and whether a
// match may be empty, so that the next node counts as well.
func (n *reNode) starts(b byte) (can, empty bool) {
	switch n.op {
	case reClass:
		return n.cls.has(rune(b)), false
	case reCat:
		for _, s := range n.subs {
			c, e := s.starts(b)
			if can = can || c; !e {
				return can, false
			}
		}
		return can, true
	case reAlt:
		for _, s := range n.subs {
			c, e := s.starts(b)
			can, empty = can || c, empty || e
		}
		return can, empty
	case reRepeat:
		can, empty = n.subs[0].starts(b)
		return can, empty || n.min == 0
	case reAtomic:
		return n.subs[0].starts(b)
	}
	return false, true
}

type instOp uint8

const (
	iClass  instOp = iota // a character of cls
	iRun                  // min to max characters of cls, by greed (never lazy)
	iSplit                // go to x; if that fails, to y
	iJump                 // go to x
	iLook                 // the following code matches (neg: does not) up to its iMatch; go to x
	iAtomic               // match the following code up to its iMatch; go to x
	iBehind               // the character before is of cls (neg: is not)
	iAssert               // an assertion about the position
	iMatch                // the end
)

type inst struct {
	op       instOp
	greed    greed
	neg      bool
	assert   byte
	cls      *class
	min, max int
	x, y     int
}

// pattern is a compiled expression, for several goroutines at once.
type pattern struct {
	prog []inst
	alts []int // starts of the top-level alternatives in prog
	// first has, for each ASCII character, the alternatives (1 << index) that can match text beginning
	// with the character. This saves most of the attempts in English text.
	first [utf8.RuneSelf]uint64
}

// maxProgram bounds a program. The longest known pattern, o200k's, takes 84 instructions.
const maxProgram = 20000

// patternError reports why an expression cannot be compiled.
type patternError struct {
	msg         string
	unsupported bool // unsupported, not malformed
}

func (e *patternError) Error() string { return e.msg }

func compilePattern(src string) (*pattern, error) {
	fillCategories()
	root, err := parsePattern(src)
	if err != nil {
		return nil, err
	}
	alts := []*reNode{root}
	if root.op == reAlt && len(root.subs) <= 64 {
		alts = root.subs
	}
	p := &pattern{}
	for i, alt := range alts {
		p.alts = append(p.alts, len(p.prog))
		if err := p.emit(alt); err != nil {
			return nil, err
		}
		p.add(inst{op: iMatch})
		for b := range p.first {
			if can, empty := alt.starts(byte(b)); can || empty {
				p.first[b] |= 1 << i
			}
		}
	}
	return p, nil
}

func (p *pattern) add(in inst) int {
	p.prog = append(p.prog, in)
	return len(p.prog) - 1
}

func (p *pattern) emit(n *reNode) error {
	if len(p.prog) > maxProgram {
		return &patternError{fmt.Sprintf("the expression expands to more than %d instructions", maxProgram), true}
	}
	switch n.op {
	case reClass:
		p.add(inst{op: iClass, cls: n.cls})
	case reCat:
		for _, s := range n.subs {
			if err := p.emit(s); err != nil {
				return err
			}
		}
	case reAlt:
		return p.emitAlt(n.subs)
	case reRepeat:
		return p.emitRepeat(n)
	case reLook:
		return p.emitSub(inst{op: iLook, neg: n.neg}, n.subs[0])
	case reAtomic:
		return p.emitSub(inst{op: iAtomic}, n.subs[0])
	case reBehind:
		p.add(inst{op: iBehind, cls: n.cls, neg: n.neg})
	case reAssert:
		p.add(inst{op: iAssert, assert: n.assert})
	}
	return nil
}

// emitSub compiles n as a separate program inside p.
func (p *pattern) emitSub(in inst, n *reNode) error {
	at := p.add(in)
	if err := p.emit(n); err != nil {
		return err
	}
	p.add(inst{op: iMatch})
	p.prog[at].x = len(p.prog)
	return nil
}

func (p *pattern) emitAlt(subs []*reNode) error {
	var jumps []int
	for i, s := range subs {
		last := i == len(subs)-1
		split := len(p.prog)
		if !last {
			p.add(inst{op: iSplit, x: split + 1})
		}
		if err := p.emit(s); err != nil {
			return err
		}
		if !last {
			jumps = append(jumps, p.add(inst{op: iJump}))
			p.prog[split].y = len(p.prog)
		}
	}
	for _, j := range jumps {
		p.prog[j].x = len(p.prog)
	}
	return nil
}

func (p *pattern) emitRepeat(n *reNode) error {
	sub := n.subs[0]
	if sub.op == reClass && n.greed != lazy {
		p.add(inst{op: iRun, greed: n.greed, cls: sub.cls, min: n.min, max: n.max})
		return nil
	}
	if n.greed == possessive {
		plain := *n
		plain.greed = greedy
		return p.emitSub(inst{op: iAtomic}, &plain)
	}
	for range n.min {
		if err := p.emit(sub); err != nil {
			return err
		}
	}
	if n.max < 0 {
		if _, empty := sub.starts(0); empty {
			return &patternError{"a repeated group that may match nothing is not supported", true}
		}
		split := p.add(inst{op: iSplit, greed: n.greed})
		if err := p.emit(sub); err != nil {
			return err
		}
		p.add(inst{op: iJump, x: split})
		p.endSplit(split)
		return nil
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, p.add(inst{op: iSplit, greed: n.greed}))
		if err := p.emit(sub); err != nil {
			return err
		}
	}
	for _, s := range splits {
		p.endSplit(s)
	}
	return nil
}

// endSplit completes a choice between the next instruction and the code from here on.
func (p *pattern) endSplit(at int) {
	in := &p.prog[at]
	in.x, in.y = at+1, len(p.prog)
	if in.greed == lazy {
		in.x, in.y = in.y, in.x
	}
}
