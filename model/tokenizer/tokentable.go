package tokenizer

import "hash/maphash"

// tokenTable maps the texts of tokens to ids: a hash table with open addressing, whose entries have
// eight bytes. Of 128,000 tokens it takes 2 MB, a Go map of strings three times as much; look-ups wait
// for memory.
type tokenTable struct {
	seed  maphash.Seed
	slots []tokenSlot
	used  int
}

type tokenSlot struct {
	tag uint32 // bits of the hash
	id  int32  // plus 1; 0 is an empty slot
}

// init makes room for n tokens.
func (t *tokenTable) init(n int) {
	size := 8
	for size < 2*n {
		size *= 2
	}
	t.seed, t.slots, t.used = maphash.MakeSeed(), make([]tokenSlot, size), 0
}

// find returns the slot of a text, or the empty slot where it belongs, and the text's tag.
func (t *tokenTable) find(text string, tokens []string) (s *tokenSlot, tag uint32) {
	h := maphash.String(t.seed, text)
	tag = uint32(h >> 32)
	for i := h; ; i++ {
		s = &t.slots[i&uint64(len(t.slots)-1)]
		if s.id == 0 || s.tag == tag && tokens[s.id-1] == text {
			return s, tag
		}
	}
}

// id returns the id of the token with this text.
func (m *bpe) id(text string) (id int32, ok bool) {
	s, _ := m.vocab.find(text, m.tokens)
	return s.id - 1, s.id != 0
}

// addToken adds a token whose text the vocabulary lacks. There must be room.
func (m *bpe) addToken(text string, id int32) {
	s, tag := m.vocab.find(text, m.tokens)
	*s = tokenSlot{tag, id + 1}
	m.tokens[id] = text
	m.vocab.used++
}
