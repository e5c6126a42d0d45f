package llamacpp

import (
	"math/bits"
	"math/rand/v2"
)

// A tokenIndex finds the ids of tokens by the texts' polynomial hashes, so that the hashes of all
// parts of a text follow from the hashes of the text's prefixes. The base is random: no file can
// make its tokens share slots.
type tokenIndex struct {
	tokens []string
	base   uint64
	powers []uint64 // of base, for texts of up to len(powers)-1 bytes
	slots  []tokenSlot
}

type tokenSlot struct {
	hash uint64
	id   int32 // plus 1; 0 is an empty slot
}

// modulus is a Mersenne prime.
const modulus = 1<<61 - 1

func newTokenIndex(tokens []string) *tokenIndex {
	size := 8
	for size < 2*len(tokens) {
		size *= 2
	}
	x := &tokenIndex{tokens: tokens, base: 256 + rand.Uint64N(modulus-256), powers: []uint64{1}, slots: make([]tokenSlot, size)}
	for range maxToken {
		x.powers = append(x.powers, x.times(x.powers[len(x.powers)-1]))
	}
	return x
}

func (x *tokenIndex) times(a uint64) uint64 { return product(a, x.base) }

func product(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	sum := lo&modulus + (hi<<3 | lo>>61)
	return sum&modulus + sum>>61
}

// more is the hash of a text and the byte behind it.
func (x *tokenIndex) more(hash uint64, b byte) uint64 { return x.times(hash) + uint64(b) + 1 }

func (x *tokenIndex) hash(text string) (hash uint64) {
	for i := range len(text) {
		hash = x.more(hash, text[i])
	}
	return reduced(hash)
}

// reduced makes equal remainders equal.
func reduced(hash uint64) uint64 {
	hash = hash&modulus + hash>>61
	if hash >= modulus {
		hash -= modulus
	}
	return hash
}

// behind is the hash of the last n bytes of a text, at most maxToken, with this hash, and first the
// hash of the bytes before them.
func (x *tokenIndex) behind(hash, first uint64, n int) uint64 {
	return reduced(reduced(hash) + modulus - reduced(product(reduced(first), x.powers[n])))
}

// joined is the hash of two texts, the second of n bytes.
func (x *tokenIndex) joined(a, b uint64, n int) uint64 {
	for ; n > maxToken; n -= maxToken {
		a = product(reduced(a), x.powers[maxToken])
	}
	return reduced(product(reduced(a), x.powers[n]) + b)
}

// find returns the slot of the text a+b, or the empty slot for it.
func (x *tokenIndex) find(hash uint64, a, b string) *tokenSlot {
	for i := hash ^ hash>>32; ; i++ {
		s := &x.slots[i&uint64(len(x.slots)-1)]
		if s.id == 0 {
			return s
		}
		if s.hash == hash {
			if joins(x.tokens[s.id-1], a, b) {
				return s
			}
		}
	}
}

// likely is the id of the text with this hash, without a look at the text: memory is slow. That a
// text has the hash of another has a probability of 2^-40 in the largest vocabularies.
func (x *tokenIndex) likely(hash uint64) (id int, ok bool) {
	for i := hash ^ hash>>32; ; i++ {
		if s := &x.slots[i&uint64(len(x.slots)-1)]; s.hash == hash || s.id == 0 {
			return int(s.id) - 1, s.id != 0
		}
	}
}

// id returns the id of the text a+b with this hash.
func (x *tokenIndex) id(hash uint64, a, b string) (id int, ok bool) {
	s := x.find(hash, a, b)
	return int(s.id) - 1, s.id != 0
}
