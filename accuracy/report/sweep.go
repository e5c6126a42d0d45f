package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/model/eval"
)

// SweepExtensions lists the file name extensions that WriteSweep supports.
func SweepExtensions() []string { return []string{".html", ".csv", ".json", ".md", ".txt"} }

// WriteSweep writes the report of a sweep in the format of a file name extension.
func WriteSweep(w io.Writer, extension string, r *accuracy.SweepReport) error {
	switch extension {
	case ".html":
		return sweepHTML(w, r)
	case ".csv":
		return sweepCSV(w, r)
	case ".json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case ".md":
		return sweepMarkdown(w, r)
	case ".txt":
		return SweepText(w, r)
	}
	return fmt.Errorf("no report of a sweep is written as %q", extension)
}

// SweepText writes the report of a sweep for a terminal.
func SweepText(w io.Writer, r *accuracy.SweepReport) error {
	var b bytes.Buffer
	for _, l := range sweepHeadline(r) {
		fmt.Fprintf(&b, "%-8s  %s\n", l[0], l[1])
	}
	for _, t := range sweepTables(r) {
		fmt.Fprintf(&b, "\n%s\n", t.title)
		t.text(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func sweepMarkdown(w io.Writer, r *accuracy.SweepReport) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Files of %s\n\n", code(r.Source))
	for _, l := range sweepHeadline(r) {
		fmt.Fprintf(&b, "- %s: %s\n", l[0], escapeMarkdown(l[1]))
	}
	b.WriteByte('\n')
	for _, t := range sweepTables(r) {
		fmt.Fprintf(&b, "### %s\n\n", escapeMarkdown(t.title))
		t.markdown(&b)
	}
	_, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// sweepHeadline describes the checkpoint and the texts, which all files have in common.
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
	if best := smallestMet(r); best != nil {
		lines = append(lines, [2]string{"gate", fmt.Sprintf("the smallest file that meets %s: %s", text(best.Gate.Gate), text(best.Name))})
	}
	return lines
}

// smallestMet is the smallest file that meets its gate; nil if there is none.
func smallestMet(r *accuracy.SweepReport) (best *accuracy.SweepFile) {
	for _, f := range r.Files {
		if f.Gate != nil && f.Gate.Passed && (best == nil || f.FileBytes < best.FileBytes) {
			best = f
		}
	}
	return best
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
	if t := sweepFailures(files); t != nil {
		list = append(list, t)
	}
	return list
}

// bySize lists the files, the smallest first.
func bySize(r *accuracy.SweepReport) []*accuracy.SweepFile {
	files := slices.Clone(r.Files)
	slices.SortStableFunc(files, func(a, b *accuracy.SweepFile) int { return cmp.Compare(a.FileBytes, b.FileBytes) })
	return files
}

// sweepTable has the figures of the files on text i.
func sweepTable(files []*accuracy.SweepFile, i int, title string) *table {
	t := &table{
		title: title, heads: []string{"", "recipe", "bytes>", "bits/weight>", "mean KL>", "perplexity>", "ratio to float>", "same likeliest token>", "quantized in>", "measured in>", "gate"},
		note: "An asterisk marks files that no other file beats: none is smaller and no worse, or better and no larger, by bytes and mean KL" + firstText(files) + ".",
	}
	for _, f := range files {
		mark, gate := "", ""
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
		t.add(append(row, seconds(f.QuantizeSeconds), seconds(f.MeasureSeconds), gate)...)
	}
	return t
}

// firstText names the text whose divergences decide; "" if there is only one.
func firstText(files []*accuracy.SweepFile) string {
	if len(files[0].Texts) < 2 {
		return ""
	}
	return " on " + text(files[0].Texts[0].Text.Label())
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// sweepFailures lists the conditions that are not met; nil if all are.
func sweepFailures(files []*accuracy.SweepFile) *table {
	t := &table{title: "Conditions that are not met", heads: []string{"recipe", "condition"}}
	for _, f := range files {
		if f.Gate == nil {
			continue
		}
		for i, failure := range f.Gate.Failures {
			if i == listed {
				t.add(text(f.Name), fmt.Sprintf("and %d more", len(f.Gate.Failures)-i))
				break
			}
			t.add(text(f.Name), text(failure.String()))
		}
	}
	if t.rows == nil {
		return nil
	}
	return t
}

// sweepCSV writes a line for each file and text, in the order of the recipes.
func sweepCSV(w io.Writer, r *accuracy.SweepReport) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"recipe", "text", "file", "file_bytes", "bits_per_weight", "mean_kl", "mean_kl_std_err", "perplexity", "perplexity_std_err",
		"float_perplexity", "perplexity_ratio", "perplexity_ratio_std_err", "same_top1", "quantize_seconds", "measure_seconds", "gate", "pareto"})
	for _, f := range r.Files {
		gate := ""
		if f.Gate != nil {
			gate = map[bool]string{true: "met", false: "not met"}[f.Gate.Passed]
		}
		for _, t := range f.Texts {
			_ = c.Write(slices.Concat([]string{f.Name, t.Text.Label(), f.File, strconv.FormatInt(f.FileBytes, 10), number(f.BitsPerWeight)}, csvFigures(t.Model),
				[]string{number(f.QuantizeSeconds), number(f.MeasureSeconds), gate, strconv.FormatBool(f.Pareto)}))
		}
	}
	c.Flush() // which keeps the first error
	return c.Error()
}

// csvFigures are the columns of a comparison, which are empty if the model was not run.
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

// errorNumber is "" for the error of a single window, which is not known.
func errorNumber(e eval.StdErr) string {
	if !e.Known() {
		return ""
	}
	return number(float64(e))
}
