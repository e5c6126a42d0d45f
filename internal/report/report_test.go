package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// hostile is a name with every character that a form of a report has to escape.
const hostile = "a<b>\"&|*_`[x](y)]]>\x1b\n.up_proj.weight"

// sample is a report with everything in it; n is the number of layers.
func sample(n int) *accuracy.Report {
	r := &accuracy.Report{
		Schema: accuracy.ReportSchema, File: "model.gqf", Source: "checkpoint", FileBytes: 1234567, Activations: "int8",
		TextReport: accuracy.TextReport{
			Text: &accuracy.TextInfo{Name: "text.txt", SHA256: strings.Repeat("ab", 32), Convention: "windows", Window: 512, Windows: 3, Tokens: 1000, Context: 256},
		},
		Run: &accuracy.Run{Version: "test", Threads: 1, Seconds: map[string]float64{"tensors": 0.5, "text": 2}, TokensPerSecond: 500, Kernels: []string{"k1"}},
		Parity: []accuracy.Parity{
			{Tensor: "t", Layout: "lowbit", Tile: "8x16x2", Bits: 4, Kernel: "k1", Equal: true}, {Tensor: "t", Layout: "lowbit", Tile: "8x16x2", Bits: 4, Kernel: "k2", Equal: true},
			{Tensor: "u", Layout: "codes", Bits: 4, NoKernel: "no kernel reads this", Equal: true},
			{Tensor: "t", Layout: "lowbit", Tile: "8x16x2", Bits: 4, Kernel: "k3", Equal: false, FirstDifference: "m 1: output 3"},
		},
	}
	for i := range n {
		for j, kind := range []string{"self_attn.q_proj", "mlp.down_proj"} {
			sqnr := accuracy.Decibels(20 + float64(i%7)/3 + float64(j))
			r.Tensors = append(r.Tensors, accuracy.TensorStats{
				Name: fmt.Sprintf("model.layers.%d.%s.weight", i, kind), Role: "projection", Slices: 1,
				TensorScheme: &accuracy.TensorScheme{Layout: "lowbit", Tile: "8x16x2", Bits: 4, Group: 32, Rows: 64, Cols: 128}, Bytes: 4710, BPW: 4.6, SQNR: sqnr, Cosine: 0.99, MaxError: 0.01, Saturated: 0.05, Signal: 100, Noise: 1,
				Errors: accuracy.ErrorHistogram{First: -10, Counts: []int64{100, 4000, 4000, 92}},
				Output: &accuracy.OutputStats{SQNR: sqnr - 1, Cosine: 0.99, WeightSQNR: sqnr, ActivationSQNR: 40, Source: "calibration", Inputs: 64, Outputs: 64},
			})
		}
	}
	r.Tensors = append(r.Tensors,
		accuracy.TensorStats{Name: hostile, Role: "projection", Slices: 1, TensorScheme: &accuracy.TensorScheme{Layout: "lowbit", Bits: 8, Rows: 8, Cols: 8}, SQNR: accuracy.Ratio(1, 0), Cosine: 1, NoOutput: "not asked for", Signal: 1, SourceChanged: true},
		accuracy.TensorStats{Name: "model.norm.weight", Role: "norm", Slices: 1, TensorScheme: &accuracy.TensorScheme{Layout: "plain"}, Unquantized: true, Difference: "from element 3 on", SQNR: 50},
	)
	for i := range r.Tensors {
		r.Tensors[i].SourceRecorded = true
	}
	r.Totals.SumUp(r.Tensors)
	kl := eval.Histogram{Edges: []float64{1e-3, 2e-3, 5e-3, 1e-2}, Counts: []int64{10, 500, 400, 80, 10}}
	c := eval.Comparison{
		Float: eval.Perplexity{Perplexity: 16.2, StdErr: 0.21, Tokens: 1000}, Quantized: eval.Perplexity{Perplexity: 16.9, StdErr: 0.23, Tokens: 1000},
		Ratio: 1.0432, RatioStdErr: 0.0021, KL: eval.Distribution{Mean: 0.0312, StdErr: 0.0004, P99: 0.2, Max: 1.5}, KLHistogram: kl, SameTop1: 0.861, SameTop1StdErr: 0.002, Top5Overlap: 0.88,
		Worst: []eval.WorstToken{{Window: 1, Position: 7, Token: 5, KL: 1.5, FloatP: 0.8, QuantizedP: 0.1, FloatTop: 5, QuantizedTop: 6, Context: "he said: <script>|", Text: " \"yes\"\n", FloatTopText: "x", QuantizedTopText: ""}},
	}
	r.Model, r.Baseline = &c, &accuracy.Baseline{File: "other.gqf", FileBytes: 99, Comparison: c}
	return r
}

