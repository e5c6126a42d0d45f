package text

const (
	ngramLength = 4   // tokens
	ngramBlock  = 512 // n-grams
)

// LeastDistinct is the share of distinct n-grams, see Distinct, below which a text that a model
// wrote is degenerate: the model repeats itself, or writes the same text again and again.
//
// Three small models write texts with shares of .959 and more, and of .399 and less if they almost
// always take the likeliest token. Real text has .900 and more, byte by byte .778 and more.
// docs/RECIPES.md has the table.
const LeastDistinct = 0.7

// Distinct returns the share of distinct 4-grams of tokens in the text: the number of different
// 4-grams over the number of all. The longer a text, the smaller its share, so Distinct counts in
// blocks of 512 n-grams. A text of less than a block has a larger share than a block of it would
// have.
//
// Each token of a sequence begins an n-gram, which is shorter at the end of the sequence. So many
// sequences of a few tokens count as repetition, too.
func (t *Text) Distinct() float64 {
	distinct, total := 0, 0
	seen := make(map[[ngramLength]int32]bool, ngramBlock)
	for _, s := range t.Sequences {
		for i := range s {
			if total%ngramBlock == 0 {
				clear(seen)
			}
			gram := [ngramLength]int32{-1, -1, -1, -1}
			copy(gram[:], s[i:])
			if !seen[gram] {
				seen[gram] = true
				distinct++
			}
			total++
		}
	}
	if total == 0 {
		return 1
	}
	return float64(distinct) / float64(total)
}
