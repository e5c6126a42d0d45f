package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// manyMerges returns a model of characters and pairs of these, whose merges take several
// goroutines.
func manyMerges(characters int) (m obj, merges []string) {
	vocab := obj{}
	for i := range characters {
		vocab[string(rune(0x4e00+i))] = len(vocab)
	}
	for i := range characters {
		for k := range characters {
			a, b := string(rune(0x4e00+i)), string(rune(0x4e00+k))
			vocab[a+b] = len(vocab)
			merges = append(merges, a+" "+b)
		}
	}
	return obj{"type": "BPE", "vocab": vocab, "merges": merges}, merges
}

// TestManyMerges: several goroutines read the merges, and ranks, tokens and errors follow the order
// in the file.
func TestManyMerges(t *testing.T) {
	m, merges := manyMerges(150) // 22,500 merges
	if len(merges) < 2*jsonscan.PartElements {
		t.Fatal("one goroutine reads all merges")
	}
	pairs := [][]string{}
	for _, s := range merges {
		pairs = append(pairs, strings.Fields(s))
	}
	merges[7] = versionLine
	twice := append(merges, merges[3]) // now the last one counts
	for name, list := range map[string]any{"text": twice, "pairs": pairs} {
		m["merges"] = list
		tok, err := ParseFiles(Files{Tokenizer: build(t, obj{"model": m})})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for a, b := range tok.Merges() {
			id, ok := tok.Merged(a, b)
			if !ok || tok.Token(id) != tok.Token(a)+tok.Token(b) {
				t.Fatalf("%s: %d and %d merge into %d", name, a, b, id)
			}
			got = append(got, tok.Token(a)+" "+tok.Token(b))
		}
		want := merges
		if name == "text" {
			want = append(append(append([]string{}, merges[:3]...), merges[4:7]...), append(merges[8:len(merges):len(merges)], merges[3])...)
		} else {
			want = nil
			for _, p := range pairs {
				want = append(want, p[0]+" "+p[1])
			}
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s: the merges are in another order", name)
		}
	}
	for _, at := range []int{jsonscan.PartElements, 2*jsonscan.PartElements + 5} {
		bad := append([]string{}, merges...)
		bad[at], bad[len(bad)-1] = "一 x", "y"
		m["merges"] = bad
		_, err := ParseFiles(Files{Tokenizer: build(t, obj{"model": m})})
		malformed, ok := errors.AsType[*FormatError](err)
		if want := fmt.Sprintf("merges[%d]", at); !ok || !strings.Contains(malformed.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestManyTokens: several goroutines read the vocabulary. Texts of any length are found, and errors
// name the first token that is wrong.
func TestManyTokens(t *testing.T) {
	vocab := func(change func(i int) string) []byte {
		var b strings.Builder
		for i := range 3 * jsonscan.PartElements {
			fmt.Fprintf(&b, "%s,", change(i))
		}
		return []byte(`{"model": {"type": "BPE", "merges": [], "vocab": {` + strings.TrimSuffix(b.String(), ",") + `}}}`)
	}
	// 1, 2 and 3 zeros, and so on, differ in their lengths only.
	text := func(i int) string {
		if i < 20 {
			return strings.Repeat("\x00", i)
		}
		return fmt.Sprintf("%o", i)
	}
	plain := func(i int) string {
		return fmt.Sprintf(`"%s":%d`, strings.ReplaceAll(text(i), "\x00", `\u0000`), i)
	}
	tok := parse(t, vocab(plain))
	for i := range 3 * jsonscan.PartElements {
		if id, ok := tok.ID(text(i)); !ok || id != int32(i) || tok.Token(id) != text(i) {
			t.Fatalf("token %d, %q: %d %v, %q", i, text(i), id, ok, tok.Token(id))
		}
	}
	for _, absent := range []string{strings.Repeat("\x00", 20), "9", "200000000", "1\x00"} {
		if id, ok := tok.ID(absent); ok {
			t.Errorf("%q has id %d", absent, id)
		}
	}
	const last = 3*jsonscan.PartElements - 1
	for _, test := range []struct {
		at          int
		member, msg string
	}{
		{jsonscan.PartElements + 3, `"x":-1`, `the id of token "x" is not an integer`},
		{last, `"x":1e2`, `the id of token "x" is not an integer`},
		{last, `"x":2147483648`, `the id of token "x" is not an integer`},
		{last, `"x":"7"`, `the id of token "x" is not an integer`},
		{last, `"x":2147483647`, "id 2147483647 in a vocabulary of 24576 tokens"},
		{last, `"x":100`, `the tokens "144" and "x" have the same id 100`},
		{last, `"144":24575`, `token "144" has the ids 100 and 24575`},
	} {
		_, err := parseFiles(vocab(func(i int) string {
			if i == test.at {
				return test.member
			}
			return plain(i)
		}), nil)
		checkError(t, err, tokenizerFile, "model.vocab", test.msg, false)
	}
}

// BenchmarkRead reads a tokenizer of 128,000 tokens and as many merges.
func BenchmarkRead(b *testing.B) {
	m, _ := manyMerges(357)
	data := build(b, obj{"model": m})
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := ParseFiles(Files{Tokenizer: data}); err != nil {
			b.Fatal(err)
		}
	}
}
