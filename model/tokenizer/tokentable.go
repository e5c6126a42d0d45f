package tokenizer

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

// tokenTable maps the texts of tokens to ids: a hash table with open addressing. Look-ups wait for memory,
// so a slot of 12 bytes holds a short text itself. Of 128,000 tokens it takes 3 MB, a Go map of strings
// twice as much.
type tokenTable struct {
	seed  maphash.Seed
	mix   [2]uint64 // random, so that nobody can write a file whose texts share slots
	slots []tokenSlot
	used  int
}

type tokenSlot struct {
	lo, hi uint32 // the text's key
	id     int32  // plus 1; 0 is an empty slot
}

// maxShort is the length in bytes of the longest text that is its own key.
const maxShort = 7

// init makes room for n tokens.
func (t *tokenTable) init(n int) {
	size := 8
	for size < 2*n {
		size *= 2
	}
	t.seed, t.mix = maphash.MakeSeed(), [2]uint64{rand.Uint64(), rand.Uint64() | 1}
	t.slots, t.used = make([]tokenSlot, size), 0
}

// key returns a short text's bytes and length, or a longer text's hash. Texts of different keys are
// different; short texts of the same key are the same.
func (t *tokenTable) key(text string) uint64 {
	n := len(text)
	switch {
	case n > maxShort:
		return maphash.String(t.seed, text) | 0xff<<56
	case n > 3:
		return uint64(load32(text)) | uint64(load32(text[n-4:]))<<(8*n-32) | uint64(n)<<56
	case n > 0:
		return uint64(text[0]) | uint64(text[n>>1])<<(n>>1*8) | uint64(text[n-1])<<(8*n-8) | uint64(n)<<56
	}
	return 0
}

// load32 returns the first four bytes of a text.
func load32(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// find returns the slot of a text with this key, or the empty slot where it belongs.
func (t *tokenTable) find(key uint64, text string, tokens []string) *tokenSlot {
	hi, lo := bits.Mul64(key^t.mix[0], t.mix[1])
	for i := hi ^ lo; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.id == 0 || s.lo == uint32(key) && s.hi == uint32(key>>32) && (len(text) <= maxShort || tokens[s.id-1] == text) {
			return s
		}
	}
}

// id returns the id of the token with this text, -1 if there is none.
func (m *bpe) id(text string) (id int32, ok bool) {
	s := m.vocab.find(m.vocab.key(text), text, m.tokens)
	return s.id - 1, s.id != 0
}

// addToken adds a token whose text has this key, unless the vocabulary has the text, and returns the id of
// the text. There must be room.
func (m *bpe) addToken(key uint64, text string, id int32) int32 {
	s := m.vocab.find(key, text, m.tokens)
	if s.id == 0 {
		*s = tokenSlot{uint32(key), uint32(key >> 32), id + 1}
		m.tokens[id] = text
		m.vocab.used++
	}
	return s.id - 1
}
