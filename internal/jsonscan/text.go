package jsonscan

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions below read parts of a text that a Scanner has checked, without checks of their own.

// SkipSpace returns the position of the first byte from i on that is not white space.
func SkipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

func End(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = endOfString(text, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\r', '\t':
			i++
			continue
		default: // a number or a word
			for i < len(text) && !Delimits(text[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// Delimits reports whether a number or a word ends before the byte b.
func Delimits(b byte) bool {
	switch b {
	case ',', ':', ']', '}', ' ', '\n', '\r', '\t':
		return true
	}
	return false
}

func endOfString(text []byte, i int) int {
	for i = plain(text, i+1); text[i] != '"'; i = plain(text, i+2) {
	}
	return i + 1
}

// plain returns the position of the first byte from i on that is a quote, a backslash or a control
// character; len(text) if there is none.
func plain(text []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(text)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(text[i:])
		quote, backslash := x^'"'*ones, x^'\\'*ones
		// A subtraction borrows from the top bit of a smaller byte. Bytes behind the first may be wrong.
		found := ((x-' '*ones)&^x | (quote-ones)&^quote | (backslash-ones)&^backslash) & tops
		if found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
	}
	for ; i < len(text); i++ {
		if b := text[i]; b == '"' || b == '\\' || b < ' ' {
			break
		}
	}
	return i
}

// AppendString appends the decoded string that starts at i to dst and returns the next position.
func AppendString(dst, text []byte, i int) ([]byte, int) {
	for i++; ; {
		end := plain(text, i)
		dst = append(dst, text[i:end]...)
		if text[end] == '"' {
			return dst, end + 1
		}
		r, n := unescape(text[end:])
		dst = utf8.AppendRune(dst, r)
		i = end + n
	}
}

// PlainString returns the string that starts at i as a part of text, and the position after the
// string; ok is false if the string has escapes.
func PlainString(text []byte, i int) (s []byte, next int, ok bool) {
	end := plain(text, i+1)
	return text[i+1 : end], end + 1, text[end] == '"'
}

// Elements yields the positions of the keys (-1 in an array) and of the values of the object or
// array text[start:end], without allocating. The Index may be nil.
func Elements(text []byte, start, end int, ix Index) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := SkipSpace(text, start+1); i < end-1; {
			key := -1
			if text[start] == '{' {
				key = i
				i = SkipSpace(text, SkipSpace(text, endOfString(text, i))+1)
			}
			value := i
			if !yield(key, value) {
				return
			}
			i = SkipSpace(text, ix.End(text, value))
			if text[i] == ',' {
				i = SkipSpace(text, i+1)
			}
		}
	}
}

// unescape decodes the escape sequence at the start of b and returns its length, or 0 for a
// malformed or truncated sequence.
func unescape(b []byte) (rune, int) {
	if len(b) < 2 {
		return 0, 0
	}
	if b[1] == 'u' {
		return unicodeEscape(b)
	}
	if i := strings.IndexByte(`"\/bfnrt`, b[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	return 0, 0
}

// unicodeEscape decodes \uXXXX, or a surrogate pair, at the start of b and returns its length, or 0
// for a malformed sequence. Half a pair is malformed.
func unicodeEscape(b []byte) (rune, int) {
	unit := func(b []byte) rune {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return -1
		}
		r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(r)
	}
	r := unit(b)
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if r = utf16.DecodeRune(r, unit(b[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// Finite makes JSON from Python's output: a copy of raw with spaces and 0 for NaN, Infinity and
// -Infinity outside of strings. The 0 is the last byte, so that offsets in errors and the ends of
// values stay right.
func Finite(raw []byte) []byte {
	out := slices.Clone(raw)
	inString := false
	for i := 0; i < len(out); i++ {
		switch {
		case inString && out[i] == '\\':
			i++
		case out[i] == '"':
			inString = !inString
		case !inString:
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if len(out)-i >= len(word) && string(out[i:i+len(word)]) == word {
					for j := range word {
						out[i+j] = ' '
					}
					i += len(word) - 1
					out[i] = '0'
					break
				}
			}
		}
	}
	return out
}
