package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is the model: a vocabulary, and the pairs of tokens that merge, best first. Immutable after
// reading.
type bpe struct {
	vocab  tokenTable
	tokens []string // by id, "" for unused ids
	merges pairTable
	joints joints

	runeID       [0x250]int32   // tokens of single characters, or -1
	otherID      map[rune]int32 // tokens of characters from 0x250
	prefix       string         // continuing_subword_prefix
	byteID       [256]int32     // tokens <0x00> to <0xFF>, or -1
	byteFallback bool
	unk          int32 // -1 if absent
	unkName      string
	fuseUnk      bool
	ignoreMerges bool
}

// maxTokenID bounds ids by the number of tokens, so that a single absurd id does not allocate
// gigabytes. Published vocabularies have gaps of at most some thousands.
func maxTokenID(tokens int) int { return 4*tokens + 1<<16 }

func readModel(n node, table []byte) (*bpe, error) {
	if n.null() {
		return nil, &FormatError{tokenizerFile, "model", "is missing"}
	}
	f := n.fields()
	// Files of 2020 have no type. A model with merges is BPE there.
	if _, ok := f.m["merges"]; f.err == nil && (f.m["type"].doc != nil || !ok) {
		if t := f.typ(); f.err == nil && t != "BPE" {
			return nil, n.unsupported("model %q is not supported", t)
		}
	}
	m := &bpe{
		prefix:       f.optionalStr("continuing_subword_prefix"),
		byteFallback: f.optionalBool("byte_fallback", false),
		unk:          -1,
		unkName:      f.optionalStr("unk_token"),
		fuseUnk:      f.optionalBool("fuse_unk", false),
		ignoreMerges: f.optionalBool("ignore_merges", false),
	}
	if s := f.optionalStr("end_of_word_suffix"); s != "" {
		f.fail(f.m["end_of_word_suffix"].unsupported("the suffix %q is not supported", s))
	}
	if d := f.m["dropout"]; !d.null() && strings.Trim(string(d.doc.data[d.start:d.end]), "0.") != "" {
		f.fail(d.unsupported("dropout is not supported"))
	}
	if _, ok := f.m["vocab"]; table != nil && !ok && f.err == nil {
		return m, m.readTable(table)
	}
	vocab, merges := f.child("vocab"), f.child("merges")
	if f.err != nil {
		return nil, f.err
	}
	if err := m.readVocab(vocab); err != nil {
		return nil, err
	}
	m.indexCharacters()
	if err := m.readMerges(merges); err != nil {
		return nil, err
	}
	return m, nil
}

// indexCharacters indexes the tokens of single characters, from which words are merged.
func (m *bpe) indexCharacters() {
	for r := range m.runeID {
		m.runeID[r] = -1
	}
	m.otherID = map[rune]int32{}
	for i, token := range m.tokens {
		id := int32(i)
		r, n := utf8.DecodeRuneInString(token)
		switch {
		case n == 0 || n < len(token):
		case int(r) < len(m.runeID):
			m.runeID[r] = id
		default:
			m.otherID[r] = id
		}
	}
	for b := range m.byteID {
		m.byteID[b] = -1
		if id, ok := m.id(fmt.Sprintf("<0x%02X>", b)); ok {
			m.byteID[b] = id
		}
	}
	if id, ok := m.id(m.unkName); ok && m.unkName != "" {
		m.unk = id
	}
}

func (m *bpe) encode(dst []int32, word string, w *work) ([]int32, error) {
	if m.ignoreMerges {
		if id, ok := m.id(word); ok {
			return append(dst, id), nil
		}
	}
	// Characters collect in w.ids until no merge joins the next character to the last: symbols on the
	// two sides of such a place never merge.
	w.ids = w.ids[:0]
	last := noJoint
	unks := false
	var err error
	for i, r := range word {
		if w.steps++; w.steps%(1<<16) == 0 {
			if err := w.ctx.Err(); err != nil {
				return nil, err
			}
		}
		id := m.character(r, i > 0)
		if id < 0 {
			if w.spare, unks, err = m.unknown(w.spare[:0], r, unks); err != nil {
				return nil, err
			}
			if len(w.spare) == 0 {
				continue // its neighbours become adjacent, as in the library
			}
		}
		if !m.joints.all && (id < 0 || last == noJoint || !m.joints.has(last, r)) {
			dst = m.merge(dst, w)
		}
		if id < 0 {
			w.ids = append(w.ids, w.spare...)
			last = noJoint
			continue
		}
		unks = false
		w.ids = append(w.ids, id)
		last = r
	}
	return m.merge(dst, w), nil
}

// character returns the token of a character of a word, or -1.
func (m *bpe) character(r rune, inside bool) int32 {
	if inside && m.prefix != "" {
		if id, ok := m.id(m.prefix + string(r)); ok {
			return id
		}
		return -1
	}
	if int(r) < len(m.runeID) {
		return m.runeID[r]
	}
	if id, ok := m.otherID[r]; ok {
		return id
	}
	return -1
}

// unknown appends the tokens for a character that the vocabulary lacks: its bytes if all bytes have
// tokens, else unk, else nothing. fused reports that the tokens end with an unk that may include
// this character.
func (m *bpe) unknown(dst []int32, r rune, fused bool) ([]int32, bool, error) {
	if m.byteFallback {
		n := len(dst)
		for _, b := range []byte(string(r)) {
			if m.byteID[b] < 0 {
				dst = dst[:n]
				break
			}
			dst = append(dst, m.byteID[b])
		}
		if len(dst) > n {
			return dst, false, nil
		}
	}
	switch {
	case m.unkName == "" || fused && m.fuseUnk:
	case m.unk < 0:
		return nil, false, fmt.Errorf("%s: model.unk_token: %q is not in the vocabulary", tokenizerFile, m.unkName)
	default:
		dst = append(dst, m.unk)
	}
	return dst, true, nil
}
