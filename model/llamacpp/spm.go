package llamacpp

import (
	"math"
	"slices"
	"unicode/utf8"
)

// spmMerges lists the merges with which a BPE divides a text as sentencepiece does. sentencepiece
// merges the two neighbours whose concatenation is the token of the highest score. A tokenizer.json
// lists pairs instead, the best first: every two halves of a token are a pair. The order is the order
// of transformers' converter: descending scores of the merged tokens, then ascending ids of the
// merged token, of the left half and of the right half.
//
// Only ties differ. Of pairs with equal scores, sentencepiece takes the leftmost one in the text, a
// BPE the first one in its list. Scores of trained models are unique, so only two divisions of one
// token (such as "aaa") can tie.
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
		switch x, y := v.scores[a.token], v.scores[b.token]; {
		case x > y:
			return -1
		case x < y:
			return 1
		case a.token != b.token:
			return a.token - b.token
		case a.left != b.left:
			return a.left - b.left
		}
		return a.right - b.right
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