// check holds the report to a gate.
func check(t *testing.T, r *accuracy.Report, gate string) {
	t.Helper()
	g, err := accuracy.ParseGate("ci/gate.yaml", []byte("version: 1\n"+gate))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Check(r, nil); err != nil {
		t.Fatal(err)
	}
}

const unmet = `model: {mean_kl: {max: 0.03}, same_top1: {min: 0.5}}
tensors: [{sqnr_db: {min: 21}}, {match: "*down_proj*", saturated: {max: 0.5}}]
parity: true
unquantized: true
`

func render(t *testing.T, extension string, r *accuracy.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, extension, r); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := Write(failWriter{full}, extension, r); !errors.Is(err, full) {
		t.Errorf("%s: error %v on a full disk", extension, err)
	}
	return b.String()
}

type failWriter struct{ err error }

func (w failWriter) Write([]byte) (int, error) { return 0, w.err }

// TestText checks that the first lines say which conditions are not met, by how much, and who is to
// blame.
func TestText(t *testing.T) {
	r := sample(3)
	check(t, r, unmet)
	want := `GATE NOT MET  ci/gate.yaml: 5 of 8 conditions are not met
  "a<b>\"&|*_` + "`" + `[x](y)]]>\x1b\n.up_proj.weight: source: has other bytes in the checkpoint than those that the file was made of"
  mean_kl 0.0312 nats (with 2 standard errors of 0.0004) is 0.002 above the limit 0.03
  model.layers.0.self_attn.q_proj.weight: sqnr_db 20 dB is 1 below the limit 21
  model.layers.1.self_attn.q_proj.weight: sqnr_db 20.3333 dB is 0.6667 below the limit 21
  model.layers.2.self_attn.q_proj.weight: sqnr_db 20.6667 dB is 0.3333 below the limit 21
  t: parity: kernel k3 gives other bits than the reference: m 1: output 3
  model.norm.weight: equal: is not that of the checkpoint: from element 3 on
  to blame, worst first:
    model.layers.0.self_attn.q_proj.weight (4 bits): outputs 19.00 dB
    model.layers.1.self_attn.q_proj.weight (4 bits): outputs 19.33 dB
    model.layers.2.self_attn.q_proj.weight (4 bits): outputs 19.67 dB
    model.layers.0.mlp.down_proj.weight (4 bits): outputs 20.00 dB
    model.layers.1.mlp.down_proj.weight (4 bits): outputs 20.33 dB

file      model.gqf, 1,234,567 bytes
source    checkpoint
`
	got := render(t, ".txt", r)
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s", got)
	}
	for _, want := range []string{
		"  perplexity                    16.20 ± 0.21       16.90 ± 0.23        16.90 ± 0.23\n", "\n  q_proj           3     4        4.600    ", `  "a<b>\"&|*_`,
		"windows are longer than the 256 tokens that the model is made for", "1 tensor of the checkpoint has other bytes", "DIFFERENT",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("an escape sequence goes to the terminal")
	}
	for line := range strings.Lines(got) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("blanks at the end of %q", line)
		}
	}
	r = sample(3)
	for i := range r.Tensors {
		r.Tensors[i].SourceChanged = false
	}
	check(t, r, "model: {mean_kl: {max: 0.01}}")
	for extension, want := range map[string]string{
		".txt": "\n  to try with gq quantize:\n    --quality good (codes calibrated on text that the model writes)\n    --rule model.layers.0.self_attn.q_proj=5 --rule",
		".md":  "\nTo try with `gq quantize`:\n\n- `--quality good`: codes calibrated on text that the model writes\n- `--rule model.layers.0.self_attn.q_proj=5",
		".xml": "\nto try with gq quantize:\n--quality good (", ".html": "To try with <code>gq quantize</code>:</p><ul><li><code class=\"flag\">--quality</code> <code>good</code> (codes calibrated",
	} {
		if got := render(t, extension, r); !strings.Contains(got, want) {
			t.Errorf("%s does not say what to try: no %q in\n%s", extension, want, got)
		}
	}
	check(t, r, "model: {mean_kl: {max: 1}}")
	if got := render(t, ".txt", r); !strings.HasPrefix(got, "GATE MET  ci/gate.yaml: 3 conditions, 10 figures\n\nfile ") {
		t.Errorf("got\n%s", got)
	}
	r.Model, r.Text = nil, nil
	check(t, r, "tensors: [{sqnr_db: {min: 10}}]")
	for extension, want := range map[string]string{".txt": "GATE MET  ci/gate.yaml: 2 conditions, 15 figures; the model was not run\n", ".md": "figures; the model was not run.", ".html": "figures; the model was not run.", ".xml": `<property name="model" value="not run">`} {
		if got := render(t, extension, r); !strings.Contains(got, want) {
			t.Errorf("%s does not say that the model was not run:\n%s", extension, got)
		}
	}
}

