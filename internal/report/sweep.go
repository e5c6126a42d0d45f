package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// SweepExtensions lists the file name extensions that WriteSweep supports.
func SweepExtensions() []string { return []string{".html", ".csv", ".json", ".md", ".txt"} }

// WriteSweep writes the report of a sweep in the format of a file name extension.
func WriteSweep(w io.Writer, extension string, r *accuracy.SweepReport) error {
	write := map[string]func(io.Writer, *accuracy.SweepReport) error{
		".html": sweepHTML, ".csv": sweepCSV, ".json": writeJSON[*accuracy.SweepReport], ".md": sweepMarkdown, ".txt": SweepText,
	}[extension]
	if write == nil {
		return fmt.Errorf("no report of a sweep is written as %q", extension)
	}
	return write(w, r)
}

// SweepText writes the report of a sweep for a terminal.
func SweepText(w io.Writer, r *accuracy.SweepReport) error {
	var b bytes.Buffer
	writeText(&b, sweepHeadline(r), sweepTables(r))
	_, err := w.Write(b.Bytes())
	return err
}

func sweepMarkdown(w io.Writer, r *accuracy.SweepReport) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Files of %s\n\n", code(r.Source))
	writeMarkdown(&b, sweepHeadline(r), sweepTables(r))
	_, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// sweepHeadline describes the checkpoint and the texts that all files have in common.
func sweepHeadline(r *accuracy.SweepReport) [][2]string {
	lines := [][2]string{{"source", fmt.Sprintf("%s, %s bytes of tensors", text(r.Source), thousands(r.SourceBytes))}}
	if len(r.Files) == 0 {
		return lines
	}
	for _, t := range r.Files[0].Texts {
		lines = append(lines, [2]string{"text", fmt.Sprintf("%s: %s; %s activations", text(t.Text.Name), t.Text.Cut(), r.Activations)})
		if t.Model != nil {
			lines = append(lines, [2]string{"float", "perplexity " + plusMinus(t.Model.Float.Perplexity, t.Model.Float.StdErr)})
		}
	}
	var best *accuracy.SweepFile
	for _, f := range r.Files {
		if f.Gate != nil && f.Gate.Passed && (best == nil || f.FileBytes < best.FileBytes) {
			best = f
		}
	}
	if best != nil {
		lines = append(lines, [2]string{"gate", fmt.Sprintf("the smallest file that meets %s: %s", text(best.Gate.Gate), text(best.Name))})
	}
	return lines
}

// sweepTables has the files by size: on each text a table, and the failed conditions of gates.
func sweepTables(r *accuracy.SweepReport) (list []*table) {
	files := bySize(r)
	if len(files) == 0 {
		return nil
	}
	for i := range files[0].Texts {
		title := "Files by size"
		if len(files[0].Texts) > 1 {
			title += " on " + text(files[0].Texts[i].Text.Label())
		}
		list = append(list, sweepTable(files, i, title))
	}
	return withRows(append(list, sweepFailures(files))...)
}

// bySize lists the files, the smallest first.
func bySize(r *accuracy.SweepReport) []*accuracy.SweepFile {
	files := slices.Clone(r.Files)
	slices.SortStableFunc(files, func(a, b *accuracy.SweepFile) int { return cmp.Compare(a.FileBytes, b.FileBytes) })
	return files
}

