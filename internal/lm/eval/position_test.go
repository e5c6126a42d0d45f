package eval

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lowbit-go/gq/internal/lm/text"
)

// TestPositions uses two windows: tokens at positions 1 to 4, and at 3 and 4 of a window with
// context.
func TestPositions(t *testing.T) {
	windows := []text.Window{{Tokens: make([]int32, 5), First: 1}, {Tokens: make([]int32, 5), First: 3}}
	ln := func(v ...float64) []float64 {
		for i := range v {
			v[i] = math.Log(v[i])
		}
		return v
	}
	float, quantized := ln(2, 3, 4, 5, 9, 10), ln(4, 6, 8, 10, 18, 20)
	kl := []float64{0.1, 0.2, 0.3, 0.4, 0.7, 0.6}
	got := positions(float, quantized, kl, windows, &Clusters{Count: 2, of: []int{0, 1}})
	// Of positions 2 and 3: the windows' sums of differences from the mean 0.4 are -0.3 and 0.3.
	se23 := math.Sqrt(2*(0.3*0.3+0.3*0.3)) / 3
	want := []PositionStats{
		{From: 1, To: 1, Tokens: 1, KL: 0.1, KLStdErr: StdErr(math.Inf(1)), FloatPerplexity: 2, QuantizedPerplexity: 4},
		{From: 2, To: 3, Tokens: 3, KL: 0.4, KLStdErr: StdErr(se23), FloatPerplexity: math.Cbrt(3 * 4 * 9), QuantizedPerplexity: 2 * math.Cbrt(3*4*9)},
		{From: 4, To: 4, Tokens: 2, KL: 0.5, KLStdErr: StdErr(math.Sqrt(2*(0.1*0.1+0.1*0.1)) / 2), FloatPerplexity: math.Sqrt(50), QuantizedPerplexity: 2 * math.Sqrt(50)},
	}
	number := cmp.Transformer("number", func(e StdErr) float64 { return float64(e) })
	if d := cmp.Diff(want, got, number, cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Error(d)
	}
	if got := positions(float[4:], quantized[4:], kl[4:], windows[1:], &Clusters{Count: 1, of: []int{0}}); len(got) != 2 || got[0].From != 2 || got[0].Tokens != 1 {
		t.Errorf("a window with context alone: %+v", got)
	}
}

// TestByteFigures uses two windows of 2 and 1 tokens.
func TestByteFigures(t *testing.T) {
	nll := []float64{3 * math.Ln2, 5 * math.Ln2, 4 * math.Ln2}
	p := perplexityOf(nll, []int{2, 1}, []text.Size{{Bytes: 4, Words: 2}, {Bytes: 2, Words: 1}})
	// 12 bits of 6 bytes and 3 words; differences from 2 bits a byte: 8-8 and 4-4.
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-12*want+1e-15 }
	if !near(p.BitsPerByte, 2) || !near(p.WordPerplexity, 16) || !near(float64(p.BitsPerByteStdErr), 0) {
		t.Errorf("%+v", p)
	}
	p = perplexityOf(nll, []int{2, 1}, []text.Size{{Bytes: 3, Words: 2}, {Bytes: 3, Words: 1}})
	// Differences of bits from 2 a byte: 8-6 and 4-6. G/(G-1) is 2.
	if !near(p.BitsPerByte, 2) || !near(float64(p.BitsPerByteStdErr), math.Sqrt(2*(4+4))/6) {
		t.Errorf("%+v", p)
	}
	if p := perplexityOf(nll[:2], []int{2}, []text.Size{{Bytes: 4, Words: 2}}); p.BitsPerByteStdErr.Known() || p.WordPerplexityStdErr.Known() {
		t.Errorf("one window: %+v", p)
	}
	if p := perplexityOf(nll, []int{2, 1}, nil); p.BitsPerByte != 0 || p.WordPerplexity != 0 {
		t.Errorf("without sizes: %+v", p)
	}
	// With the numbers of tokens as sizes, the standard error is the mean's.
	ratio, stdErr, ok := ratioOf([]float64{nll[0] + nll[1], nll[2]}, []float64{2, 1})
	if mean, want := meanOf(nll, []int{2, 1}); !ok || !near(ratio, mean) || !near(float64(stdErr), float64(want)) {
		t.Errorf("%g ± %g, want %g ± %g", ratio, float64(stdErr), mean, float64(want))
	}
}
