package tokenizer

import (
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// tokenMerge is a merge as readMerges reads it.
type tokenMerge struct {
	a, b, merged int32
	joint        int32 // of a and b, see bpe.joint
}

// readMerges reads ["a b", ...] or [["a", "b"], ...]. If a pair occurs twice, the last one counts.
// The texts of 280,000 merges are looked up in several goroutines, which is most of the time that a
// tokenizer of 128,000 tokens takes to read.
func (m *bpe) readMerges(n node) error {
	if err := n.array(); err != nil {
		return err
	}
	list := n.parts()
	m.merges.init(count(list))
	rank := uint32(0)
	for merges, err := range readParts(list, func(p jsonscan.Part) ([]tokenMerge, error) { return m.readSome(n, p) }) {
		if err != nil {
			return err
		}
		for _, r := range merges {
			m.merges.set(pairKey(r.a, r.b), merge{rank, r.merged})
			m.joints.add(r.joint)
			rank++
		}
	}
	return nil
}

// readSome reads a part of the merges.
func (m *bpe) readSome(n node, p jsonscan.Part) ([]tokenMerge, error) {
	d, at := n.doc, p.At
	c := int32(-1) // the token that the pair before makes
	list := make([]tokenMerge, 0, p.Count)
	for i := p.First; i < p.First+p.Count; i++ {
		a, b, next, ok := d.readMerge(at)
		if !ok {
			return nil, n.at(i, at).malformed("is not a pair of tokens")
		}
		if b != "" || a != versionLine {
			r := tokenMerge{}
			var okA, okB bool
			r.a, okA = m.id(a)
			r.b, okB = m.id(b)
			if !okA || !okB {
				return nil, n.at(i, at).malformed("%.40q or %.40q is not in the vocabulary", a, b)
			}
			if len(b) < len(m.prefix) {
				return nil, n.at(i, at).malformed("%.40q does not begin with the prefix %q", b, m.prefix)
			}
			r.joint = m.joint(r.a, r.b, a, b)
			b = b[len(m.prefix):]
			// Merges are usually in the order of the tokens that they make.
			switch {
			case m.isToken(c+1, a, b):
				c++
			case !m.isToken(c, a, b):
				c, ok = m.id(a + b)
			}
			if !ok {
				return nil, n.at(i, at).malformed("%.40q is not in the vocabulary", a+b)
			}
			r.merged = c
			list = append(list, r)
		}
		at = d.space(d.space(next) + 1) // behind the comma
	}
	return list, nil
}

// isToken reports whether a token has the text a + b, which is not empty. There may be no such token.
func (m *bpe) isToken(id int32, a, b string) bool {
	if id < 0 || int(id) >= len(m.tokens) {
		return false
	}
	t := m.tokens[id]
	return t != "" && len(t) == len(a)+len(b) && t[:len(a)] == a && t[len(a):] == b
}

// versionLine is the first line of a merges.txt, which some files still contain.
const versionLine = "#version"

// readMerge reads one merge and returns the position after it. The first line of a merges.txt is
// versionLine and "".
func (d *document) readMerge(at int) (a, b string, next int, ok bool) {
	switch d.data[at] {
	case '"':
		s, next := d.text(at)
		if strings.HasPrefix(s, versionLine) {
			return versionLine, "", next, true
		}
		a, b, ok = strings.Cut(s, " ")
		return a, b, next, ok && strings.IndexByte(b, ' ') < 0
	case '[':
		var pair [2]string
		count := 0
		for next = d.space(at + 1); d.data[next] != ']'; count++ {
			if count > 1 || d.data[next] != '"' {
				return "", "", 0, false
			}
			pair[count], next = d.text(next)
			if next = d.space(next); d.data[next] == ',' {
				next = d.space(next + 1)
			}
		}
		return pair[0], pair[1], next + 1, count == 2
	}
	return "", "", 0, false
}
