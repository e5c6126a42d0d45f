package tokenizer

import (
	"slices"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// tokenTexts is a part of the vocabulary as readVocab reads it.
type tokenTexts struct {
	// All tokens share one string, so that the garbage collector has a few objects to visit instead of
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
