package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Byte-level tokenizers write each byte of a text as one printable character: printable Latin-1
// bytes as themselves, the others in order as U+0100 and up (bytes_to_unicode in
// https://github.com/openai/gpt-2, src/encoder.py).

var byteRunes = func() (runes [256]rune) {
	n := rune(256)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = n
			n++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes; -1 for characters that do not stand for a byte.
var runeBytes = func() (bytes [0x144]int16) {
	for r := range bytes {
		bytes[r] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// appendByteLevel appends the characters that stand for the bytes of s.
func appendByteLevel(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRunes[s[i]])
	}
	return dst
}

// byteLevelBytes appends the bytes for which the characters of a token stand, or the token itself
// if it has any other character.
func byteLevelBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst
}

// gpt2Pattern divides a text in the pre-tokenizer ByteLevel if use_regex is set.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteLevel is the pre-tokenizer ByteLevel.
type byteLevel struct {
	prefix bool      // add_prefix_space
	words  *splitter // nil without use_regex
}

func (b *byteLevel) split(piece string, first bool, m *matcher, out emit) error {
	if b.prefix && !strings.HasPrefix(piece, " ") {
		piece = " " + piece
	}
	mapped := func(piece string, first bool) error {
		return out(string(appendByteLevel(make([]byte, 0, 2*len(piece)), piece)), first)
	}
	if b.words == nil {
		return mapped(piece, first)
	}
	return b.words.split(piece, first, m, mapped)
}
