package forward

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

var full = flag.Bool("full", false, "score the whole texts")

// TestPerplexity compares perplexities with another implementation's, from shared/README.md, on
// models with real weights. Without -full it scores only the first sequences, and compares with
// figures that this forward pass gave when its full figures agreed.
func TestPerplexity(t *testing.T) {
	dir := testshared.Dir(t)
	sequences := 6
	if testing.Short() {
		sequences = 2
	}
	for _, c := range []struct {
		model, text string
		tokens      int
		perplexity  float64 // of the whole text
		shortened   float64 // of 6 sequences
		least       float64 // of 2
	}{
		{"stories260K-f32", "tinystories-val-300stories.txt", 98855, 3.3661, 3.223274, 3.597524},
		{"stories260K-bf16", "tinystories-val-300stories.txt", 98855, 3.3657, 3.224097, 3.597623},
		{"books1.3M-bf16", "books-heldout.txt", 66157, 16.2046, 17.035069, 14.993723},
		{"books3.7M-bf16", "books-heldout.txt", 55026, 40.351, 44.276770, 36.662394},
	} {
		t.Run(c.model, func(t *testing.T) {
			if c.model != "books1.3M-bf16" {
				testshared.SlowEmulated(t, "books1.3M has the same code, TestTorch and TestGoldenLogits more of it")
			}
			model := filepath.Join(dir, "models", c.model)
			m := openCase(t, model, Options{Packed: true})
			seqs := sequencesOf(t, model, filepath.Join(dir, "text", c.text), strings.HasPrefix(c.model, "stories"))
			want, digits := c.perplexity, 1e-6
			switch {
			case *full:
				digits = 5e-5 * math.Pow(10, math.Floor(math.Log10(want))) // five figures
			case testing.Short():
				want, seqs = c.least, seqs[:sequences]
			default:
				want, seqs = c.shortened, seqs[:sequences]
			}
			got, tokens := perplexity(t, m, seqs)
			t.Logf("perplexity %.6f over %d tokens", got, tokens)
			if math.Abs(got-want) > digits {
				t.Errorf("perplexity %.6f, want %.6f", got, want)
			}
			if *full && tokens != c.tokens {
				t.Errorf("%d tokens, want %d", tokens, c.tokens)
			}
		})
	}
}

// sequencesOf divides a text into sequences: stories of at most 512 tokens each, or windows of 256;
// each begins with a BOS.
func sequencesOf(t testing.TB, model, text string, stories bool) [][]int32 {
	t.Helper()
	tok, err := tokenizer.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(s string) []int32 {
		ids, err := tok.Encode(s, tokenizer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	const bos = 1
	var seqs [][]int32
	if stories {
		for _, story := range strings.Split(string(raw), "<|endoftext|>") {
			if story = strings.TrimSpace(story); story == "" {
				continue
			}
			ids := append([]int32{bos}, encode(story)...)
			seqs = append(seqs, ids[:min(512, len(ids))])
		}
		return seqs
	}
	for ids := encode(string(raw)); len(ids) > 0; {
		n := min(255, len(ids))
		seqs = append(seqs, append([]int32{bos}, ids[:n]...))
		ids = ids[n:]
	}
	return seqs
}

// perplexity scores every token of each sequence but the first.
func perplexity(t testing.TB, m *Model, seqs [][]int32) (value float64, tokens int) {
	t.Helper()
	s := m.NewSession(512)
	v := m.VocabSize()
	logits := make([]float32, 512*v)
	sum := 0.0
	for _, ids := range seqs {
		s.Reset()
		if err := s.Forward(ids, logits[:len(ids)*v], true); err != nil {
			t.Fatal(err)
		}
		for i, next := range ids[1:] {
			sum += negLogProb(logits[i*v:][:v], next)
			tokens++
		}
	}
	return detmath.Exp(sum / float64(tokens)), tokens
}

func negLogProb(logits []float32, id int32) float64 {
	highest := logits[0]
	for _, x := range logits {
		highest = max(highest, x)
	}
	sum := 0.0
	for _, x := range logits {
		sum += detmath.ExpNarrow(float64(x - highest))
	}
	return detmath.Log(sum) - float64(logits[id]-highest)
}
