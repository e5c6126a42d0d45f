package text_test

import (
	"math"
	"os"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// TestDistinct counts n-grams in texts on both sides of the limit.
func TestDistinct(t *testing.T) {
	tok, err := tokenizer.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../../testdata/text/lighthouse.txt")
	if err != nil {
		t.Fatal(err)
	}
	real, err := text.Read(t.Context(), tok, data, 2048, 256)
	if err != nil {
		t.Fatal(err)
	}
	counter := func(n, period int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = int32(i % period)
		}
		return s
	}
	var same, short [][]int32
	for range 64 {
		same, short = append(same, real.Sequences[0][:32]), append(short, []int32{1, 7})
	}
	for _, tt := range []struct {
		name        string
		sequences   [][]int32
		least, most float64
		degenerate  bool
	}{
		{"real text", real.Sequences, .9, .999, false},
		{"no two tokens the same", [][]int32{counter(2048, 2048)}, 1, 1, false},
		{"fewer tokens than an n-gram", [][]int32{{1, 2}}, 1, 1, false},
		{"empty", nil, 1, 1, false},
		// A block has one 4-gram; the first has two shorter ones besides.
		{"one token", [][]int32{make([]int32, 1025)}, 4. / 1024, 4. / 1024, true},
		{"a loop of 128 tokens", [][]int32{counter(1025, 128)}, 258. / 1024, 258. / 1024, true},
		// A longer text has the same share as a block.
		{"a loop of 512 tokens", [][]int32{counter(1<<14, 512)}, 1, 1, false},
		{"a sequence again and again", same, 1. / 17, 1. / 15, true},
		{"many short sequences", short, 1. / 64, 1. / 64, true},
	} {
		got := text.Distinct(text.WindowsOf(tt.sequences))
		if math.IsNaN(got) || got < tt.least || got > tt.most {
			t.Errorf("%s: %g, want %g to %g", tt.name, got, tt.least, tt.most)
		}
		if degenerate := got < text.LeastDistinct; degenerate != tt.degenerate {
			t.Errorf("%s: degenerate is %v", tt.name, degenerate)
		}
	}
}
