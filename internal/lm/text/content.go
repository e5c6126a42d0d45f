package text

import "fmt"

const (
	ngramLength = 4   // tokens
	runLength   = 32  // tokens
	block       = 512 // tokens, and n-grams
	newShare    = 64  // a piece with less than 1/newShare new tokens repeats earlier text
)

// LeastDistinct is the share of distinct n-grams, see Content, below which a text is degenerate:
// the text repeats itself. At most the rest of a text's tokens may repeat earlier text: standard
// errors of a text with copies are then at most 1.2 times too small.
//
// Three small models write texts with shares of .959 and more, and of .399 and less if they almost
// always take the likeliest token. Real text has .900 and more, byte by byte .778 and more.
const LeastDistinct = 0.7

// Content says how much of a text is new.
//
// A token is old if it lies in a run of 32 tokens that an earlier piece has, or in a shorter window
// that is the same as an earlier window. A piece is a window, or 512 tokens of a longer window. A
// piece with hardly any new tokens repeats earlier text. The same instructions before different
// questions do not, if each piece has some of a question.
type Content struct {
	// Distinct is the share of distinct 4-grams, in blocks of 512, that end in new tokens.
	Distinct float64 `json:"distinct_4_grams,omitempty"`
	// Repeated is the share of tokens in pieces that repeat earlier text.
	Repeated float64 `json:"repeated,omitempty"`
}

// Fault says why a text is degenerate, or is "".
func (c Content) Fault() string {
	switch {
	case c.Distinct < LeastDistinct:
		return fmt.Sprintf("%.3f of the 4-grams of tokens are distinct, and at least %g is expected", c.Distinct, LeastDistinct)
	case c.Repeated > 1-LeastDistinct:
		return fmt.Sprintf("%.3f of the tokens repeat earlier text, and at most %.1f is expected", c.Repeated, 1-LeastDistinct)
	}
	return ""
}

// ContentOf measures the scored tokens of windows. The shares of an empty text are 1 and 0. Each
// new token ends an n-gram; at the start of a window the n-gram is shorter.
func ContentOf(windows []Window) Content {
	runs := map[uint64]int{} // hashes, with the piece that has them first
	grams := make(map[uint64]bool, block)
	piece, repeated, scored, different, counted := 0, 0, 0, 0, 0
	for _, w := range windows {
		for start := w.First; start < len(w.Tokens); start += block {
			end, before := min(start+block, len(w.Tokens)), counted
			for i, old := range oldTokens(runs, piece, w.Tokens, start, end) {
				if old {
					continue
				}
				if counted%block == 0 {
					clear(grams)
				}
				if gram := hashOf(w.Tokens[max(start+i+1-ngramLength, 0) : start+i+1]); !grams[gram] {
					grams[gram] = true
					different++
				}
				counted++
			}
			if (counted-before)*newShare < end-start {
				repeated += end - start
			}
			scored += end - start
			piece++
		}
	}
	if scored == 0 {
		return Content{Distinct: 1}
	}
	return Content{float64(different) / float64(counted), float64(repeated) / float64(scored)}
}

// oldTokens says which tokens of a piece, from start to end-1 of a window, are old, and adds the
// runs that end there.
func oldTokens(runs map[uint64]int, piece int, window []int32, start, end int) []bool {
	old := make([]bool, end-start)
	for to := max(start+1, min(runLength, len(window))); to <= end; to++ {
		from := max(to-runLength, 0)
		run := hashOf(window[from:to])
		if first, ok := runs[run]; !ok {
			runs[run] = piece
		} else if first < piece {
			for i := max(from, start); i < to; i++ {
				old[i-start] = true
			}
		}
	}
	return old
}

// hashOf is FNV-1a.
func hashOf(tokens []int32) uint64 {
	hash := uint64(14695981039346656037)
	for _, id := range tokens {
		hash = (hash ^ uint64(uint32(id))) * 1099511628211
	}
	return hash
}
