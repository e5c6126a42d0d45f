package measure

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

const bundled = "../../testdata/books1.3M-bf16"

// bundledFile makes a .gqf of the bundled model.
func bundledFile(t testing.TB, r quantizer.Recipe) string {
	path, _ := quantize(t, bundled, conversion.Options{Recipe: r})
	return path
}

func prose(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("../../testdata/text/lighthouse.txt")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withoutRun returns a report as JSON, without the parts that differ between machines.
func withoutRun(t testing.TB, r *accuracy.Report) string {
	c := *r
	c.Run, c.Parity = nil, nil
	b, err := json.MarshalIndent(&c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGateCoversFile: a job with a gate compares all tensors.
func TestGateCoversFile(t *testing.T) {
	for _, j := range []*Job{{Settings: accuracy.Settings{TensorsOnly: true}, DefaultGate: true}, {Gate: &accuracy.Gate{Name: "g.yaml", Unquantized: true}}} {
		j.Source, j.File, j.Match = bundled, "none.gqf", func(string) bool { return true }
		if _, err := j.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "a gate covers the whole file") {
			t.Errorf("%v", err)
		}
	}
}

func TestJob(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares the reports of gq accuracy on arm64 with those on amd64")
	file, baseline := bundledFile(t, quantizer.Recipe{}), bundledFile(t, quantizer.Recipe{Bits: 8})
	job := func(threads int) *accuracy.Report {
		j := &Job{
			Source: bundled, Settings: accuracy.Settings{Parity: true, ActivationShare: true, Threads: threads}, File: file, Name: "model.gqf", Baseline: baseline, DefaultGate: true,
			Texts: []*TextSource{{Name: "lighthouse.txt", Data: prose(t), Options: text.Options{MaxTokens: 1200}}},
		}
		r, err := j.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := job(3)
	checkSchema(t, r)
	if !testing.Short() && withoutRun(t, r) != withoutRun(t, job(1)) {
		t.Error("the report depends on the number of threads")
	}
	switch {
	case r.Text.Window != 256 || r.Text.Tokens != 1200 || r.Text.Context != 256:
		t.Errorf("text: %+v", r.Text)
	case r.Model.KL.Mean <= r.Baseline.KL.Mean || r.Baseline.KL.Mean <= 0:
		t.Errorf("4 bits diverge by %g, 8 bits by %g", r.Model.KL.Mean, r.Baseline.KL.Mean)
	case !r.Gate.Passed || len(r.Gate.Conditions) != 6:
		t.Errorf("gate: %+v", r.Gate)
	case r.Model.Worst[0].Text == "" || !strings.Contains(string(prose(t)), r.Model.Worst[0].Context):
		t.Errorf("worst token: %+v", r.Model.Worst[0])
	case r.Totals.Bits != 4:
		t.Errorf("totals: %+v", r.Totals)
	}
	for _, s := range r.Tensors {
		if !s.Unquantized && (s.Output == nil || s.Output.Source != "calibration" || s.Output.Inputs != calibrationRows) {
			t.Errorf("%s: outputs %+v (%s)", s.Name, s.Output, s.NoOutput)
		}
	}
	// Written and read again, it is the same report.
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	again, err := accuracy.ReadReport(path)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := json.Marshal(again); err != nil || string(c) != string(b) {
		t.Errorf("a report that was written reads otherwise (%v)", err)
	}
}

// TestJobTokens checks that a text and its token ids give the same figures.
func TestJobTokens(t *testing.T) {
	testshared.SlowEmulated(t, "CI compares the reports of gq accuracy on arm64 with those on amd64")
	file := bundledFile(t, quantizer.Recipe{Bits: 3})
	source := &TextSource{Name: "text", Data: prose(t)[:1500], Options: text.Options{Window: 64}}
	run := func(source *TextSource) *accuracy.Report {
		r, err := (&Job{Settings: accuracy.Settings{NoOutputs: true, Activations: forward.Float32}, Source: bundled, File: file, Texts: []*TextSource{source}}).Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := run(source)
	f := openFile(t, file)
	tok, err := (&Job{Source: bundled, Texts: []*TextSource{source}}).openTokenizer(f)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := text.Cut(t.Context(), tok, tok.VocabSize(), text.Input{Data: source.Data}, source.Options)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for _, w := range cut.Windows {
		ids = append(ids, w.Tokens[1:]...) // without BOS
	}
	b, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(&TextSource{Name: "ids", Data: b, Tokens: true, Options: source.Options}); !reflect.DeepEqual(got.Model, a.Model) {
		t.Error("ids give other figures than their text")
	}
	_, err = (&Job{Source: bundled, File: file, Texts: []*TextSource{{Name: "ids", Data: []byte("1 2 1024"), Tokens: true}}}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "ids: token 2 is 1024: the vocabulary has 1024") {
		t.Errorf("an id beyond the vocabulary: %v", err)
	}
}

// TestJobWithoutModel uses a checkpoint whose model cannot be run: tensors are compared, and a gate
// that limits the model is not met.
func TestJobWithoutModel(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{})
	for _, source := range []string{filepath.Join(bundled, "model.safetensors"), refusedModel(t)} {
		j := &Job{Settings: accuracy.Settings{NoOutputs: true}, Source: source, File: file, Texts: []*TextSource{{Name: "text", Data: prose(t)}}, DefaultGate: true}
		r, err := j.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if r.NoModel == "" || r.Text != nil || r.Model != nil || len(r.Tensors) == 0 {
			t.Errorf("%s: %q, text %v", source, r.NoModel, r.Text)
		}
		if r.Gate.Passed || len(r.Gate.Failures) != 1 || !strings.HasPrefix(r.Gate.Failures[0].String(), "mean_kl: was not measured: ") {
			t.Errorf("%s: gate %+v", source, r.Gate.Failures)
		}
	}
}

// refusedModel makes a copy of the bundled model with an unknown architecture.
func refusedModel(t *testing.T) string {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(bundled)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), `"llama"`, `"lama"`)), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestJobPreflight(t *testing.T) {
	file := bundledFile(t, quantizer.Recipe{})
	for _, c := range []struct{ gate, want string }{
		{"tensors: [{match: '*.nosuch', sqnr_db: {min: 1}}]", `tensors[0].match: no quantized tensor matches "*.nosuch"`},
		{"tensors: [{match: '*norm*', sqnr_db: {min: 1}}]", `no quantized tensor matches "*norm*"`},
		{"model: {mean_kl: {worse: 1}}", "compares with an earlier report, and none was given"},
		{"tensors: [{bits: 7, sqnr_db: {min: 1}}]", "no condition is for a tensor of this file"},
	} {
		g, err := accuracy.ParseGate("g.yaml", []byte("version: 1\n"+c.gate))
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&Job{Settings: accuracy.Settings{NoOutputs: true}, Source: bundled, File: file, Gate: g}).Run(context.Background())
		var ge *accuracy.GateError
		if !errors.As(err, &ge) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.gate, err, c.want)
		}
	}
}

