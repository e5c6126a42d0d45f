package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// table is a table of a report, left out without rows. ">" ends the headings of columns of numbers.
type table struct {
	title string
	note  string // a sentence for readers of the table
	heads []string
	rows  [][]string
}

func withRows(tables ...*table) []*table {
	return slices.DeleteFunc(tables, func(t *table) bool { return len(t.rows) == 0 })
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func conditions(r *accuracy.Report) *table {
	if r.Gate == nil {
		return &table{}
	}
	t := &table{title: "Gate " + text(r.Gate.Gate), heads: []string{"of", "condition", "measured>", "at", "checked>", "failed>", "result"}}
	for i := range r.Gate.Conditions {
		c := &r.Gate.Conditions[i]
		result, worst := "met", figure(float64(c.Worst))
		switch {
		case c.Missing != "" && c.Checked == 0:
			result = "NOT MET: " + c.Missing
		case !c.Passed():
			result = "NOT MET"
		}
		if c.Kind == accuracy.Same || c.Checked == 0 {
			worst = "-"
		}
		if c.StdErr > 0 {
			worst = plusMinus(float64(c.Worst), eval.StdErr(c.StdErr))
		}
		if c.Note != "" {
			result += "; " + c.Note
		}
		t.add(text(c.Whose()), strings.TrimPrefix(c.String(), c.Whose()+": "), worst, text(c.Tensor), c.Checked, c.Failed, result)
	}
	return t
}

func byKind(r *accuracy.Report) *table {
	t := &table{
		title: "Tensors by kind", heads: []string{"kind", "tensors>", "bits>", "bits/weight>", "SQNR dB>", "worst>", "outputs' worst>", "worst tensor"},
		note: "SQNR of all weights of a kind as one, of its worst tensor's weights, and of the worst tensor's outputs.",
	}
	for _, k := range kindsOf(r) {
		out, name := "", k.worst.Label()
		if k.output != nil {
			out, name = decibels(k.output.Output.SQNR), k.output.Label()
		}
		t.add(text(k.name), k.totals.Tensors, k.bitsOf(), fmt.Sprintf("%.3f", k.totals.BPW), decibels(k.totals.SQNR), decibels(k.worst.SQNR), out, text(name))
	}
	return t
}

// tensors lists at most limit tensors (0: all).
func tensors(list []*accuracy.TensorStats, title string, limit int) *table {
	t := &table{
		title: title,
		heads: []string{"tensor", "layout", "bits>", "group>", "bits/weight>", "SQNR dB>", "cosine>", "largest error>", "saturated>", "lost groups>", "outputs dB>", "by weights>", "by int8>", "inputs", "activations"},
		note: "Outputs: the packed kernel against float32, and what of that the weights and the int8 activations cost. " +
			"Saturated: share of codes at an end of the range. Lost groups: those that became zeros.",
	}
	for i, s := range list {
		if limit > 0 && i == limit {
			break
		}
		group := strconv.Itoa(s.Group)
		if s.Group == 0 {
			group = "channel"
		}
		out := []any{"", "", "", text(s.NoOutput)}
		if o := s.Output; o != nil {
			out = []any{decibels(o.SQNR), decibels(o.WeightSQNR), decibels(o.ActivationSQNR), o.Source}
		}
		t.add(append([]any{
			text(s.Label()), strings.TrimSpace(s.Layout + " " + s.Tile), s.Bits, group, fmt.Sprintf("%.3f", s.BPW), decibels(s.SQNR), fmt.Sprintf("%.6f", s.Cosine),
			fmt.Sprintf("%.4g", s.MaxError), percent(s.Saturated), s.LostGroups,
		}, append(out, s.Activations)...)...)
	}
	return t
}

func unquantized(r *accuracy.Report) *table {
	t := &table{title: "Unquantized tensors that differ from the checkpoint", heads: []string{"tensor", "difference"}}
	for i := range r.Tensors {
		if s := &r.Tensors[i]; s.Unquantized && !s.Equal {
			t.add(text(s.Label()), text(s.Difference))
		}
	}
	return t
}

func parity(r *accuracy.Report) *table {
	t := &table{
		title: "Kernels against the portable reference", heads: []string{"layout", "bits>", "payloads>", "kernels", "result"},
		note: "Of payloads of the same sort, and of their panels, some are multiplied; the outputs have to be equal to the bit.",
	}
	type key struct {
		layout string
		bits   int
	}
	type group struct {
		payloads map[string]bool
		kernels  []string
		result   string
	}
	groups := map[key]*group{}
	var order []key
	for _, p := range r.Parity {
		k := key{strings.TrimSpace(p.Layout + " " + p.Tile), p.Bits}
		g := groups[k]
		if g == nil {
			g = &group{payloads: map[string]bool{}, result: "equal"}
			groups[k], order = g, append(order, k)
		}
		g.payloads[fmt.Sprint(p.Tensor, p.Slice, p.Variant)] = true
		name := p.Kernel
		if p.NoKernel != "" {
			why := strings.Split(p.NoKernel, ": ")
			name, g.result = "none", why[len(why)-1]
		}
		if !slices.Contains(g.kernels, name) {
			g.kernels = append(g.kernels, name)
		}
		if !p.Equal && !strings.HasPrefix(g.result, "DIFFERENT") {
			g.result = fmt.Sprintf("DIFFERENT: %s, %s: %s", p.Kernel, p.Tensor, p.FirstDifference)
		}
	}
	for _, k := range order {
		g := groups[k]
		t.add(k.layout, k.bits, len(g.payloads), text(strings.Join(g.kernels, ", ")), text(g.result))
	}
	return t
}

func parityLine(r *accuracy.Report) string {
	kernels, different := map[string]bool{}, 0
	for _, p := range r.Parity {
		if p.NoKernel == "" {
			kernels[p.Kernel] = true
		}
		if !p.Equal {
			different++
		}
	}
	if different > 0 {
		return fmt.Sprintf("DIFFERENT from the portable reference in %d of %d comparisons", different, len(r.Parity))
	}
	return fmt.Sprintf("%d kernels equal to the portable reference, bit for bit", len(kernels))
}

// executed says which activations ran. Earlier reports say which were asked for.
func executed(r *accuracy.Report) string { return cmp.Or(r.Executed, r.Activations+" activations") }

// headline describes the file and its source: names and values.
func headline(r *accuracy.Report) [][2]string {
	lines := [][2]string{
		{"file", fmt.Sprintf("%s, %s bytes", text(r.File), thousands(r.FileBytes))},
		{"source", text(r.Source)},
	}
	if r.Fold != "" {
		lines = append(lines, [2]string{"folded", text(r.Fold) + "; tensors are compared with the folded weights"})
	}
	if t := r.Totals; t.Tensors > 0 {
		lines = append(lines, [2]string{"tensors", fmt.Sprintf("%d quantized, %d unquantized, %.3f bits per quantized weight, %v over all", t.Tensors, t.Unquantized, t.BPW, t.SQNR)})
	}
	for _, t := range r.Scored() {
		lines = append(lines, [2]string{"text", fmt.Sprintf("%s: %s; %s", text(t.Text.Name), t.Text.Cut(), executed(r))})
		if ref := t.Text.Reference; ref != "" {
			lines = append(lines, [2]string{"logits", text(ref) + ", in place of the float model's"})
		}
		if t.Model != nil && t.Model.Clusters != nil {
			lines = append(lines, [2]string{"errors", "± standard errors over " + t.Model.Clusters.String()})
		}
	}
	for i := range r.Choices {
		c := &r.Choices[i]
		lines = append(lines, [2]string{"answers", fmt.Sprintf("%s: %s of the form %s; %s", text(c.Name), count(c.Model.Questions, "question"), c.Form, executed(r))})
	}
	if len(r.Parity) > 0 {
		lines = append(lines, [2]string{"kernels", parityLine(r)})
	}
	if r.NoModel != "" {
		lines = append(lines, [2]string{"no model", text(r.NoModel)})
	}
	if slices.ContainsFunc(r.Scored(), func(t *accuracy.TextReport) bool { return t.Text.Context > 0 && t.Text.Window > t.Text.Context }) {
		lines = append(lines, [2]string{"warning", fmt.Sprintf("windows are longer than the %d tokens that the model is made for", r.Text.Context)})
	}
	for _, note := range r.Notes {
		lines = append(lines, [2]string{"warning", text(note)})
	}
	if s := r.Unrecorded(); s != "" {
		lines = append(lines, [2]string{"warning", s})
	}
	changed := 0
	for i := range r.Tensors {
		if r.Tensors[i].SourceChanged && r.Tensors[i].Variant == 0 {
			changed++
		}
	}
	if changed > 0 {
		have := "have"
		if changed == 1 {
			have = "has"
		}
		lines = append(lines, [2]string{"warning", fmt.Sprintf("%s of the checkpoint %s other bytes than those that the file was made of", count(changed, "tensor"), have)})
	}
	return lines
}

func timing(r *accuracy.Report) string {
	if r.Run == nil {
		return ""
	}
	var parts []string
	for _, key := range []string{"calibration", "tensors", "parity", "remote_parity", "text", "choices"} {
		if s, ok := r.Run.Seconds[key]; ok {
			parts = append(parts, fmt.Sprintf("%s %.2f s", strings.ReplaceAll(key, "_", " "), s))
		}
	}
	s := strings.Join(parts, ", ")
	if r.Run.TokensPerSecond > 0 {
		s += fmt.Sprintf(", %.0f tokens/s", r.Run.TokensPerSecond)
	}
	if len(r.Run.Kernels) > 0 {
		s += "; " + strings.Join(r.Run.Kernels, ", ")
	}
	return s
}

func decibels(d accuracy.Decibels) string { return strings.TrimSuffix(d.String(), " dB") }

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

// figure formats a number with four significant digits, and without an exponent if that is short.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(v, 1):
		return "exact"
	case v == 0:
		return "0"
	case a >= 1e6 && a < 1e15 && v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 1e-4 && a < 1e6:
		return strconv.FormatFloat(v, 'f', max(0, 3-int(math.Floor(math.Log10(a)))), 64)
	}
	return strconv.FormatFloat(v, 'e', 2, 64)
}

// plusMinus formats a number and its standard error, with two digits of the error.
func plusMinus(v float64, stdErr eval.StdErr) string {
	e := float64(stdErr)
	if e <= 0 || math.Abs(v) >= 1e15 || e >= 1e15 {
		return figure(v)
	}
	digits := min(max(1-int(math.Floor(math.Log10(e))), 0), 9)
	return fmt.Sprintf("%.*f ± %.*f", digits, v, digits, e)
}

// percentError is plusMinus in percent.
func percentError(v float64, e eval.StdErr) string {
	if !e.Known() {
		return percent(v)
	}
	return fmt.Sprintf("%.2f ± %.2f %%", 100*v, 100*float64(e))
}

// count writes "1 tensor", "2 tensors".
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// text makes a string of a file printable by quoting strings with invisible characters.
func text(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// token shows a token as a quoted text, or as its number.
func token(id int32, s string) string {
	if s == "" {
		return "#" + strconv.Itoa(int(id))
	}
	return strconv.Quote(s)
}

// ending returns the last n characters of a text, quoted.
func ending(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return "…" + strconv.Quote(string(r[len(r)-n:]))
	}
	return strconv.Quote(s)
}
