package tokenizer

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// TableFile accompanies a tokenizer.json without vocab and merges: see [Table].
const TableFile = "tokenizer.table"

// Table is a vocabulary and its merges. A TableFile has, in numbers of 4 bytes, little-endian: the
// number of tokens and of merges; the length of each token; the texts of the tokens; and the three
// ids of each merge.
type Table struct {
	Tokens []string   // by id, "" for unused ids
	Merges [][3]int32 // a pair and the token that the pair makes, best first; see readMerges
}

// Encode returns the content of a TableFile.
func (t *Table) Encode() []byte {
	size := 8 + 4*len(t.Tokens) + 12*len(t.Merges)
	for _, token := range t.Tokens {
		size += len(token)
	}
	number := binary.LittleEndian.AppendUint32
	data := number(number(make([]byte, 0, size), uint32(len(t.Tokens))), uint32(len(t.Merges)))
	for _, token := range t.Tokens {
		data = number(data, uint32(len(token)))
	}
	for _, token := range t.Tokens {
		data = append(data, token...)
	}
	for _, m := range t.Merges {
		data = number(number(number(data, uint32(m[0])), uint32(m[1])), uint32(m[2]))
	}
	return data
}

func (m *bpe) readTable(data []byte) error {
	malformed := func(format string, args ...any) error {
		return &FormatError{TableFile, "", fmt.Sprintf(format, args...)}
	}
	number := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
	if len(data) < 8 {
		return malformed("has %d bytes, fewer than 8", len(data))
	}
	n, merges := number(0), number(4)
	start, end := 8+4*n, len(data)-12*merges
	if start > end {
		return malformed("has %d bytes: too few for %d tokens and %d merges", len(data), n, merges)
	}
	text := string(data[start:end]) // a single object for the garbage collector
	m.vocab.init(n)
	m.tokens = make([]string, n)
	for id := range m.tokens {
		size := number(8 + 4*id)
		if size > len(text) {
			return malformed("ends within token %d", id)
		}
		token := text[:size]
		text = text[size:]
		if !utf8.ValidString(token) {
			return malformed("token %d is not valid UTF-8", id)
		}
		if token != "" {
			if old := m.addToken(m.vocab.key(token), token, int32(id)); int(old) != id {
				return malformed("token %.40q has the ids %d and %d", token, old, id)
			}
		}
	}
	m.indexCharacters()
	// The ends of all tokens fit a cache, the texts do not.
	ends := make([]struct{ first, last rune }, n)
	for id, token := range m.tokens {
		if ends[id].first, ends[id].last = m.ends(int32(id), token); token == "" {
			ends[id].first = noToken
		}
	}
	m.merges.init(merges)
	for rank := range merges {
		at := end + 12*rank
		a, b, c := number(at), number(at+4), number(at+8)
		if max(a, b, c) >= n || ends[a].first == noToken || ends[b].first == noToken || ends[c].first == noToken {
			return malformed("merge %d has the ids %d, %d and %d: at least one is of no token", rank, a, b, c)
		}
		m.merges.set(pairKey(int32(a), int32(b)), merge{uint32(rank), int32(c)})
		m.joints.add(m.joints.of(ends[a].last, ends[b].first))
	}
	return nil
}

const noToken = noJoint - 1
