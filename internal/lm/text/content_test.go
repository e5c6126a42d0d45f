package text_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// TestContent measures texts on both sides of the limits.
func TestContent(t *testing.T) {
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
	ids := slices.Concat(real.Sequences...)
	counter := func(n, period int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = int32(i % period)
		}
		return s
	}
	var same, short, loops, prompts, numbered, paragraph [][]int32
	for i := range int32(64) {
		same, short = append(same, ids[:32]), append(short, []int32{1, 7})
		loop := counter(512, 20) // another in each window
		for k := range loop {
			loop[k] += 20 * i
		}
		loops = append(loops, loop)
		question := ids[400+20*i:][:12]
		prompts = append(prompts, slices.Concat(ids[:400], question))
		numbered = append(numbered, slices.Concat([]int32{2, 1000 + i}, ids[:20]))
		paragraph = append(paragraph, slices.Concat([]int32{2, 1000 + i}, ids[:700]))
	}
	windows := func(sequences [][]int32, window int) (list [][]int32) {
		return slices.Collect(slices.Chunk(slices.Concat(sequences...), window))
	}
	for _, tt := range []struct {
		name                  string
		sequences             [][]int32
		least, most, from, to float64
		degenerate            bool
	}{
		{"real text", real.Sequences, .9, .999, 0, 0, false},
		{"no two tokens the same", [][]int32{counter(2048, 2048)}, 1, 1, 0, 0, false},
		{"fewer tokens than an n-gram", [][]int32{{1, 2}}, 1, 1, 0, 0, false},
		{"empty", nil, 1, 1, 0, 0, false},
		// A piece has one 4-gram; the first has two shorter ones besides. All others are old.
		{"one token", [][]int32{make([]int32, 1025)}, 3. / 512, 3. / 512, .5, .5, true},
		{"a loop of 128 tokens", [][]int32{counter(1025, 128)}, .25, .26, .5, .5, true},
		{"a loop of 512 tokens", [][]int32{counter(1<<14, 512)}, 1, 1, .96, 1, true},
		{"loops of 20 tokens", loops, .03, .08, 0, 0, true},
		{"a sequence again and again", same, 1, 1, .98, .99, true},
		{"many short sequences", short, 1, 1, 63. / 64, 63. / 64, true},
		{"the same instructions before questions", prompts, .9, .999, 0, 0, false},
		{"the same in windows", windows(prompts, 512), .85, .999, 0, 0, false},
		{"the same in long windows", windows(prompts, 8192), .85, .999, 0, 0, false},
		{"instructions without questions", prompts[:1], .9, .999, 0, 0, false},
		{"a sentence with numbers", windows(numbered, 512), .2, .4, 0, .1, true},
		{"a paragraph", windows(paragraph[:10], 512), .8, 1, .75, .85, true},
		{"a paragraph in long windows", windows(paragraph[:10], 8192), .8, 1, .75, .85, true},
		// A piece that has the end of the first copy is not old.
		{"a paragraph twice", windows(paragraph[:2], 512), .8, 1, .25, .3, false},
		{"a paragraph three times", windows(paragraph[:3], 512), .8, 1, .45, .55, true},
	} {
		got := text.ContentOf(text.WindowsOf(tt.sequences))
		if math.IsNaN(got.Distinct) || got.Distinct < tt.least || got.Distinct > tt.most || got.Repeated < tt.from || got.Repeated > tt.to {
			t.Errorf("%s: %+v, want %g to %g and %g to %g", tt.name, got, tt.least, tt.most, tt.from, tt.to)
		}
		if why := got.Fault(); (why != "") != tt.degenerate {
			t.Errorf("%s: degenerate is %v (%s)", tt.name, why != "", why)
		}
	}
}
