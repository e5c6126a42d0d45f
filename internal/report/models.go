package report

import (
	"fmt"
	"strconv"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// models compares the predictions on each text, and the answers to questions.
func models(r *accuracy.Report) (list []*table) {
	for _, t := range r.Scored() {
		if t.Model != nil {
			list = append(list, predictions(t, onText(r, "Model", t)))
		}
	}
	return append(list, answers(r)...)
}

// onText adds the text's name to the title of a table or plot, if there are several texts.
func onText(r *accuracy.Report, title string, t *accuracy.TextReport) string {
	if len(r.Texts) == 0 {
		return title
	}
	return title + " on " + text(t.Text.Label())
}

func predictions(of *accuracy.TextReport, title string) *table {
	m := of.Model
	t := &table{
		title: title, heads: []string{"", "float>", "quantized>"},
		note: "Divergence KL(float || quantized) of the next token's distribution, in nats; change of the probability of the token that follows.",
	}
	list := []*eval.Comparison{m}
	if of.Baseline != nil {
		t.heads = append(t.heads, "baseline "+text(of.Baseline.File)+">")
		list = append(list, &of.Baseline.Comparison)
	}
	row := rowsOf(t, list)
	row("perplexity", plusMinus(m.Float.Perplexity, m.Float.StdErr), func(c *eval.Comparison) string {
		return plusMinus(c.Quantized.Perplexity, c.Quantized.StdErr)
	})
	if m.Float.BitsPerByte > 0 {
		row("word perplexity", plusMinus(m.Float.WordPerplexity, m.Float.WordPerplexityStdErr), func(c *eval.Comparison) string {
			return plusMinus(c.Quantized.WordPerplexity, c.Quantized.WordPerplexityStdErr)
		})
		row("bits per byte", plusMinus(m.Float.BitsPerByte, m.Float.BitsPerByteStdErr), func(c *eval.Comparison) string {
			return plusMinus(c.Quantized.BitsPerByte, c.Quantized.BitsPerByteStdErr)
		})
	}
	row("ratio to float", "", func(c *eval.Comparison) string { return plusMinus(c.Ratio, c.RatioStdErr) })
	row("mean KL", "", func(c *eval.Comparison) string { return plusMinus(c.KL.Mean, c.KL.StdErr) })
	if a := of.ActivationError; a != nil {
		ofFile := func(s string) func(*eval.Comparison) string { // the baseline has none
			return func(c *eval.Comparison) string {
				if c != m {
					return ""
				}
				return s
			}
		}
		row("mean KL, float32 activations", "", ofFile(plusMinus(a.WeightsKL, a.WeightsKLStdErr)))
		row("share of int8 activations", "", ofFile(fmt.Sprintf("%.1f %%", 100*a.Share)))
	}
	for _, p := range []struct {
		name string
		get  func(d *eval.Distribution) float64
	}{
		{"median", func(d *eval.Distribution) float64 { return d.Median }},
		{"90 %", func(d *eval.Distribution) float64 { return d.P90 }},
		{"95 %", func(d *eval.Distribution) float64 { return d.P95 }},
		{"99 %", func(d *eval.Distribution) float64 { return d.P99 }},
		{"99.9 %", func(d *eval.Distribution) float64 { return d.P999 }},
		{"largest", func(d *eval.Distribution) float64 { return d.Max }},
	} {
		row(p.name+" KL", "", func(c *eval.Comparison) string { return figure(p.get(&c.KL)) })
	}
	row("change of p, mean", "", func(c *eval.Comparison) string { return plusMinus(c.DeltaP.Mean, c.DeltaP.StdErr) })
	row("change of p, RMS", "", func(c *eval.Comparison) string { return plusMinus(c.DeltaP.RMS, c.DeltaP.RMSStdErr) })
	row("change of p, 1 % / 99 %", "", func(c *eval.Comparison) string { return figure(c.DeltaP.P1) + " / " + figure(c.DeltaP.P99) })
	row("same likeliest token", "", func(c *eval.Comparison) string {
		return percentError(c.SameTop1, c.SameTop1StdErr)
	})
	row("of the 5 likeliest in common", "", func(c *eval.Comparison) string { return percentError(c.Top5Overlap, c.Top5OverlapStdErr) })
	return t
}

// rowsOf returns a function that adds a row: name, the float model's figure, and each comparison's.
func rowsOf[C any](t *table, list []C) func(name, float string, get func(c C) string) {
	return func(name, float string, get func(c C) string) {
		cells := []any{name, float}
		for _, c := range list {
			cells = append(cells, get(c))
		}
		t.add(cells...)
	}
}

// positions shows the divergence by position in the window, of each text.
func positions(r *accuracy.Report) (list []*table) {
	for _, of := range r.Scored() {
		if of.Model == nil || len(of.Model.Positions) == 0 {
			continue
		}
		t := &table{
			title: onText(r, "By position in the window", of), heads: []string{"positions", "tokens>", "perplexity float>", "quantized>", "ratio>", "mean KL>"},
			note: "BOS is at position 0.",
		}
		for _, p := range of.Model.Positions {
			span := strconv.Itoa(p.From)
			if p.To > p.From {
				span += "-" + strconv.Itoa(p.To)
			}
			t.add(span, p.Tokens, figure(p.FloatPerplexity), figure(p.QuantizedPerplexity), figure(p.QuantizedPerplexity/p.FloatPerplexity), plusMinus(p.KL, p.KLStdErr))
		}
		list = append(list, t)
	}
	return list
}

// worstTokens lists up to limit positions of each text where the predictions differ most.
func worstTokens(r *accuracy.Report, limit int) (list []*table) {
	for _, t := range r.Scored() {
		if t.Model != nil && len(t.Model.Worst) > 0 {
			list = append(list, worstOf(t.Model.Worst, onText(r, "Worst tokens", t), limit))
		}
	}
	return list
}

func worstOf(list []eval.WorstToken, title string, limit int) *table {
	t := &table{
		title: title, heads: []string{"KL>", "window>", "at>", "text before", "token", "p float>", "p quantized>", "float says", "quantized says"},
	}
	for i, w := range list {
		if i == limit {
			break
		}
		t.add(figure(w.KL), w.Window, w.Position, ending(w.Context, 40), token(w.Token, w.Text), fmt.Sprintf("%.4f", w.FloatP), fmt.Sprintf("%.4f", w.QuantizedP),
			token(w.FloatTop, w.FloatTopText), token(w.QuantizedTop, w.QuantizedTopText))
	}
	return t
}

func answers(r *accuracy.Report) (list []*table) {
	for i := range r.Choices {
		c := &r.Choices[i]
		if c.Model == nil {
			continue
		}
		t := &table{
			title: fmt.Sprintf("Answers to %s (%s)", text(c.Label()), count(c.Model.Questions, "question")), heads: []string{"", "float>", "quantized>"},
			note: "acc: the ending with the highest log-likelihood; acc_norm: with the highest log-likelihood per character. KL divergence over the endings, in nats.",
		}
		both := []*eval.ChoiceComparison{c.Model}
		if c.Baseline != nil {
			t.heads, both = append(t.heads, "baseline>"), append(both, c.Baseline)
		}
		row := rowsOf(t, both)
		f := &c.Model.Float
		row("acc", percentError(f.Acc, f.AccStdErr), func(c *eval.ChoiceComparison) string { return percentError(c.Quantized.Acc, c.Quantized.AccStdErr) })
		row("acc_norm", percentError(f.AccNorm, f.AccNormStdErr), func(c *eval.ChoiceComparison) string {
			return percentError(c.Quantized.AccNorm, c.Quantized.AccNormStdErr)
		})
		row("acc lost", "", func(c *eval.ChoiceComparison) string { return percentError(c.AccDrop, c.AccDropStdErr) })
		row("acc_norm lost", "", func(c *eval.ChoiceComparison) string { return percentError(c.AccNormDrop, c.AccNormDropStdErr) })
		row("answers changed", "", func(c *eval.ChoiceComparison) string { return percentError(c.Changed, c.ChangedStdErr) })
		row("mean KL", "", func(c *eval.ChoiceComparison) string { return plusMinus(c.KL.Mean, c.KL.StdErr) })
		list = append(list, t)
	}
	return list
}
