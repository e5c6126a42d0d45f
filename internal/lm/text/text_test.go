package text_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

const fixture = "../../../testdata/books1.3M-bf16"

func TestRead(t *testing.T) {
	tok, err := tokenizer.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := tok.BOS()
	read := func(data string, tokens, window int) [][]int32 {
		t.Helper()
		got, err := text.Read(t.Context(), tok, []byte(data), tokens, window)
		if err != nil {
			t.Fatal(err)
		}
		return got.Sequences
	}
	if got, want := read("5 6,7\n[8]", 100, 3), [][]int32{{bos, 5, 6}, {bos, 7, 8}}; !reflect.DeepEqual(got, want) {
		t.Errorf("ids: %v, not %v", got, want)
	}
	if got, want := read("5 6 7 8 9", 5, 3), [][]int32{{bos, 5, 6}, {bos, 7}}; !reflect.DeepEqual(got, want) {
		t.Errorf("five tokens: %v, not %v", got, want)
	}
	got := read("Hello there.<|endoftext|>\n<|endoftext|>Again, hello.", 1000, 100)
	if len(got) != 2 || got[0][0] != bos || got[1][0] != bos {
		t.Errorf("documents: %v", got)
	}
	if text, err := text.Read(t.Context(), tok, []byte(" \n"), 100, 10); err == nil {
		t.Errorf("no text: %v", text)
	}
	if _, err := text.Read(t.Context(), tok, []byte("5 99999"), 100, 10); err == nil || !strings.Contains(err.Error(), "99999") {
		t.Errorf("a token beyond the vocabulary: %v", err)
	}
}

// TestWrite: the text is the same for any number of threads, and differs for another seed.
func TestWrite(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares what gq run writes on arm64 with amd64")
	write := func(threads int, seed uint64) *text.Text {
		m, err := forward.OpenCheckpoint(fixture, forward.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		text, err := text.Write(t.Context(), m, text.WriteOptions{Start: 1, Ends: []int32{2}, Tokens: 400, Window: 64, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	a, b, c := write(1, 1), write(2, 1), write(2, 2)
	if !reflect.DeepEqual(a.Sequences, b.Sequences) || a.SHA256 != b.SHA256 {
		t.Error("another text with two threads")
	}
	if reflect.DeepEqual(a.Sequences, c.Sequences) || a.SHA256 == c.SHA256 {
		t.Error("the same text for another seed")
	}
	if n := a.Tokens(); n < 400 || n > 400+16 {
		t.Errorf("%d tokens", n)
	}
	tok, err := tokenizer.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%q", tok.Decode(a.Sequences[0], true))
}

// TestWriteResumes writes two texts at once and interrupts the writing at random places: each is
// the text that is written alone.
func TestWriteResumes(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares what gq run writes on arm64 with amd64")
	m, err := forward.OpenCheckpoint(fixture, forward.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// Frequent end tokens, so that sequences of all lengths are open at once.
	options := []text.WriteOptions{
		{Start: 1, Ends: []int32{2, 403, 261}, Tokens: 130, Window: 32, Seed: 4},
		{Start: 1, Ends: []int32{2, 403, 261}, Tokens: 1100, Window: 64, Seed: 3},
	}
	var want []*text.Text
	done := make([]int, len(options))
	kept := make([][]byte, len(options))
	for _, o := range options {
		one, err := text.Write(t.Context(), m, o)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, one)
	}
	r := rand.New(rand.NewPCG(1, 1))
	interrupted, finished := 0, 0
	for {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 1 + r.IntN(20)
		for i := range options {
			done[i], kept[i] = 0, nil
			options[i].Progress = func(n int) {
				done[i] += n
				if steps--; steps <= 0 {
					cancel()
				}
			}
			options[i].Keep = func(d *text.Draft) (err error) {
				kept[i], err = json.Marshal(d)
				return err
			}
		}
		got, err := text.WriteAll(ctx, m, options)
		cancel()
		if err == nil {
			if !reflect.DeepEqual(got, want) {
				t.Error("the texts are other ones")
			}
			for i, o := range options {
				if done[i] < o.Tokens-17 || done[i] > o.Tokens+64 {
					t.Errorf("a progress of %d tokens, not %d", done[i], o.Tokens)
				}
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		interrupted++
		for i := range options {
			if kept[i] == nil { // interrupted while resuming
				continue
			}
			options[i].Draft = nil
			if err := json.Unmarshal(kept[i], &options[i].Draft); err != nil {
				t.Fatal(err)
			}
		}
		if d := options[0].Draft; d != nil && d.Size() >= options[0].Tokens {
			finished++
		}
	}
	if interrupted < 3 || finished < 2 {
		t.Errorf("interrupted %d times, %d times with a finished text", interrupted, finished)
	}
}

func TestAfter(t *testing.T) {
	all := &text.Text{Sequences: [][]int32{{1, 2, 3}, {1, 4, 5, 6}, {1, 7}}}
	for n, want := range [][]text.Window{
		0: {{[]int32{1, 2, 3}, 1}, {[]int32{1, 4, 5, 6}, 1}, {[]int32{1, 7}, 1}},
		2: {{[]int32{1, 2, 3}, 2}, {[]int32{1, 4, 5, 6}, 1}, {[]int32{1, 7}, 1}},
		3: {{[]int32{1, 4, 5, 6}, 1}, {[]int32{1, 7}, 1}},
		5: {{[]int32{1, 4, 5, 6}, 2}, {[]int32{1, 7}, 1}},
		9: nil,
	} {
		if got := all.After(n); want != nil && !reflect.DeepEqual(got, want) || n == 9 && got != nil {
			t.Errorf("after %d tokens: %v, want %v", n, got, want)
		}
	}
}

// TestSpread takes the beginnings of sequences from all of a text.
func TestSpread(t *testing.T) {
	of := func(lengths ...int) *text.Text {
		all := &text.Text{}
		for i, n := range lengths {
			var s []int32
			for k := range n {
				s = append(s, int32(1000*i+k))
			}
			all.Sequences = append(all.Sequences, s)
		}
		return all
	}
	many := of(slices.Repeat([]int{256}, 32)...)
	short := many.Spread(1280)
	if len(short) != 16 {
		t.Errorf("%d sequences", len(short))
	}
	for i, s := range short {
		if len(s) != 80 || s[0] != int32(2000*i) {
			t.Errorf("sequence %d has %d tokens from %d", i, len(s), s[0])
		}
	}
	if got := many.Spread(32 * 256); !reflect.DeepEqual(got, many.Sequences) {
		t.Errorf("all tokens: %d sequences", len(got))
	}
	for name, c := range map[string]struct {
		text *text.Text
		n    int
		want []int
	}{
		"few":    {of(100, 100, 100, 100), 200, []int{60, 60, 60, 20}},
		"uneven": {of(2, 300, 2, 300, 2, 300), 150, []int{2, 54, 54, 40}},
		"nearly": {of(256, 256, 256), 760, []int{256, 256, 248}},
		"tiny":   {of(5, 5, 5), 2, []int{1, 1}},
	} {
		var got []int
		for _, s := range c.text.Spread(c.n) {
			got = append(got, len(s))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: sequences of %v tokens, not %v", name, got, c.want)
		}
	}
}
