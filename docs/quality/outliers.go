package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer/fold"
)

// Table outliers has many files: fewer tokens than the other tables.
const (
	outlierCalibration = 2048
	outlierEvaluated   = 3000
)

// folds of table outliers.
var folds = []string{"none", "equalize", "rotate", "both"}

// pair is the mean KL divergence of a file, the weights alone and as executed.
type pair struct{ weights, executed float64 }

// outliers compares algorithms and folds on copies of the models with outliers in their activations. Figures are parts of
// the KL of search on the model itself, unfolded, in the same view and at the same bits.
func (b *bench) outliers() (string, error) {
	var t strings.Builder
	t.WriteString("| largest / median channel | hidden states | norm outputs | inputs of o | inputs of down |\n|---|---|---|---|---|\n")
	var copies []subject
	for _, m := range b.models {
		c := m
		c.dir = filepath.Join(b.tmp, m.name+"-outliers")
		r, err := gq.SynthOutliers(b.ctx, m.dir, c.dir, gq.OutlierOptions{})
		if err != nil {
			return "", err
		}
		copies = append(copies, c)
		s := func(before, after fold.Spread) string {
			return fmt.Sprintf("%.1f → %.1f", before.Median, after.Median)
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s |\n", m.name, s(r.Before.Residual, r.After.Residual), s(r.Before.Norms, r.After.Norms),
			s(r.Before.Values, r.After.Values), s(r.Before.Up, r.After.Up))
	}
	text := func(m subject) []string {
		return []string{fmt.Sprintf("calibrate: %q", m.head), fmt.Sprintf("calibrate-tokens: %d", outlierCalibration)}
	}
	algorithms := []struct {
		name     string
		settings func(m subject) []string
	}{
		{"full-range RTN", func(subject) []string { return []string{"algorithm: rtn"} }},
		{"search", func(subject) []string { return []string{"algorithm: search"} }},
		{"search, asymmetric", func(subject) []string { return []string{"algorithm: search", "mapping: asymmetric"} }},
		{"imatrix", func(m subject) []string { return append(text(m), "algorithm: imatrix") }},
		{"awq", func(m subject) []string { return append(text(m), "algorithm: awq") }},
		{"gptq", func(m subject) []string { return append(text(m), "algorithm: gptq") }},
		{"gptq-ft", func(m subject) []string { return append(text(m), "algorithm: gptq-ft") }},
	}
	in, err := regexp.Compile(*named)
	if err != nil {
		return "", err
	}
	t.WriteString("\n| | " + strings.Join(folds, " | ") + " |\n|---|" + strings.Repeat("---|", len(folds)) + "\n")
	for _, bits := range []string{"4", "8"} {
		if !listed(*widths, bits) {
			continue
		}
		var base []pair
		for _, m := range b.models {
			p, err := b.both(m, "bits: "+bits, "algorithm: search")
			if err != nil {
				return "", err
			}
			base = append(base, p)
		}
		alone, run := strings.Builder{}, strings.Builder{}
		for _, a := range algorithms {
			if bits == "8" && a.name != "search" && a.name != "gptq-ft" || !in.MatchString(a.name) {
				continue // at 8 bits the activations' error dominates
			}
			fmt.Fprintf(&alone, "| %s bit, weights only: %s |", bits, a.name)
			fmt.Fprintf(&run, "| %s bit, executed: %s |", bits, a.name)
			for _, f := range folds {
				var x, y []string
				for i, c := range copies {
					p, err := b.both(c, append(a.settings(c), "bits: "+bits, "fold: "+f)...)
					if err != nil {
						return "", err
					}
					x = append(x, ratio(p.weights/base[i].weights))
					y = append(y, ratio(p.executed/base[i].executed))
				}
				fmt.Fprintf(&alone, " %s |", strings.Join(x, " / "))
				fmt.Fprintf(&run, " %s |", strings.Join(y, " / "))
			}
			alone.WriteByte('\n')
			run.WriteByte('\n')
		}
		if bits == "4" {
			t.WriteString(alone.String())
		}
		t.WriteString(run.String())
	}
	return t.String(), nil
}

// ratio has three digits: a ratio without loss is near 1, one of a useless file far above.
func ratio(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// both quantizes once and measures twice.
func (b *bench) both(m subject, settings ...string) (p pair, err error) {
	if _, _, err := b.quantize(m, b.file(), gq.Budget{}, settings...); err != nil {
		return p, err
	}
	o := gq.MeasureOptions{Texts: []gq.TextFile{{Path: m.tail}}, Windows: m.cut, NoOutputs: true}
	o.Windows.MaxTokens = outlierEvaluated
	r, err := gq.Measure(b.ctx, m.dir, b.file(), o)
	if err != nil {
		return p, err
	}
	p.executed = r.Model.KL.Mean
	o.Activations = model.Float32
	if r, err = gq.Measure(b.ctx, m.dir, b.file(), o); err != nil {
		return p, err
	}
	p.weights = r.Model.KL.Mean
	return p, nil
}