// TestTextColor holds that colours are the verdict's alone.
func TestTextColor(t *testing.T) {
	r := sample(3)
	for _, tt := range []struct{ gate, want string }{
		{unmet, "\x1b[1;31mGATE NOT MET\x1b[0m  ci/gate.yaml: "},
		{"model: {mean_kl: {max: 1}}", "\x1b[1;32mGATE MET\x1b[0m  ci/gate.yaml: "},
	} {
		for i := range r.Tensors {
			r.Tensors[i].SourceChanged = tt.gate == unmet
		}
		check(t, r, tt.gate)
		var plain, colored bytes.Buffer
		if err := errors.Join(Text(&plain, r, TextOptions{}), Text(&colored, r, TextOptions{Color: true})); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(colored.String(), tt.want) {
			t.Errorf("got %.60q, want %q first", colored.String(), tt.want)
		}
		stripped := strings.NewReplacer("\x1b[1;31m", "", "\x1b[1;32m", "", "\x1b[0m", "").Replace(colored.String())
		if stripped != plain.String() {
			t.Errorf("without colours\n%s\nwant\n%s", stripped, plain.String())
		}
	}
}

func TestTextIsShort(t *testing.T) {
	r := sample(40)
	check(t, r, "tensors: [{sqnr_db: {min: 30}}]")
	var short, long bytes.Buffer
	if err := errors.Join(Text(&short, r, TextOptions{}), Text(&long, r, TextOptions{Verbose: true})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(short.String(), "\n"); n > 70 || !strings.Contains(short.String(), "\n  and 71 more\n") {
		t.Errorf("%d lines:\n%s", n, short.String())
	}
	if n := strings.Count(long.String(), "\n"); n < 160 {
		t.Errorf("%d lines with everything", n)
	}
}

func TestMarkdown(t *testing.T) {
	r := sample(3)
	check(t, r, unmet)
	got := render(t, ".md", r)
	if !strings.HasPrefix(got, "## Accuracy of `model.gqf`\n\n**Gate `ci/gate.yaml`: NOT MET.** 5 of 8 conditions are not met:\n\n- \"a&lt;b") {
		t.Errorf("got\n%s", got)
	}
	columns := 0
	for line := range strings.Lines(got) {
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if columns != 0 && n != columns {
			t.Errorf("%d columns instead of %d: %s", n-1, columns-1, line)
		}
		columns = n
	}
	for _, bad := range []string{"<b>", "<script>", "\x1b"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in it", bad)
		}
	}
	if n := len(render(t, ".md", sample(2000))); n > 65536 {
		t.Errorf("%d bytes are too much for a comment", n)
	}
}

