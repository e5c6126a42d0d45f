package eval

import (
	"github.com/lowbit-go/gq/model/text"
)

// PositionStats compares the predictions of tokens at positions From to To of their window; BOS is
// at position 0. The ranges double: 1, 2 to 3, 4 to 7, 8 to 15 ...
type PositionStats struct {
	From   int `json:"from"`
	To     int `json:"to"` // at most the last position of the longest window
	Tokens int `json:"tokens"`
	// KL is the mean divergence KL(float || quantized) in nats.
	KL       float64 `json:"kl"`
	KLStdErr StdErr  `json:"kl_std_err"`
	// FloatPerplexity and QuantizedPerplexity are of these tokens alone.
	FloatPerplexity     float64 `json:"float_perplexity"`
	QuantizedPerplexity float64 `json:"quantized_perplexity"`
}

// positions divides one number per scored token into ranges of positions. Ranges without tokens are
// left out.
func positions(float, quantized, kl []float64, windows []text.Window) (list []PositionStats) {
	longest := longest(windows)
	for from := 1; from < longest; from *= 2 {
		s := PositionStats{From: from, To: min(2*from, longest) - 1}
		var nll [2][]float64
		var kls []float64
		sizes := make([]int, len(windows))
		at := 0 // the first scored token of the window
		for i, w := range windows {
			lo, hi := max(w.First, from)-w.First, min(len(w.Tokens), 2*from)-w.First
			if lo < hi {
				nll[0], nll[1] = append(nll[0], float[at+lo:at+hi]...), append(nll[1], quantized[at+lo:at+hi]...)
				kls = append(kls, kl[at+lo:at+hi]...)
				sizes[i] = hi - lo
			}
			at += w.Scored()
		}
		if len(kls) == 0 {
			continue
		}
		s.Tokens = len(kls)
		s.KL, s.KLStdErr = meanOf(kls, sizes)
		a, _ := meanOf(nll[0], sizes)
		b, _ := meanOf(nll[1], sizes)
		s.FloatPerplexity, s.QuantizedPerplexity = finiteExp(a), finiteExp(b)
		list = append(list, s)
	}
	return list
}
