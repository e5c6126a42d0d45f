package tokenizer

import (
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// tokenTexts is a part of the vocabulary in a file.
type tokenTexts struct {
	// All tokens share a string, so that the garbage collector has a few objects to visit instead of
	// 260,000.
	text string
	ends []int
	ids  []int32
	keys []uint64
}

// readVocab reads {"token": id, ...}.
func (m *bpe) readVocab(n node) error {
	if n.kind() != '{' {
		return n.malformed("is not an object")
	}
	list := n.parts()
	m.vocab.init(count(list))
	var parts []tokenTexts
	top := int32(-1)
	for p, err := range readParts(list, func(p jsonscan.Part) (tokenTexts, error) { return m.readTokens(n, p) }) {
		if err != nil {
			return err
		}
		parts = append(parts, p)
		top = max(top, slices.Max(p.ids))
	}
	if int(top) > maxTokenID(count(list)) {
		return n.malformed("id %d in a vocabulary of %d tokens", top, count(list))
	}
	m.tokens = make([]string, top+1)
	taken := make([]bool, top+1)
	for _, p := range parts {
		start := 0
		for i, id := range p.ids {
			token := p.text[start:p.ends[i]]
			start = p.ends[i]
			if taken[id] && m.tokens[id] != token {
				return n.malformed("the tokens %.40q and %.40q have the same id %d", m.tokens[id], token, id)
			}
			if old := m.addToken(p.keys[i], token, id); old != id {
				return n.malformed("token %.40q has the ids %d and %d", token, old, id)
			}
			taken[id] = true
		}
	}
	return nil
}

// readTokens reads a part of the vocabulary.
func (m *bpe) readTokens(n node, p jsonscan.Part) (t tokenTexts, err error) {
	d, at := n.doc, p.At
	t.ends, t.ids, t.keys = make([]int, p.Count), make([]int32, p.Count), make([]uint64, p.Count)
	var all []byte
	start := 0
	for i := range p.Count {
		key := at
		all, at = jsonscan.AppendString(all, d.data, at)
		t.ends[i], t.keys[i] = len(all), m.vocab.key(string(all[start:]))
		start = len(all)
		at = d.space(d.space(at) + 1) // behind the colon
		value := at
		t.ids[i], at = d.integer(at)
		if at == value || !jsonscan.Delimits(d.data[at]) {
			token, _ := d.text(key)
			return t, n.malformed("the id of token %.40q is not an integer from 0 to 2147483647", token)
		}
		at = d.space(d.space(at) + 1) // behind the comma
	}
	t.text = string(all)
	return t, nil
}

// count returns the number of elements of all parts.
func count(list []jsonscan.Part) int {
	if len(list) == 0 {
		return 0
	}
	last := list[len(list)-1]
	return last.First + last.Count
}

// tokenMerge is a merge in a file.
type tokenMerge struct {
	a, b, merged int32
	joint        int32 // of a and b, see bpe.joint
}

// readMerges reads ["a b", ...] or [["a", "b"], ...]. Of equal pairs, the last counts. Looking up
// the texts takes most of the time of reading a tokenizer (128,000 tokens, 280,000 merges), so
// several goroutines do it.
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
			// Merges are usually in the order of the merged tokens.
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

// isToken reports whether token id exists and has the text a + b. That text is not empty.
func (m *bpe) isToken(id int32, a, b string) bool {
	if id < 0 || int(id) >= len(m.tokens) {
		return false
	}
	t := m.tokens[id]
	return t != "" && len(t) == len(a)+len(b) && t[:len(a)] == a && t[len(a):] == b
}

// versionLine is the first line of a merges.txt, still present in some files.
const versionLine = "#version"

// readMerge reads a merge and returns the position behind it. The first line of a merges.txt is
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