func sweepTable(files []*accuracy.SweepFile, i int, title string) *table {
	first := "" // the text for the deciding divergences
	if len(files[0].Texts) > 1 {
		first = " on " + text(files[0].Texts[0].Text.Label())
	}
	t := &table{
		title: title, heads: []string{"", "recipe", "bytes>", "bits/weight>", "mean KL>", "perplexity>", "ratio to float>", "same likeliest token>", "tokens/s>", "quantized in>", "measured in>", "gate"},
		note: "An asterisk marks files that no other file beats: none is smaller and no worse, or better and no larger, by bytes and mean KL" + first + ".",
	}
	if slices.ContainsFunc(files, given) {
		t.heads[1] = "file"
	}
	for _, f := range files {
		mark, gate, made, speed := "", "", "", ""
		if !given(f) {
			made = seconds(f.QuantizeSeconds)
		}
		if v := f.DecodeTokensPerSecond; v > 0 {
			speed = fmt.Sprintf("%.1f", v)
		}
		if f.Pareto {
			mark = "*"
		}
		if g := f.Gate; g != nil {
			if gate = "met"; !g.Passed {
				gate = "NOT MET"
			}
		}
		row := []any{mark, text(f.Name), thousands(f.FileBytes), fmt.Sprintf("%.3f", f.BitsPerWeight)}
		if m := f.Texts[i].Model; m != nil {
			row = append(row, plusMinus(m.KL.Mean, m.KL.StdErr), plusMinus(m.Quantized.Perplexity, m.Quantized.StdErr), plusMinus(m.Ratio, m.RatioStdErr),
				percentError(m.SameTop1, m.SameTop1StdErr))
		} else {
			row = append(row, "", "", "", "")
		}
		t.add(append(row, speed, made, seconds(f.MeasureSeconds), gate)...)
	}
	return t
}

// given reports whether a file existed before the sweep.
func given(f *accuracy.SweepFile) bool { return f.Recipe == "" }

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

func sweepFailures(files []*accuracy.SweepFile) *table {
	t := &table{title: "Conditions that are not met", heads: []string{"recipe", "condition"}}
	for _, f := range files {
		if f.Gate == nil {
			continue
		}
		for _, l := range failures(f.Gate, listed) {
			t.add(text(f.Name), l)
		}
	}
	return t
}

// sweepCSV writes a line for each file and text, in the order of the recipes.
func sweepCSV(w io.Writer, r *accuracy.SweepReport) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"recipe", "text", "file", "file_bytes", "bits_per_weight", "mean_kl", "mean_kl_std_err", "perplexity", "perplexity_std_err",
		"float_perplexity", "perplexity_ratio", "perplexity_ratio_std_err", "same_top1", "decode_tokens_per_second", "quantize_seconds", "measure_seconds", "gate", "pareto"})
	for _, f := range r.Files {
		gate := ""
		if f.Gate != nil {
			gate = map[bool]string{true: "met", false: "not met"}[f.Gate.Passed]
		}
		for _, t := range f.Texts {
			_ = c.Write(slices.Concat([]string{f.Name, t.Text.Label(), f.File, strconv.FormatInt(f.FileBytes, 10), number(f.BitsPerWeight)}, csvFigures(t.Model),
				[]string{number(f.DecodeTokensPerSecond), number(f.QuantizeSeconds), number(f.MeasureSeconds), gate, strconv.FormatBool(f.Pareto)}))
		}
	}
	c.Flush() // which keeps the first error
	return c.Error()
}

