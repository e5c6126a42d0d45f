package eval

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// Perplexity measures a model's predictions of a text.
type Perplexity struct {
	// NLL is the mean negative log-likelihood of scored tokens in nats, with its standard error.
	NLL       float64 `json:"nll"`
	NLLStdErr StdErr  `json:"nll_std_err"`
	// Perplexity is exp(NLL). StdErr is its standard error: Perplexity * NLLStdErr.
	Perplexity float64 `json:"perplexity"`
	StdErr     StdErr  `json:"std_err"`
	Tokens     int     `json:"tokens"`
	// BitsPerByte is the negative log-likelihood of the text in bits, divided by its bytes.
	// WordPerplexity is exp(negative log-likelihood / words). Neither depends on the tokenizer. Both
	// are 0 if the text's size is unknown.
	BitsPerByte          float64 `json:"bits_per_byte,omitempty"`
	BitsPerByteStdErr    StdErr  `json:"bits_per_byte_std_err,omitempty"`
	WordPerplexity       float64 `json:"word_perplexity,omitempty"`
	WordPerplexityStdErr StdErr  `json:"word_perplexity_std_err,omitempty"`
}

// finiteExp returns exp(x), at most the largest finite number, because JSON has no infinity.
func finiteExp(x float64) float64 { return min(detmath.Exp(x), math.MaxFloat64) }

// perplexityOf describes negative log-likelihoods. tokens are the numbers of values per cluster,
// sizes the clusters' texts.
func perplexityOf(nll []float64, tokens []int, sizes []text.Size) Perplexity {
	mean, stdErr := meanOf(nll, tokens)
	ppl := finiteExp(mean)
	p := Perplexity{NLL: mean, NLLStdErr: stdErr, Perplexity: ppl, StdErr: stdErr.times(ppl), Tokens: len(nll)}
	p.setSize(nll, tokens, sizes)
	return p
}

func (p *Perplexity) setSize(nll []float64, tokens []int, sizes []text.Size) {
	sums, bytes, words := make([]float64, len(sizes)), make([]float64, len(sizes)), make([]float64, len(sizes))
	for i, z := range sizes {
		for _, x := range nll[:tokens[i]] {
			sums[i] += x
		}
		nll, bytes[i], words[i] = nll[tokens[i]:], float64(z.Bytes), float64(z.Words)
	}
	if perByte, stdErr, ok := ratioOf(sums, bytes); ok {
		p.BitsPerByte, p.BitsPerByteStdErr = perByte/math.Ln2, stdErr.times(1/math.Ln2)
	}
	if perWord, stdErr, ok := ratioOf(sums, words); ok {
		p.WordPerplexity = finiteExp(perWord)
		p.WordPerplexityStdErr = stdErr.times(p.WordPerplexity)
	}
}

// Comparison compares a quantized model's predictions with its float model's on the same text.
type Comparison struct {
	// Clusters are the clusters of all standard errors.
	Clusters  *Clusters  `json:"clusters,omitempty"`
	Float     Perplexity `json:"float"`
	Quantized Perplexity `json:"quantized"`
	// Ratio is the quantized model's perplexity divided by the float model's, with the standard
	// error of the paired differences.
	Ratio       float64 `json:"ratio"`
	RatioStdErr StdErr  `json:"ratio_std_err"`
	// KL is the divergence KL(float || quantized) of the next token's distribution, in nats per
	// scored token.
	KL          Distribution `json:"kl"`
	KLHistogram Histogram    `json:"kl_histogram"`
	// DeltaP is the change of the probability of the text's next token, quantized minus float.
	DeltaP Distribution `json:"delta_p"`
	// SameTop1 is the share of positions at which both models have the same most likely token.
	// Top5Overlap is the mean overlap of their five most likely tokens.
	SameTop1          float64 `json:"same_top1"`
	SameTop1StdErr    StdErr  `json:"same_top1_std_err"`
	Top5Overlap       float64 `json:"top5_overlap"`
	Top5OverlapStdErr StdErr  `json:"top5_overlap_std_err"`
	// Positions divides the scored tokens by their position in the window.
	Positions []PositionStats `json:"positions,omitempty"`
	// Worst lists the positions of the largest divergence, in descending order.
	Worst []WorstToken `json:"worst"`
}