func TestJUnit(t *testing.T) {
	r := sample(3)
	check(t, r, unmet)
	var suites junitSuites
	if err := xml.Unmarshal([]byte(render(t, ".xml", r)), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 8 || suites.Failures != 5 || len(suites.Suites) != 1 || len(suites.Suites[0].Cases) != 8 {
		t.Fatalf("%+v", suites)
	}
	c := suites.Suites[0].Cases[2:] // behind source and text
	if c[0].Name != "model: mean_kl at most 0.03 nats" || c[0].Failure == nil || c[0].Failure.Message != "mean_kl 0.0312 nats (with 2 standard errors of 0.0004) is 0.002 above the limit 0.03" ||
		!strings.Contains(c[0].Failure.Text, "to blame, worst first:\nmodel.layers.0.self_attn.q_proj.weight (4 bits): outputs 19.00 dB\n") {
		t.Errorf("%+v %+v", c[0], c[0].Failure)
	}
	if c[1].Failure != nil || c[3].Failure != nil || c[2].Failure == nil || !strings.HasSuffix(c[2].Failure.Message, "below the limit 21 (and 2 more)") {
		t.Errorf("%+v", c)
	}
	r = sample(1)
	suites = junitSuites{}
	if err := xml.Unmarshal([]byte(render(t, ".xml", r)), &suites); err != nil || suites.Tests != 1 || suites.Failures != 0 {
		t.Errorf("without a gate: %+v, %v", suites, err)
	}
	// Names with characters that XML does not allow.
	check(t, r, `tensors: [{bits: 8, cosine: {min: 2}}]`)
	if err := xml.Unmarshal([]byte(render(t, ".xml", r)), &suites); err != nil {
		t.Error(err)
	}
}

// reference finds what a browser would load.
var reference = regexp.MustCompile(`(?i)(src|href|xlink:href)\s*=|url\(|@import|<script|<link|<iframe`)

func TestHTML(t *testing.T) {
	r := sample(3)
	check(t, r, unmet)
	got := render(t, ".html", r)
	if found := reference.FindString(got); found != "" {
		t.Errorf("the page is not complete in itself: %s", found)
	}
	for _, want := range []string{"Gate ci/gate.yaml is not met:", "SQNR of weights by layer", "SQNR of outputs by layer", "Errors of weights", "KL divergence of a token", "&lt;script&gt;"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(got, "<svg viewBox"); n != 4 || strings.Count(got, "</svg>") != n {
		t.Errorf("%d plots", n)
	}
	for _, bad := range []string{"NaN", "Inf", "e+"} {
		if svg := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindString(got); strings.Contains(svg, bad) {
			t.Errorf("a plot has %s", bad)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(got, -1) {
		if err := xml.Unmarshal([]byte(svg), new(any)); err != nil {
			t.Errorf("a plot is not well-formed: %v", err)
		}
	}
	if n := len(render(t, ".html", sample(3000))); n > 8<<20 {
		t.Errorf("%d bytes for 6,000 tensors", n)
	}
}

// TestLittle writes reports that have next to nothing in them.
func TestLittle(t *testing.T) {
	one := &accuracy.Report{File: "f", Tensors: sample(1).Tensors[:1]}
	exact := &accuracy.Report{File: "f", Tensors: sample(1).Tensors[2:3]}
	same := sample(2)
	same.Model.KL, same.Model.KLHistogram.Counts = eval.Distribution{}, []int64{1000, 0, 0, 0, 0}
	huge := sample(1)
	huge.Model.Quantized.Perplexity, huge.Model.Quantized.StdErr, huge.Model.KL.Mean = math.MaxFloat64, math.MaxFloat64, 1e300
	huge.Model.KLHistogram.Counts = []int64{0, 0, 0, 0, 5}
	for _, r := range []*accuracy.Report{{}, one, exact, same, huge} {
		for _, e := range Extensions() {
			render(t, e, r)
		}
	}
	if err := Write(&bytes.Buffer{}, ".pdf", one); err == nil {
		t.Error("a report as PDF")
	}
}

func TestJSON(t *testing.T) {
	r := sample(2)
	check(t, r, unmet)
	var got accuracy.Report
	if err := json.Unmarshal([]byte(render(t, ".json", r)), &got); err != nil {
		t.Fatal(err)
	}
	if !math.IsInf(float64(got.Tensors[4].SQNR), 1) || got.Gate.Passed || got.Model.Ratio != r.Model.Ratio {
		t.Errorf("%+v", got)
	}
}

func TestPlaceOf(t *testing.T) {
	for _, c := range []struct {
		name string
		want place
	}{
		{"model.layers.3.self_attn.q_proj.weight", place{"q_proj", 3}}, {"model.layers.11.mlp.experts.7.down_proj.weight", place{"down_proj", 11}},
		{"lm_head.weight", place{"lm_head", -1}}, {"weight", place{"weight", -1}}, {"linear_80.w_0", place{"w_0", -1}}, {"h.0.attn.c_attn.weight", place{"c_attn", 0}}, {"", place{"", -1}},
	} {
		if got := placeOf(c.name); got != c.want {
			t.Errorf("%q is %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0312: "0.03120", 16.2: "16.20", 123456: "123456", 1234567: "1234567", 0.00001: "1.00e-05", -0.5: "-0.5000", math.Inf(1): "exact", -1e-9: "-1.00e-09", 2.5e9: "2500000000", 2.5e6 + 0.5: "2.50e+06", 1e300: "1.00e+300",
	} {
		if got := figure(v); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
	for _, c := range []struct {
		v    float64
		e    eval.StdErr
		want string
	}{{16.2046, 0.21, "16.20 ± 0.21"}, {0.03528, 0.0004, "0.03528 ± 0.00040"}, {1, 0, "1.000"}, {1234, 56, "1234 ± 56"}, {0.5, 1e300, "0.5000"}, {0.5, eval.StdErr(math.Inf(1)), "0.5000"}} {
		if got := plusMinus(c.v, c.e); got != c.want {
			t.Errorf("%g ± %g is %s, want %s", c.v, c.e, got, c.want)
		}
	}
}

func TestMark(t *testing.T) {
	for _, c := range []struct {
		min, max float64
		n        int
		whole    bool
		want     string
	}{
		{0, 1, 8, false, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{-0.3, 0.25, 8, false, "-0.3 -0.2 -0.1 0.0 0.1 0.2"},
		{20.4, 23.7, 8, false, "20.5 21.0 21.5 22.0 22.5 23.0 23.5"},
		{-0.5, 0.5, 8, true, "0"},
		{-0.2, 31.9, 8, true, "0 5 10 15 20 25 30"},
		{0, 12345, 8, false, "0 2000 4000 6000 8000 10000 12000"},
		{5, 5, 8, false, ""},
	} {
		a := axis{min: c.min, max: c.max}
		a.mark(c.n, c.whole)
		var got []string
		for _, t := range a.ticks {
			got = append(got, t.text)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%g to %g: %q, want %q", c.min, c.max, got, c.want)
		}
	}
}