// TestCalibrationShares checks that linear layers with the same input share its sample.
func TestCalibrationShares(t *testing.T) {
	m, err := forward.OpenCheckpoint(bundled, forward.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	windows := []text.Window{{Tokens: []int32{1, 5, 6, 7, 8}, First: 1}, {Tokens: make([]int32, 200), First: 1}}
	inputs, err := calibrate(context.Background(), m, windows)
	if err != nil {
		t.Fatal(err)
	}
	const layer = "model.layers.2."
	q, n := inputs(layer + "self_attn.q_proj.weight")
	v, _ := inputs(layer + "self_attn.v_proj.weight")
	o, _ := inputs(layer + "self_attn.o_proj.weight")
	if n != calibrationRows || len(q) != n*128 || &q[0] != &v[0] || &q[0] == &o[0] {
		t.Errorf("%d rows, %d values; q and v share: %v", n, len(q), &q[0] == &v[0])
	}
	for _, name := range m.Linears() {
		if x, n := inputs(name); n != calibrationRows || len(x) != n*m.Linear(name).Cols() {
			t.Errorf("%s: %d rows, %d values", name, n, len(x))
		}
	}
	if x, n := inputs("nosuch"); x != nil || n != 0 {
		t.Error("activations of a tensor that is none")
	}
}
