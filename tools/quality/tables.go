package main

import (
	"fmt"
	"slices"
	"strings"
)

// bits is the table of all widths, as executed, with no data.
func (b *bench) bits() (string, error) {
	var t strings.Builder
	t.WriteString("| model | bits | mapping, algorithm | bpw | perplexity | mean KL | same top 1 |\n|---|---|---|---|---|---|---|\n")
	for _, m := range b.models {
		for bits := range strings.SplitSeq(*widths, ",") {
			if bits == midway {
				continue
			}
			for _, how := range []string{"full-range rtn", "symmetric rtn", "symmetric-no-clip rtn", "asymmetric rtn", "full-range search", "asymmetric search", "half-step search"} {
				switch {
				case bits == "1" && strings.HasPrefix(how, "symmetric"):
					continue // these have no grid of two codes
				case bits > "2" && strings.HasPrefix(how, "half-step"):
					continue // it has no grid of more than four
				}
				mapping, algorithm, _ := strings.Cut(how, " ")
				r, err := b.measure(m, whole, "bits: "+bits, "mapping: "+mapping, "algorithm: "+algorithm)
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&t, "| %s | %s | %s, %s | %.2f | %.4f (float %.4f) | %.6f | %.2f %% |\n", m.name, bits, mapping, algorithm,
					r.Totals.BPW, r.Model.Quantized.Perplexity, r.Model.Float.Perplexity, r.Model.KL.Mean, 100*r.Model.SameTop1)
			}
		}
	}
	return t.String(), nil
}

// best is the row of that preset.
const best = "`--quality best`"

// method is a row of a table of ratios.
type method struct {
	name     string
	settings []string // of a recipe
	bits     string   // the only width; "": all
}

// methods that calibrate get text from the subject, but for self.
func methods(m subject) []method {
	text := fmt.Sprintf("calibrate: %q", m.head)
	return []method{
		{name: "full-range RTN", settings: []string{"algorithm: rtn"}},
		{name: "search", settings: []string{"algorithm: search"}},
		{name: "equalize, search", settings: []string{"fold: equalize", "algorithm: search"}},
		{name: "rotate, search", settings: []string{"fold: rotate", "algorithm: search"}},
		{name: "search, asymmetric", settings: []string{"algorithm: search", "mapping: asymmetric"}},
		{name: "search, floating-point zero points", bits: "4",
			// qai4c32p
			settings: []string{"algorithm: search", "mapping: asymmetric", "scale-dtype: f32", "layout: kleidiai"}},
		{name: "imatrix", settings: []string{"algorithm: imatrix", text}},
		{name: "awq", settings: []string{"algorithm: awq", text}},
		{name: "gptq", settings: []string{"algorithm: gptq", text}},
		{name: "rotate, gptq", settings: []string{"fold: rotate", "algorithm: gptq", text}},
		{name: "gptq + refine", settings: []string{"algorithm: gptq", "refine: true", text}},
		{name: "gptq-ft", settings: []string{"algorithm: gptq-ft", text}},
		{name: "equalize, gptq-ft", settings: []string{"fold: equalize", "algorithm: gptq-ft", text}},
		{name: "rotate, gptq-ft", settings: []string{"fold: rotate", "algorithm: gptq-ft", text}},
		{name: "gptq-ft, self", settings: []string{"algorithm: gptq-ft", "calibrate: self"}},
		{name: "gptq-ft + refine", settings: []string{"algorithm: gptq-ft", "refine: true", text}},
		{name: "gptq-ft, asymmetric", settings: []string{"algorithm: gptq-ft", "mapping: asymmetric", text}},
		{name: "gptq-ft, asymmetric, group 48", settings: []string{"algorithm: gptq-ft", "mapping: asymmetric", "group: 48", text}},
		{name: best, settings: []string{"quality: best"}},
	}
}

// ratios are of the weights alone, as parts of the KL of TorchAO's symmetric rounding.
func (b *bench) ratios() (string, error) {
	return b.table(weights, func(method) bool { return true })
}

// executed are ratios with the activations of a device.
func (b *bench) executed() (string, error) {
	return b.table(executed, func(how method) bool {
		return slices.Contains([]string{"full-range RTN", "search", "imatrix", "gptq", "gptq-ft", "gptq-ft + refine", best}, how.name)
	})
}

func (b *bench) table(v view, in func(method) bool) (string, error) {
	list := func(m subject) (l []method) {
		for _, how := range methods(m) {
			if in(how) {
				l = append(l, how)
			}
		}
		return l
	}
	var rows []string
	for _, how := range list(subject{}) {
		rows = append(rows, how.name)
	}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		how := list(m)[row]
		if how.bits != "" && how.bits != bits {
			return 0, nil
		}
		return b.part(m, v, bits, nil, how.settings...)
	})
}

// groups are ratios in longer groups, of folded checkpoints too: outliers cost more there.
func (b *bench) groups() (string, error) {
	type line struct {
		group string
		method
	}
	list := func(m subject) (lines []line) {
		for _, group := range []string{"128", "channel"} {
			for _, f := range methods(m) {
				if slices.Contains([]string{"search", "equalize, search", "rotate, search", "imatrix", "awq", "gptq", "rotate, gptq"}, f.name) {
					lines = append(lines, line{group, f})
				}
			}
		}
		return lines
	}
	var rows []string
	for _, l := range list(subject{}) {
		rows = append(rows, fmt.Sprintf("%s, %s", l.group, l.name))
	}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		l := list(m)[row]
		return b.part(m, weights, bits, []string{"group: " + l.group, "embedding-group: 32"}, l.settings...)
	})
}

// oneBit is perplexities: a ratio to a rounding that does not exist would say nothing.
func (b *bench) oneBit() (string, error) {
	var t strings.Builder
	t.WriteString("| model | mapping | float | search | gptq | gptq-ft | gptq-ft + refine |\n|---|---|---|---|---|---|---|\n")
	for _, m := range b.models {
		for _, mapping := range []string{"full-range", "half-step"} {
			var float float64
			var figures []string
			for _, how := range methods(m) {
				if !slices.Contains([]string{"search", "gptq", "gptq-ft", "gptq-ft + refine"}, how.name) {
					continue
				}
				r, err := b.measure(m, weights, append([]string{"bits: 1", "mapping: " + mapping}, how.settings...)...)
				if err != nil {
					return "", err
				}
				float = r.Model.Float.Perplexity
				figures = append(figures, fmt.Sprintf("%.1f", r.Model.Quantized.Perplexity))
			}
			fmt.Fprintf(&t, "| %s | %s | %.2f | %s |\n", m.name, mapping, float, strings.Join(figures, " | "))
		}
	}
	return t.String(), nil
}
