package gq

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/quantizer"
)

func TestBestFold(t *testing.T) {
	impossible := math.NaN() // stands for a fold that the architecture does not allow
	for _, tt := range []struct {
		none, equalize, rotate, both float64
		want                         string
	}{
		{1, 1, 1, 1, "none"},
		{1, 0.98, 0.91, 0.92, "none"}, // noise, and no tenth for an lm_head of its own
		{1, 0.96, 1, 0.9, "equalize"},
		{1, 0.96, 1, 0.8, "rotate,equalize"},
		{1, 1.2, 0.8, 0.79, "rotate"},
		{1, 0.5, impossible, impossible, "equalize"},
		{1, 1.5, impossible, impossible, "none"},
	} {
		kl := map[quantizer.Fold]FoldCandidate{}
		for i, v := range []float64{tt.none, tt.equalize, tt.rotate, tt.both} {
			k := FoldCandidate{Fold: foldsBySteps[i].String(), KL: v}
			if math.IsNaN(v) {
				k.KL, k.Impossible = 0, "norms"
			}
			kl[foldsBySteps[i]] = k
		}
		if got := bestFold(kl).String(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
