package eval

import (
	"bytes"
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestSavedLogits compares with saved predictions and with the model. Means differ by less than
// 1e-6, as docs/ACCURACY.md states. The float model beside its own saved predictions shows the
// error that the format adds to a small divergence.
func TestSavedLogits(t *testing.T) {
	testshared.SlowEmulated(t, "logits are coded by the same code natively, TestReference compares models there")
	float := openFixture(t)
	candidates := []*forward.Model{quantizedFixture(t), float}
	own, err := text.Write(t.Context(), float, text.WriteOptions{Start: 1, Ends: []int32{2}, Tokens: 600, Window: 100, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	windows := text.WindowsOf(own.Sequences)
	windows[0].First = 40
	var b bytes.Buffer
	if _, err := SaveLogits(t.Context(), &b, logits.Header{Model: "m"}, float, windows, nil, func(int) {}); err != nil {
		t.Fatal(err)
	}
	f, err := logits.Read(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d predictions of %d logits: %.3f bytes per logit", f.Scored, f.Vocab, float64(b.Len())/float64(f.Scored)/float64(f.Vocab))
	again, sizes := Windows(f)
	if sizes != nil {
		t.Error("sizes are known that were not saved")
	}
	want, err := Compare(t.Context(), float, candidates, windows, CompareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Compare(t.Context(), nil, candidates, again, CompareOptions{Saved: f, Sessions: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got {
		w := want[i]
		t.Logf("KL %.9f, saved %.9f, differ by %.2g; NLL differ by %.2g, ratio by %.2g", w.KL.Mean, g.KL.Mean, g.KL.Mean-w.KL.Mean, g.Float.NLL-w.Float.NLL, g.Ratio-w.Ratio)
		if d := math.Abs(w.KL.Mean - g.KL.Mean); d > 1e-6 {
			t.Errorf("model %d: mean KL differs by %g", i, d)
		}
		if d := math.Abs(w.Float.NLL - g.Float.NLL); d > 1e-6 {
			t.Errorf("model %d: NLL differs by %g", i, d)
		}
		if w.SameTop1 != g.SameTop1 {
			t.Errorf("model %d: same top 1 is %v, want %v", i, g.SameTop1, w.SameTop1)
		}
	}
}
