package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testoutliers"
)

// Table outliers has many files: fewer tokens than the other tables.
const (
	outlierCalibration = 2048
	outlierEvaluated   = 3000
)

// folds of table outliers.
var folds = []string{"none", "equalize", "rotate", "both"}

// outliers compares algorithms and folds on copies of the models with outliers in their
// activations. Figures are ratios to the KL of search on the model itself, without a fold, in the
// same view and at the same bits.
func (b *bench) outliers() (string, error) {
	var t strings.Builder
	copies, err := b.outlierCopies(&t)
	if err != nil {
		return "", err
	}
	t.WriteString("\n| | " + strings.Join(folds, " | ") + " |\n|---|" + strings.Repeat("---|", len(folds)) + "\n")
	for _, bits := range []string{"4", "8"} {
		if !listed(*widths, bits) {
			continue
		}
		if err := b.outlierRows(&t, copies, bits); err != nil {
			return "", err
		}
	}
	return t.String(), nil
}

// withOutliers makes a copy of the checkpoint in the directory src. The principal directions are
// those of a text that the model writes.
func withOutliers(ctx context.Context, src, dst string) (*testoutliers.Report, error) {
	tok, err := tokenizer.Open(src)
	if err != nil {
		return nil, err
	}
	m, err := forward.OpenCheckpoint(src, forward.Options{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	o := testoutliers.Options{Seed: 1}
	start, ends := text.Start(tok)
	o.Text, err = text.Write(ctx, m, text.WriteOptions{Start: start, Ends: ends, Tokens: 1024, Window: text.WindowOf(m.Config()), Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	return testoutliers.Copy(ctx, src, dst, o)
}

// outlierCopies makes the copies and a table of their outliers.
func (b *bench) outlierCopies(t *strings.Builder) (copies []subject, err error) {
	t.WriteString("| largest / median channel | hidden states | norm outputs | inputs of o | inputs of down |\n|---|---|---|---|---|\n")
	for _, m := range b.models {
		c := m
		c.dir = filepath.Join(b.tmp, m.name+"-outliers")
		r, err := withOutliers(b.ctx, m.dir, c.dir)
		if err != nil {
			return nil, err
		}
		copies = append(copies, c)
		s := func(before, after testoutliers.Spread) string {
			return fmt.Sprintf("%.1f → %.1f", before.Median, after.Median)
		}
		fmt.Fprintf(t, "| %s | %s | %s | %s | %s |\n", m.name, s(r.Before.Residual, r.After.Residual), s(r.Before.Norms, r.After.Norms),
			s(r.Before.Values, r.After.Values), s(r.Before.Up, r.After.Up))
	}
	return copies, nil
}

// outlierRows writes the rows of one width, of the weights alone and as executed. At 8 bits the
// error of the activations dominates: these rows are only as executed, and of two algorithms.
func (b *bench) outlierRows(t *strings.Builder, copies []subject, bits string) error {
	algorithms := []struct {
		name, settings string
		calibrated     bool
	}{
		{"full-range RTN", "algorithm: rtn", false},
		{"search", "algorithm: search", false},
		{"search, asymmetric", "algorithm: search, mapping: asymmetric", false},
		{"imatrix", "algorithm: imatrix", true},
		{"awq", "algorithm: awq", true},
		{"gptq", "algorithm: gptq", true},
		{"gptq-ft", "algorithm: gptq-ft", true},
	}
	views, names := []view{weights, executed}, []string{"weights only", "executed"}
	if bits == "8" {
		views, names = views[1:], names[1:]
	}
	var base [][]float64
	for _, m := range b.models {
		kl, err := b.kl(m, views, "bits: "+bits, "algorithm: search")
		if err != nil {
			return err
		}
		base = append(base, kl)
	}
	rows := make([]strings.Builder, len(views))
	for _, a := range algorithms {
		if bits == "8" && a.name != "search" && a.name != "gptq-ft" || !b.rows.MatchString(a.name) {
			continue
		}
		for i := range rows {
			fmt.Fprintf(&rows[i], "| %s bit, %s: %s |", bits, names[i], a.name)
		}
		for _, f := range folds {
			figures := make([][]string, len(views))
			for j, c := range copies {
				settings := []string{a.settings, "bits: " + bits, "fold: " + f}
				if a.calibrated {
					settings = append(settings, fmt.Sprintf("calibrate: %q", c.head), fmt.Sprintf("calibrate-tokens: %d", outlierCalibration))
				}
				kl, err := b.kl(c, views, settings...)
				if err != nil {
					return err
				}
				for i := range views {
					figures[i] = append(figures[i], ratio(kl[i]/base[j][i]))
				}
			}
			for i := range rows {
				fmt.Fprintf(&rows[i], " %s |", strings.Join(figures[i], " / "))
			}
		}
		for i := range rows {
			rows[i].WriteByte('\n')
		}
	}
	for i := range rows {
		t.WriteString(rows[i].String())
	}
	return nil
}

// ratio has three digits: a file without loss has a ratio near 1, a useless file a ratio far above.
func ratio(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// kl quantizes once and returns the mean KL divergence in each view.
func (b *bench) kl(m subject, views []view, settings ...string) (list []float64, err error) {
	if _, _, err := b.quantize(m, b.file(), gq.Budget{}, settings...); err != nil {
		return nil, err
	}
	for _, v := range views {
		r, err := b.compare(m, v, outlierEvaluated)
		if err != nil {
			return nil, err
		}
		list = append(list, r.Model.KL.Mean)
	}
	return list, nil
}