// WorstToken is a position with a large divergence.
type WorstToken struct {
	Window   int     `json:"window"`
	Position int     `json:"position"` // of the token in its window; BOS is 0
	Token    int32   `json:"token"`
	KL       float64 `json:"kl"`
	// FloatP and QuantizedP are the token's probabilities.
	FloatP     float64 `json:"float_p"`
	QuantizedP float64 `json:"quantized_p"`
	// FloatTop and QuantizedTop are the likeliest tokens.
	FloatTop     int32 `json:"float_top"`
	QuantizedTop int32 `json:"quantized_top"`
	// Context is the text before the token and Text is the token, if there was a tokenizer.
	Context          string `json:"context,omitempty"`
	Text             string `json:"text,omitempty"`
	FloatTopText     string `json:"float_top_text,omitempty"`
	QuantizedTopText string `json:"quantized_top_text,omitempty"`
}

// CompareOptions are the options of Compare. The zero value has the defaults.
type CompareOptions struct {
	// Worst is the number of worst tokens to list. Default 10; -1 for none.
	Worst int
	// Sizes are the sizes of the windows' texts, for figures by byte and word. Default (nil): none.
	Sizes []text.Size
	// Sessions is the number of windows that are scored concurrently. Default 1. The result does not
	// depend on Sessions.
	Sessions int
	// Saved are predictions of the same windows from SaveLogits, in place of a float model (nil).
	// Default: none.
	Saved *logits.File
	// Progress is called, from several goroutines, with the number of tokens scored since the last
	// call.
	Progress func(tokens int)
}

// NonFiniteError reports logits that are NaN or infinite.
type NonFiniteError struct {
	Model            int // 0: the float model; from 1: the quantized models
	Window, Position int
}

func (e *NonFiniteError) Error() string {
	name := "model"
	switch {
	case e.Model == 1:
		name = "quantized model"
	case e.Model > 1:
		name = fmt.Sprintf("quantized model number %d", e.Model)
	}
	return fmt.Sprintf("the %s gives a logit that is NaN or infinite at position %d of window %d", name, e.Position, e.Window)
}

type score struct {
	nll      []float64 // by model, the float model first
	pairs    []pair    // by quantized model, against the float model
	floatTop int32
}

type pair struct {
	kl, dp float64
	top    int32 // the most likely token
	shared int   // number of common tokens among the topN likeliest
}

// logitsBytes bounds a model's buffer of logits in a session. The weights of a float model are
// widened and packed again for each buffer, so the buffer must not be small: with 128,256 tokens it
// holds 130 positions.
const logitsBytes = 64 << 20

// Compare scores the windows with the float model and the quantized candidates in a single pass,
// and returns a Comparison for each candidate. A few numbers per position stay in memory; nothing
// is written.
func Compare(ctx context.Context, float *forward.Model, candidates []*forward.Model, windows []text.Window, o CompareOptions) ([]Comparison, error) {
	vocab := 0
	if o.Saved != nil {
		vocab = o.Saved.Vocab
	} else {
		vocab = float.VocabSize()
	}
	if err := sameVocabulary(vocab, candidates); err != nil {
		return nil, err
	}
	scores, err := run(ctx, append([]*forward.Model{float}, candidates...), windows, o)
	if err != nil {
		return nil, err
	}
	out := make([]Comparison, len(candidates))
	base := collect(scores, func(s *score) float64 { return s.nll[0] })
	for c := range out {
		out[c] = summarize(scores, base, windows, c, o)
	}
	return out, nil
}