// csvFigures are the columns of a comparison, empty if the model was not run.
func csvFigures(m *eval.Comparison) []string {
	if m == nil {
		return make([]string, 8)
	}
	return []string{
		number(m.KL.Mean), errorNumber(m.KL.StdErr), number(m.Quantized.Perplexity), errorNumber(m.Quantized.StdErr),
		number(m.Float.Perplexity), number(m.Ratio), errorNumber(m.RatioStdErr), number(m.SameTop1),
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// errorNumber is "" for the unknown error of a single window.
func errorNumber(e eval.StdErr) string {
	if !e.Known() {
		return ""
	}
	return number(float64(e))
}

//go:embed sweep.html
var sweepPageText string

var sweepPage = template.Must(template.Must(page.Clone()).New("sweep").Parse(sweepPageText))

// sweepHTML writes the report of a sweep as a page that needs no other file.
func sweepHTML(w io.Writer, r *accuracy.SweepReport) error {
	data := struct {
		R        *accuracy.SweepReport
		Headline [][2]string
		Plots    []*figurePlot
		First    []htmlTable
		Recipes  []*accuracy.SweepFile
	}{R: r, Headline: sweepHeadline(r), Recipes: slices.DeleteFunc(bySize(r), given)}
	if len(r.Files) > 0 {
		for i := range r.Files[0].Texts {
			data.Plots = append(data.Plots, sizePlot(r, i))
		}
		data.Plots = drawn(data.Plots...)
	}
	for _, t := range sweepTables(r) {
		data.First = append(data.First, t.html())
	}
	return sweepPage.Execute(w, data)
}

// sizePlot draws the mean KL divergence on text i over the size of the files.
func sizePlot(r *accuracy.SweepReport, i int) *figurePlot {
	c := &chart{x: axis{label: "file size, MB"}, y: axis{label: "mean KL divergence, nats"}}
	f := &figurePlot{Title: "Size and loss", Note: "The line joins the files that no other file beats."}
	if len(r.Files[0].Texts) > 1 {
		f.Title += " on " + text(r.Files[0].Texts[i].Text.Label())
	}
	front, beaten := curve{series: 0}, curve{series: 1}
	for _, file := range bySize(r) {
		m := file.Texts[i].Model
		if m == nil || !(m.KL.Mean > 0) {
			continue // exact predictions have no place on a logarithmic axis
		}
		p := point{float64(file.FileBytes) / 1e6, detmath.Log10(m.KL.Mean)}
		c.names = append(c.names, named{p, file.Name})
		if file.Pareto {
			front.points = append(front.points, p)
		} else {
			beaten.points = append(beaten.points, p)
		}
	}
	if front.points != nil {
		c.dots = append(c.dots, front)
		c.curves = append(c.curves, front)
		f.name(0, "no file beats it")
	}
	if beaten.points != nil {
		c.dots = append(c.dots, beaten)
		f.name(1, "another file is smaller and no worse, or better and no larger")
	}
	c.fit()
	c.x.mark(ticks, false)
	c.y.markPowers(ticks)
	return f.draw(c)
}

// markPowers ticks an axis of decimal logarithms, up to n at 1, 2, 5 or only 1 times powers of ten.
func (a *axis) markPowers(n int) {
	for _, steps := range [][]int{{1, 2, 5}, {1}} {
		a.ticks = nil
		for e := int(math.Floor(a.min)); e <= int(math.Ceil(a.max)); e++ {
			for _, s := range steps {
				at := float64(e) + detmath.Log10(float64(s))
				if at < a.min || at > a.max {
					continue
				}
				label := power("10", strconv.Itoa(e))
				if len(steps) > 1 {
					v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", s, e), 64) // digits and an exponent
					label = strconv.FormatFloat(v, 'g', -1, 64)
				}
				a.ticks = append(a.ticks, tick{at, label})
			}
		}
		if len(a.ticks) <= n {
			return
		}
	}
}

type named struct {
	point
	name string
}

const (
	nameGap    = 6  // between a point and its name
	nameHeight = 12 // of a line
)

// placeNames puts names next to their points in a drawing from left to right: after a point, or
// before a point in the right half. A name that would cover another name moves down.
func placeNames(points []named, left, right float64) (list []caption) {
	type box struct{ from, to, y float64 }
	var placed []box
	slices.SortStableFunc(points, func(a, b named) int { return cmp.Compare(a.y, b.y) })
	for _, p := range points {
		width := float64(letterWidth * float64(len([]rune(p.name))))
		c := caption{Anchor: "start", Text: p.name}
		b := box{from: p.x + nameGap, y: p.y - 3} // above the line, falling to the right
		if p.x > (left+right)/2 {
			c.Anchor, b.from, b.y = "end", p.x-nameGap-width, p.y+4
		}
		b.to = b.from + width
		for _, other := range placed { // from the top down
			if b.from < other.to && other.from < b.to && math.Abs(b.y-other.y) < nameHeight {
				b.y = other.y + nameHeight
			}
		}
		placed = append(placed, b)
		x := b.from
		if c.Anchor == "end" {
			x = b.to
		}
		c.X, c.Y = coordinate(x), coordinate(b.y)
		list = append(list, c)
	}
	return list
}
