package tokenizer

import (
	"cmp"
	"context"
	"iter"
	"slices"
)

// AddedToken is an entry of added_tokens: text that is one token wherever it occurs.
type AddedToken struct {
	ID         int32
	Content    string
	Special    bool // decoding can omit it
	Normalized bool // it is found in the normalized text
}

// Added returns the added token with this id; ok is false if the id is another kind of token.
func (t *Tokenizer) Added(id int32) (a AddedToken, ok bool) {
	i, ok := t.byID[id]
	if !ok {
		return a, false
	}
	x := &t.added[i]
	return AddedToken{x.id, x.content, x.special, x.normalized}, true
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

// Merged returns the token into which two tokens merge; ok is false if they do not merge.
func (t *Tokenizer) Merged(a, b int32) (id int32, ok bool) {
	m, ok := t.model.merges.get(a, b)
	return m.id, ok
}

// Unknown returns the token for characters that the vocabulary lacks.
func (t *Tokenizer) Unknown() (id int32, ok bool) { return t.model.unk, t.model.unk >= 0 }

// ByteFallback reports whether tokens named <0x00> to <0xFF> stand for characters that the
// vocabulary lacks, as in SentencePiece.
func (t *Tokenizer) ByteFallback() bool { return t.model.byteFallback }

// IgnoreMerges reports whether a word that is a token is this token, whether or not merges make it.
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
// tokens: merges never join two of them.
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
