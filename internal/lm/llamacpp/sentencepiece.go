package llamacpp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/protobuf"
)

// sentencePieceFile holds SentencePiece's model in a checkpoint, a protocol buffer. Field 1 is a
// piece, with its text in field 1 and its score in field 2 (sentencepiece_model.proto of
// github.com/google/sentencepiece).
const sentencePieceFile = "tokenizer.model"

type piece struct {
	text  string
	score float32
}

func parseSentencePiece(raw []byte) (pieces []piece, err error) {
	err = protobuf.Fields(raw, 0, func(f protobuf.Field) error {
		if f.Number != 1 {
			return nil
		}
		var p piece
		err := protobuf.Fields(f.Value, f.At, func(f protobuf.Field) error {
			switch {
			case f.Number == 1:
				p.text = string(f.Value)
			case f.Number == 2 && len(f.Value) == 4:
				p.score = math.Float32frombits(binary.LittleEndian.Uint32(f.Value))
			case f.Number == 2:
				return fmt.Errorf("byte %d: a score of %d bytes: 4 were expected", f.At, len(f.Value))
			}
			return nil
		})
		pieces = append(pieces, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: this is no model of SentencePiece", sentencePieceFile, err)
	}
	return pieces, nil
}

// spmMerges lists the merges with which a BPE divides a text as sentencepiece does. sentencepiece
// merges the two neighbours that form the token of the highest score. A tokenizer.json lists pairs
// instead, the best first: every two halves of a token are a pair. The order is that of
// transformers' converter: descending scores of the merged tokens, then ascending ids of the merged
// token, of the left half and of the right half.
//
// Only ties differ. Of pairs with equal scores, sentencepiece takes the leftmost pair in the text,
// a BPE the first pair in its list. Scores of trained models are unique, so only two divisions of
// the same token (such as "aaa") can tie.
func (v *vocabulary) spmMerges() [][2]string {
	type pair struct {
		token, left, right int
	}
	ids := make(map[string]int, len(v.tokens))
	for id, t := range v.tokens {
		if math.IsNaN(float64(v.scores[id])) {
			v.fail(keyScores, "has NaN as element %d", id)
			return nil
		}
		if v.merges(id) {
			ids[t] = id
		}
	}
	var pairs []pair
	for id, t := range v.tokens {
		if !v.merges(id) {
			continue
		}
		for i := range t {
			if i == 0 {
				continue
			}
			left, ok := ids[t[:i]]
			if !ok {
				continue
			}
			if right, ok := ids[t[i:]]; ok {
				pairs = append(pairs, pair{id, left, right})
			}
		}
		if len(pairs) > maxMerges {
			v.fail(keyTokens, "has more than %d pairs of tokens that make a token", maxMerges)
			return nil
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(v.scores[b.token], v.scores[a.token]), a.token-b.token, a.left-b.left, a.right-b.right)
	})
	list := make([][2]string, len(pairs))
	for i, p := range pairs {
		list[i] = [2]string{v.tokens[p.left], v.tokens[p.right]}
	}
	return list
}

// merges reports whether a token of a sentencepiece model is made by merging, or from a character.
func (v *vocabulary) merges(id int) bool {
	return v.tokenType(id) == tokenNormal && v.tokens[id] != "" && utf8.ValidString(v.tokens[id])
}
