package llamacpp

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/cpu"
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
func (v *vocabulary) spmMerges() [][3]int32 {
	// order has the ids of tokens that merge behind bits that fall as scores rise.
	merges, order := make([]bool, len(v.tokens)), make([]uint64, 0, len(v.tokens))
	for id := range v.tokens {
		if math.IsNaN(float64(v.scores[id])) {
			v.fail(keyScores, "has NaN as element %d", id)
			return nil
		}
		if merges[id] = v.merges(id); merges[id] {
			order = append(order, uint64(falling(v.scores[id]))<<32|uint64(id))
		}
	}
	slices.Sort(order)
	var total atomic.Int64
	return v.inParts(len(order), func(from, to int) ([][3]int32, error) { return v.mergesOf(order[from:to], merges, &total) })
}

// inParts lists the merges of n items in parts, by up to four goroutines.
func (v *vocabulary) inParts(n int, list func(from, to int) ([][3]int32, error)) [][3]int32 {
	const part = 1 << 14
	lists := make([][][3]int32, (n+part-1)/part)
	err := cpu.Parallel(context.Background(), min(4, cpu.Threads(0)), len(lists), func() func(i int) error {
		return func(i int) (err error) {
			lists[i], err = list(i*part, min((i+1)*part, n))
			return err
		}
	})
	if err != nil {
		v.err = cmp.Or(v.err, err)
		return nil
	}
	return slices.Concat(lists...)
}

// mergesOf is spmMerges for some tokens of its order. It adds their number to total.
func (v *vocabulary) mergesOf(order []uint64, merges []bool, total *atomic.Int64) ([][3]int32, error) {
	type pair struct {
		left, right int
	}
	var pairs []pair // of a token
	list := make([][3]int32, 0, 2*len(order))
	for _, o := range order {
		t, first := v.tokens[uint32(o)], uint64(0)
		hash := v.index.hash(t)
		pairs = pairs[:0]
		for i := range len(t) {
			if i > 0 && utf8.RuneStart(t[i]) {
				if left, ok := v.index.likely(reduced(first)); ok && merges[left] {
					right, ok := v.index.likely(v.index.behind(hash, first, len(t)-i))
					if ok && merges[right] && v.tokens[left] == t[:i] && v.tokens[right] == t[i:] {
						pairs = append(pairs, pair{left, right})
					}
				}
			}
			first = v.index.more(first, t[i])
		}
		slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(a.left-b.left, a.right-b.right) })
		for _, p := range pairs {
			list = append(list, [3]int32{int32(p.left), int32(p.right), int32(uint32(o))})
		}
		if total.Add(int64(len(pairs))) > maxMerges {
			return nil, v.error(keyTokens, "has more than %d pairs of tokens that make a token", maxMerges)
		}
	}
	return list, nil
}

// falling orders numbers that are not NaN: the larger x, the smaller the result.
func falling(x float32) uint32 {
	bits := math.Float32bits(x)
	if x < 0 {
		return bits
	}
	return ^(bits | 1<<31) // 0 and -0 are equal
}

// merges reports whether a token of a sentencepiece model is made by merging, or from a character.
func (v *vocabulary) merges(id int) bool {
	return v.tokenType(id) == tokenNormal && v.tokens[id] != "" && utf8.ValidString(v.tokens[id])
}
