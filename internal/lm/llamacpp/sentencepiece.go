package llamacpp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
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
	err = ProtoFields(raw, 0, func(f ProtoField) error {
		if f.Number != 1 {
			return nil
		}
		var p piece
		err := ProtoFields(f.Value, f.At, func(f ProtoField) error {
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

// ProtoField is a field of a message of a protocol buffer.
type ProtoField struct {
	Number uint64
	Wire   int    // the wire type: 2 has a length
	At     int    // offset of the value in the file
	Value  []byte // nil for a variable-length integer
}

// ProtoFields calls visit for each field of a message that starts at byte at of the file.
func ProtoFields(message []byte, at int, visit func(ProtoField) error) error {
	for i := 0; i < len(message); {
		malformed := func(format string, args ...any) error {
			return fmt.Errorf("byte %d: "+format, append([]any{at + i}, args...)...)
		}
		tag, n := binary.Uvarint(message[i:])
		if n <= 0 {
			return malformed("a tag is cut off")
		}
		f := ProtoField{Number: tag >> 3, Wire: int(tag & 7)}
		if f.Number == 0 || f.Number > 1<<29-1 {
			return malformed("a field of number %d", f.Number)
		}
		i += n
		size := uint64(0)
		switch f.Wire {
		case 0:
			if _, n = binary.Uvarint(message[i:]); n <= 0 {
				return malformed("an integer is cut off")
			}
			i += n
		case 1:
			size = 8
		case 2:
			if size, n = binary.Uvarint(message[i:]); n <= 0 {
				return malformed("a length is cut off")
			}
			i += n
		case 5:
			size = 4
		default:
			return malformed("a field of unknown type %d", f.Wire)
		}
		if size > uint64(len(message)-i) {
			return malformed("a field of %d bytes, %d are left", size, len(message)-i)
		}
		f.At = at + i
		if f.Wire != 0 {
			f.Value = message[i : i+int(size)]
		}
		if err := visit(f); err != nil {
			return err
		}
		i += int(size)
	}
	return nil
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