func sameVocabulary(vocab int, candidates []*forward.Model) error {
	for i, c := range candidates {
		if c.VocabSize() != vocab {
			return fmt.Errorf("quantized model %d has %d tokens, the float model %d: they are not the same model", i+1, c.VocabSize(), vocab)
		}
	}
	return nil
}

func summarize(scores [][]score, base []float64, windows []text.Window, c int, o CompareOptions) Comparison {
	nll := collect(scores, func(s *score) float64 { return s.nll[c+1] })
	kl := collect(scores, func(s *score) float64 { return s.pairs[c].kl })
	diff := make([]float64, len(nll))
	for i := range nll {
		diff[i] = nll[i] - base[i]
	}
	clusters := clustersOf(windows, base, kl)
	sizes := clusters.sizes(func(i int) int { return len(scores[i]) })
	var texts []text.Size
	if len(o.Sizes) > 0 {
		texts = make([]text.Size, len(sizes))
		for i, z := range o.Sizes {
			texts[clusters.of[i]].Add(z)
		}
	}
	mean, stdErr := meanOf(diff, sizes)
	out := Comparison{
		Clusters: clusters, Float: perplexityOf(base, sizes, texts), Quantized: perplexityOf(nll, sizes, texts),
		Ratio: finiteExp(mean), KL: describe(kl, sizes), KLHistogram: histogram(kl, klEdges),
		DeltaP:    describe(collect(scores, func(s *score) float64 { return s.pairs[c].dp }), sizes),
		Positions: positions(base, nll, kl, windows, clusters), Worst: worst(scores, windows, c, o.Worst),
	}
	out.RatioStdErr = stdErr.times(out.Ratio)
	same := collect(scores, func(s *score) float64 { return one(s.pairs[c].top == s.floatTop) })
	overlap := collect(scores, func(s *score) float64 { return float64(s.pairs[c].shared) / topN })
	out.SameTop1, out.SameTop1StdErr = meanOf(same, sizes)
	out.Top5Overlap, out.Top5OverlapStdErr = meanOf(overlap, sizes)
	return out
}

// worst returns the n positions of the largest divergence; 0 means 10.
func worst(scores [][]score, windows []text.Window, c, n int) []WorstToken {
	n = cmp.Or(n, 10)
	var all []WorstToken
	for w := range scores {
		for i := range scores[w] {
			s := &scores[w][i]
			all = append(all, WorstToken{
				Window: w, Position: windows[w].First + i, Token: windows[w].Tokens[windows[w].First+i], KL: s.pairs[c].kl,
				FloatP: detmath.Exp(-s.nll[0]), QuantizedP: detmath.Exp(-s.nll[c+1]), FloatTop: s.floatTop, QuantizedTop: s.pairs[c].top,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b WorstToken) int { return cmp.Compare(b.KL, a.KL) })
	return slices.Clone(all[:min(max(n, 0), len(all))])
}

// run scores all windows with all models. A goroutine scores whole windows, so the scores do not
// depend on the number of goroutines.
func run(ctx context.Context, models []*forward.Model, windows []text.Window, o CompareOptions) ([][]score, error) {
	scores := make([][]score, len(windows))
	for i, w := range windows {
		if w.First < 1 || w.First >= len(w.Tokens) {
			return nil, fmt.Errorf("window %d scores from token %d of %d", i, w.First, len(w.Tokens))
		}
	}
	err := cpu.Parallel(ctx, o.Sessions, len(windows), func() func(i int) error {
		s := newScorer(models, longest(windows))
		s.saved = o.Saved
		return func(i int) error {
			w := windows[i]
			scores[i] = make([]score, 0, w.Scored())
			err := s.predict(ctx, i, w, func(position, row int) error {
				sc, err := s.score(i, position, row, w.Tokens[position])
				scores[i] = append(scores[i], sc)
				return err
			})
			if err == nil && o.Progress != nil {
				o.Progress(w.Scored())
			}
			return err
		}
	})
	return scores, err
}
