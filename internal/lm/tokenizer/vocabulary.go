package tokenizer

import (
	"cmp"
	"context"
	"hash/maphash"
	"iter"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// Added returns the added token with this id; ok is false if the id is another kind of token.
func (t *Tokenizer) Added(id int32) (a AddedToken, ok bool) {
	i, ok := t.byID[id]
	if ok {
		a = t.added[i].AddedToken
	}
	return a, ok
}

// Merges yields the pairs of tokens that merge, best first.
func (t *Tokenizer) Merges() iter.Seq2[int32, int32] {
	return func(yield func(int32, int32) bool) {
		var slots []pairSlot
		for _, s := range t.model.merges.slots {
			if s.key != 0 {
				slots = append(slots, s)
			}
		}
		slices.SortFunc(slots, func(a, b pairSlot) int { return cmp.Compare(a.rank, b.rank) })
		for _, s := range slots {
			if !yield(int32((s.key-1)>>32), int32(uint32(s.key-1))) {
				return
			}
		}
	}
}

// Merged returns the token of two merged tokens; ok is false if the two do not merge.
func (t *Tokenizer) Merged(a, b int32) (id int32, ok bool) {
	m, ok := t.model.merges.get(a, b)
	return m.id, ok
}

// Unknown returns the token for characters that the vocabulary lacks.
func (t *Tokenizer) Unknown() (id int32, ok bool) { return t.model.unk, t.model.unk >= 0 }

// ByteFallback reports whether tokens named <0x00> to <0xFF> stand for characters that the
// vocabulary lacks, as in SentencePiece.
func (t *Tokenizer) ByteFallback() bool { return t.model.byteFallback }

// IgnoreMerges reports whether a word that is a token is this token, regardless of merges.
func (t *Tokenizer) IgnoreMerges() bool { return t.model.ignoreMerges }

// ByteLevel reports whether tokens are written as the printable characters that stand for bytes, as
// in GPT-2.
func (t *Tokenizer) ByteLevel() bool { return t.decoder.bytes == byteLevelMode }

// Role returns the token that tokenizer_config.json, or else special_tokens_map.json, names as
// pad_token, unk_token, sep_token or another key.
func (t *Tokenizer) Role(key string) (id int32, ok bool) {
	id, ok = t.roles.named[key]
	return id, ok
}

// Words returns the words into which the normalizers and pre-tokenizers divide a text without added
// tokens. Merges never cross words.
func (t *Tokenizer) Words(text string) (words []string, err error) {
	w := t.newWork()
	w.ctx = context.Background()
	if text, err = t.normalize(text, w); err != nil {
		return nil, err
	}
	word := t.stages(w, len(text), func(piece string, _ bool) error {
		words = append(words, piece)
		return nil
	})
	return words, word(text, true)
}

// tokenTable maps the texts of tokens to ids: a hash table with open addressing. Look-ups wait for
// memory, so a slot of 12 bytes holds a short text itself. 128,000 tokens take 3 MB, in a Go map of
// strings twice as much.
type tokenTable struct {
	seed  maphash.Seed
	mix   [2]uint64 // random: no file can make its texts share slots
	slots []tokenSlot
	used  int
}

type tokenSlot struct {
	lo, hi uint32 // the text's key
	id     int32  // plus 1; 0 is an empty slot
}

// maxShort is the length in bytes of the longest text that is its own key.
const maxShort = 7

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

func load32(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// find returns the slot of a text with this key, or the empty slot for the text.
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

// addToken adds a token with this text and key, unless the vocabulary has the text, and returns the
// id of the text. There must be room.
func (m *bpe) addToken(key uint64, text string, id int32) int32 {
	s := m.vocab.find(key, text, m.tokens)
	if s.id == 0 {
		*s = tokenSlot{uint32(key), uint32(key >> 32), id + 1}
		m.tokens[id] = text
		m.vocab.used++
	}
	return s.id - 1
}

// tokenTexts is a part of the vocabulary in a file.
type tokenTexts struct {
	// All tokens share a string, so that the garbage collector has a few objects to visit instead of
	// 260,000.
	text string
	ends []int
	ids  []int32
	keys []uint64
}

func (m *bpe) readVocab(n node) error {
	if n.kind() != '{' {
		return n.malformed("is not an object")
	}
	list := n.doc.index.Parts(n.doc.data, n.start)
	m.vocab.init(count(list))
	parts, err := readParts(list, func(p jsonscan.Part) (tokenTexts, error) { return m.readTokens(n, p) })
	if err != nil {
		return err
	}
	top := int32(-1)
	for _, p := range parts {
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

func count(list []jsonscan.Part) int {
	if len(list) == 0 {
		return 0
	}
	last := list[len(list)-1]
	return last.First + last.Count
}

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
	list := n.doc.index.Parts(n.doc.data, n.start)
	m.merges.init(count(list))
	parts, err := readParts(list, func(p jsonscan.Part) ([]tokenMerge, error) { return m.readSome(n, p) })
	if err != nil {
		return err
	}
	rank := uint32(0)
	for _, merges := range parts {
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
