package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// manyMerges returns a model of characters and pairs of these, whose merges take several goroutines.
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

// TestManyMerges: several goroutines read the merges, and ranks, tokens and errors follow the order in
// the file.
func TestManyMerges(t *testing.T) {
	m, merges := manyMerges(150) // 22,500 merges
	if len(merges) < 2*mergesAtATime {
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
	for _, at := range []int{mergesAtATime, 2*mergesAtATime + 5} {
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
