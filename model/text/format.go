package text

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/model/tokenizer"
)

// Format returns the content of a file from which Read makes the text again: plain text, or with ids
// the token ids. Each sequence is a document of its own. Plain text gives other tokens where the
// tokenizer would not have chosen the tokens of the sequences, and where documents begin or end
// with white space; Equal compares.
func (t *Text) Format(tok *tokenizer.Tokenizer, ids bool) []byte {
	var b []byte
	bos, begins := tok.BOS()
	separator, separated := markerID(tok)
	for _, s := range t.Sequences {
		if ids {
			for _, id := range s {
				b = append(strconv.AppendInt(b, int64(id), 10), ' ')
			}
			if separated {
				b = strconv.AppendInt(b, int64(separator), 10)
			}
			b = append(bytes.TrimRight(b, " "), '\n')
			continue
		}
		if begins && len(s) > 0 && s[0] == bos {
			s = s[1:]
		}
		b = append(append(b, tok.Decode(s, false)...), "\n"+EndMarker+"\n"...)
	}
	return b
}

// Equal reports whether two texts have the same sequences.
func (t *Text) Equal(o *Text) bool {
	return slices.EqualFunc(t.Sequences, o.Sequences, slices.Equal[[]int32])
}
