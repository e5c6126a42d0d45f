package llamacpp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// sentencePiece writes a tokenizer of SentencePiece's kind. llama.cpp merges two neighbours if
// their joint text is a token, and takes the token with the highest score first. The scores come
// from tokenizer.model if the checkpoint has that file for the same tokens, else from the ranks of
// the merges.
func (v *tokenWriter) sentencePiece(read func(name string) ([]byte, error)) error {
	scores := v.mergeScores()
	raw, err := read(sentencePieceFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		pieces, err := parseSentencePiece(raw)
		if err != nil {
			return err
		}
		if !v.sameTokens(pieces) {
			v.note("%s has other tokens than tokenizer.json: the scores of merges follow from tokenizer.json", sentencePieceFile)
		} else {
			for i := range min(len(pieces), v.rows) {
				if v.types[i] == tokenNormal {
					scores[i] = pieces[i].score
				}
			}
		}
	}
	prefix := false
	if words, err := v.Words("a"); err == nil {
		prefix = strings.HasPrefix(strings.Join(words, ""), spaces)
	}
	v.set(keyTokenizerModel, modelSPM)
	v.set(keyPre, "default")
	v.set(keyTokens, v.tokens)
	v.set(keyScores, scores)
	v.set(keyTokenTypes, v.types)
	v.set(keySpacePrefix, prefix)
	v.set(keyExtraSpaces, false)
	return v.compareIDs(scores, prefix)
}

// compareIDs notes if llama.cpp would encode its test text otherwise than the tokenizer.
func (v *tokenWriter) compareIDs(scores []float32, prefix bool) error {
	want, err := v.Encode(preText, tokenizer.Options{})
	if err != nil {
		return err
	}
	if got := newSPM(v.tokens, v.types, scores, prefix).encode(preText); !slices.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		v.note("llama.cpp encodes texts otherwise than tokenizer.json, its own test text from token %d on: the model will see other tokens", at)
	}
	return nil
}

// mergeScores derives scores from merges: the earlier a token's first merge, the higher its score.
// Tokens that no merge makes come last.
func (v *tokenWriter) mergeScores() []float32 {
	scores := make([]float32, v.rows)
	made := make([]bool, v.rows)
	rank := 0
	for a, b := range v.Merges() {
		if id, _ := v.Merged(a, b); int(id) < v.rows && !made[id] {
			scores[id], made[id] = float32(-rank), true
		}
		rank++
	}
	for i := range scores {
		if !made[i] {
			scores[i] = float32(-rank)
		}
	}
	return scores
}

// sameTokens reports whether the pieces are the vocabulary's first tokens, except control tokens:
// fine-tuning renames these.
func (v *tokenWriter) sameTokens(pieces []piece) bool {
	for i, kind := range v.types {
		if kind == tokenNormal && (i >= len(pieces) || v.tokens[i] != pieces[i].text) {
			return false
		}
	}
	return true
}

// spm encodes texts as llama.cpp does with tokens of SentencePiece's kind.
type spm struct {
	ids    map[string]int32
	scores []float32
	whole  []string // tokens that are found before anything else, longest first
	prefix bool     // a space comes before the text and behind the tokens of whole
}

func newSPM(tokens []string, types []int32, scores []float32, prefix bool) *spm {
	s := &spm{ids: make(map[string]int32, len(tokens)), scores: scores, prefix: prefix}
	for id, t := range tokens {
		s.ids[t] = int32(id)
		if k := types[id]; k == tokenControl || k == tokenUserDefined || k == tokenUnknown {
			s.whole = append(s.whole, t)
		}
	}
	slices.SortStableFunc(s.whole, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return s
}

func (s *spm) encode(text string) []int32 { return s.divide(nil, text, s.whole) }

// divide appends the ids of a text. Of the tokens s.whole, the text may hold only tokens of rest.
func (s *spm) divide(ids []int32, text string, rest []string) []int32 {
	for i, token := range rest {
		if at := strings.Index(text, token); at >= 0 {
			ids = s.divide(ids, text[:at], rest[i+1:])
			return s.divide(append(ids, s.ids[token]), text[at+len(token):], rest[i:])
		}
	}
	if text == "" {
		return ids
	}
	return s.merge(ids, text)
}

// merge appends the ids of a text without special tokens: of all neighbours that form a token, the
// neighbours with the highest score merge first, then the leftmost.
func (s *spm) merge(ids []int32, text string) []int32 {
	if s.prefix {
		text = " " + text
	}
	symbols := strings.Split(strings.ReplaceAll(text, " ", spaces), "")
	for {
		best, score := -1, float32(0)
		for i := range len(symbols) - 1 {
			if id, ok := s.ids[symbols[i]+symbols[i+1]]; ok && (best < 0 || s.scores[id] > score) {
				best, score = i, s.scores[id]
			}
		}
		if best < 0 {
			break
		}
		symbols[best] += symbols[best+1]
		symbols = slices.Delete(symbols, best+1, best+2)
	}
	for _, symbol := range symbols {
		ids = s.append(ids, symbol)
	}
	return ids
}

func (s *spm) append(ids []int32, symbol string) []int32 {
	if id, ok := s.ids[symbol]; ok {
		return append(ids, id)
	}
	for i := range len(symbol) {
		if id, ok := s.ids[fmt.Sprintf("<0x%02X>", symbol[i])]; ok {
			ids = append(ids, id)
		}
	}
	return ids
}
