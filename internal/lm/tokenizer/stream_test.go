package tokenizer

import (
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"
)

// stream returns the result of Next for each id, and of Flush.
func stream(tok *Tokenizer, skip bool, ids ...int32) []string {
	s := tok.NewStream(skip)
	var parts []string
	for _, id := range ids {
		parts = append(parts, s.Next(id))
	}
	return append(parts, s.Flush())
}

func TestStreamByteLevel(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	id := func(b byte) int32 { return int32(b) }
	for _, c := range []struct {
		ids  []int32
		want []string
	}{
		{[]int32{id('a'), id('b')}, []string{"a", "b", ""}},
		{[]int32{id(0xE6), id(0x97), id(0xA5), id('x')}, []string{"", "", "日", "x", ""}},
		{[]int32{id(0xE6), id(0x97)}, []string{"", "", "\uFFFD"}},
		{[]int32{id(0xE6), id(0x97), id('x')}, []string{"", "", "\uFFFDx", ""}},
		{[]int32{id(0xFF), id(0xF0), id(0x80)}, []string{"\uFFFD", "", "\uFFFD\uFFFD", ""}},
		{[]int32{id(0xF0), id(0x9F), 262, id(0x98)}, []string{"", "", "\uFFFD<|end|>", "\uFFFD", ""}},
		{[]int32{261, -1, 9999, 263}, []string{"é", "", "", "<tool>", ""}},
	} {
		if got := stream(tok, false, c.ids...); !slices.Equal(got, c.want) {
			t.Errorf("%d: %q, want %q", c.ids, got, c.want)
		}
		var joined string
		for _, s := range c.want {
			joined += s
		}
		if got := tok.Decode(c.ids, false); got != joined {
			t.Errorf("%d: decoded %q, want %q", c.ids, got, joined)
		}
	}
	if got := stream(tok, true, 'a', 262, 263); !slices.Equal(got, []string{"a", "", "<tool>", ""}) {
		t.Errorf("without special tokens: %q", got)
	}
}

func TestStreamSpaces(t *testing.T) {
	tok := parse(t, build(t, obj{"decoder": spaceDecoder, "added_tokens": []obj{{"id": 0, "content": "<unk>", "special": true}}}))
	find := func(names ...string) []int32 {
		var ids []int32
		for _, n := range names {
			id, ok := tok.ID(n)
			if !ok {
				t.Fatalf("no token %q", n)
			}
			ids = append(ids, id)
		}
		return ids
	}
	for _, c := range []struct {
		tokens []string
		skip   bool
		want   string // results of Next and Flush, quoted
		whole  string // result of Decode
	}{
		{[]string{"▁the", "▁the"}, false, `["the" " the" ""]`, "the the"},
		{[]string{"▁", "the"}, false, `["" "the" ""]`, "the"},
		{[]string{"▁▁", "a"}, false, `[" " "a" ""]`, " a"},
		{[]string{"<unk>", "▁the"}, true, `["" "the" ""]`, "the"},
		{[]string{"<unk>", "▁the"}, false, `["<unk>" " the" ""]`, "<unk> the"},
		{[]string{"<0xE6>", "<0x97>", "<0xA5>", "a"}, false, `["" "" "日" "a" ""]`, "日a"},
		{[]string{"<0x20>", "a"}, false, `["" "a" ""]`, "a"},
		{[]string{"<0xE6>", "<0x97>", "a"}, false, `["" "" "�a" ""]`, "��a"},
		{[]string{"<0xE6>", "<0x97>", "<0xA5>", "<0xFF>"}, false, `["" "" "日" "�" ""]`, "����"},
	} {
		ids := find(c.tokens...)
		if got := fmt.Sprintf("%q", stream(tok, c.skip, ids...)); got != c.want {
			t.Errorf("%q: %s, want %s", c.tokens, got, c.want)
		}
		if got := tok.Decode(ids, c.skip); got != c.whole {
			t.Errorf("%q: decoded %q, want %q", c.tokens, got, c.whole)
		}
	}
}

func TestDecoders(t *testing.T) {
	for _, c := range []struct {
		decoder any
		want    string
	}{
		{nil, "▁the a <0x41> ▁"},
		{obj{"type": "Fuse"}, "▁thea<0x41>▁"},
		{obj{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, "thea<0x41> "},
		{obj{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, " thea<0x41> "},
		{obj{"type": "ByteFallback"}, "▁theaA▁"},
		{obj{"type": "Strip", "content": "▁", "start": 1, "stop": 1}, "thea<0x41>"},
		{obj{"type": "ByteLevel"}, "▁thea<0x41>▁"},
		{spaceDecoder, "theaA "},
	} {
		tok := parse(t, build(t, obj{"decoder": c.decoder}))
		var ids []int32
		for _, n := range []string{"▁the", "a", "<0x41>", "▁"} {
			id, _ := tok.ID(n)
			ids = append(ids, id)
		}
		if got := tok.Decode(ids, false); got != c.want {
			t.Errorf("%v: %q, want %q", c.decoder, got, c.want)
		}
	}
}

// FuzzStream decodes any tokens: the output is UTF-8, and complete except for Flush.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0xE6, 0x97, 0xA5, 1, 2})
	f.Add([]byte{0xF0, 0x9F, 0x98, 0x80, 0xFF})
	tok := parse(f, byteLevelJSON(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var ids []int32
		for _, b := range data {
			ids = append(ids, int32(b)+int32(len(data)%8)) // includes merged and added tokens
		}
		var joined string
		for _, s := range stream(tok, false, ids...) {
			if !utf8.ValidString(s) {
				t.Fatalf("%d: %q is not UTF-8", ids, s)
			}
			joined += s
		}
		if got := tok.Decode(ids, false); got != joined {
			t.Fatalf("%d: decoded %q, streamed %q", ids, got, joined)
		}
	})
}
