package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/quantizer"
)

type bench struct {
	ctx    context.Context
	tmp    string
	models []subject
	rows   *regexp.Regexp     // names of the rows of tables of ratios
	base   map[string]float64 // KL of TorchAO's symmetric rounding, by model, bits and group

	figures []figure // of .gguf files
}

func (b *bench) file() string { return filepath.Join(b.tmp, "model.gqf") }

// quantize writes a file by the settings of a recipe, and within the budget if that is not empty.
// It returns the report and the seconds.
func (b *bench) quantize(m subject, file string, budget gq.Budget, settings ...string) (*gq.QuantizeReport, float64, error) {
	text := "{" + strings.Join(settings, ", ") + "}"
	recipe, err := quantizer.ParseRecipe(text, []byte(text))
	if err != nil {
		return nil, 0, err
	}
	o := gq.QuantizeOptions{Recipe: recipe}
	if budget.BitsPerWeight > 0 || budget.FileBytes > 0 {
		o.Budget = &budget
	}
	start := time.Now()
	r, err := gq.Quantize(b.ctx, m.dir, file, o)
	seconds := time.Since(start).Seconds()
	if *verbose {
		log.Printf("%s, %s: %.1f s", m.name, strings.ReplaceAll(text, b.tmp+"/", ""), seconds)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s, %s: %w", m.name, text, err)
	}
	return r, seconds, nil
}

// view is how a file is compared with its checkpoint.
type view uint8

const (
	whole    view = iota // as executed, on all of the text
	weights              // the weights alone, on what calibration has not seen
	executed             // as executed, on what calibration has not seen
)

// measure quantizes and compares.
func (b *bench) measure(m subject, v view, settings ...string) (*accuracy.Report, error) {
	if _, _, err := b.quantize(m, b.file(), gq.Budget{}, settings...); err != nil {
		return nil, err
	}
	return b.compare(m, v, evaluated)
}

// compare measures the file on all of the text, or on so many tokens that calibration has not seen.
func (b *bench) compare(m subject, v view, tokens int) (*accuracy.Report, error) {
	o := gq.MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}, Texts: []gq.TextFile{{Path: m.file}}, Windows: m.cut}
	if v != whole {
		o.Texts[0].Path, o.Windows.MaxTokens = m.tail, tokens
	}
	if v == weights {
		o.Activations = forward.Float32
	}
	return gq.Measure(b.ctx, m.dir, b.file(), o)
}

// baseline is the KL of TorchAO's symmetric rounding.
func (b *bench) baseline(m subject, v view, bits string, more ...string) (float64, error) {
	key := fmt.Sprint(m.name, v, bits, more)
	if _, ok := b.base[key]; !ok {
		r, err := b.measure(m, v, append([]string{"bits: " + bits, "mapping: symmetric", "algorithm: rtn"}, more...)...)
		if err != nil {
			return 0, err
		}
		b.base[key] = r.Model.KL.Mean
	}
	return b.base[key], nil
}

// part is the KL of a file as a part of the baseline. Both have the common settings.
func (b *bench) part(m subject, v view, bits string, common []string, settings ...string) (float64, error) {
	base, err := b.baseline(m, v, bits, common...)
	if err != nil {
		return 0, err
	}
	r, err := b.measure(m, v, slices.Concat([]string{"bits: " + bits}, common, settings)...)
	if err != nil {
		return 0, err
	}
	return r.Model.KL.Mean / base, nil
}

// grid is a table whose cells hold a figure of each model; 0 is none.
func (b *bench) grid(rows []string, cell func(m subject, row int, bits string) (float64, error)) (string, error) {
	var columns []string
	for _, bits := range []string{"4", "3", "2"} {
		if listed(*widths, bits) {
			columns = append(columns, bits)
		}
	}
	t := strings.Builder{}
	fmt.Fprintf(&t, "| | %s bit |\n|%s\n", strings.Join(columns, " bit | "), strings.Repeat("---|", len(columns)+1))
	for i, name := range rows {
		if !b.rows.MatchString(name) {
			continue
		}
		fmt.Fprintf(&t, "| %s |", name)
		for _, bits := range columns {
			var figures []string
			for _, m := range b.models {
				v, err := cell(m, i, bits)
				if err != nil {
					return "", err
				}
				if v == 0 {
					continue
				}
				figures = append(figures, strings.TrimPrefix(fmt.Sprintf("%.3f", v), "0"))
			}
			fmt.Fprintf(&t, " %s |", cmp.Or(strings.Join(figures, " / "), "-"))
		}
		t.WriteByte('\n')
	}
	return t.String(), nil
}
