package gq

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/inspect"
	"github.com/lowbit-go/gq/quantizer"
)

// TestWrongOptions: a job that was asked for wrongly leaves no work behind.
func TestWrongOptions(t *testing.T) {
	for want, list := range map[bool][]error{true: {optionf("x", "y"), &quantizer.RequestError{}}, false: {nil, errors.New("disk full")}} {
		for _, err := range list {
			if got := wrongOptions(err); got != want {
				t.Errorf("%v: %v", err, got)
			}
		}
	}
}

// TestMeasurePaths refuses reports at the path of a file that the measurement reads.
func TestMeasurePaths(t *testing.T) {
	text := TextFile{Path: "in.txt"}
	for want, o := range map[string]MeasureOptions{
		"the text": {Texts: []TextFile{text}}, "the token ids": {Texts: []TextFile{{Path: "in.txt", Tokens: true}}},
		"the questions": {Choices: []ChoiceFile{{Path: "in.txt"}}}, "the gate": {Gate: "in.txt"},
		"the earlier report": {Against: "in.txt"}, "the baseline": {Baseline: "in.txt"}, "the reference logits": {Reference: "in.txt"},
	} {
		o.Reports = []string{"in.txt"}
		var s files.Set
		o.addPaths(&s)
		if err := collisions(&s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestNeedsEarlier: a gate that compares with an earlier report is refused before any work.
func TestNeedsEarlier(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "worse.yaml")
	if err := os.WriteFile(gate, []byte("version: 1\nmodel: {mean_kl: {worse: 1}}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Measure(t.Context(), "none", "none.gqf", MeasureOptions{Gate: gate})
	if e, ok := errors.AsType[*OptionError](err); !ok || !strings.Contains(e.Error(), "compares with an earlier report: name one") {
		t.Errorf("%v", err)
	}
}

// TestWithoutData: no rule of a candidate for the fold calibrates.
func TestWithoutData(t *testing.T) {
	r := withoutData(quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Rules: []quantizer.Rule{{Algorithm: gqf.AlgorithmAWQ}, {Algorithm: gqf.AlgorithmRTN}}})
	if r.Algorithm != gqf.AlgorithmSearch || r.Rules[0].Algorithm != gqf.AlgorithmSearch || r.Rules[1].Algorithm != gqf.AlgorithmRTN {
		t.Errorf("%+v", r)
	}
}

// TestSweepNames: names that a file system may not tell apart are refused.
func TestSweepNames(t *testing.T) {
	s := &sweep{o: SweepOptions{Recipes: []SweepRecipe{{Name: "a"}, {Name: "A", Recipe: quantizer.Recipe{Bits: 3}}}}}
	if err := s.checkRecipes(); err == nil || !strings.Contains(err.Error(), "names two recipes A") {
		t.Errorf("%v", err)
	}
}

// TestExportSplit refuses shards of a size below 0.
func TestExportSplit(t *testing.T) {
	_, err := (&ExportOptions{Split: -1}).conversion()
	if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "split" {
		t.Errorf("%v", err)
	}
}

// TestServedScheme: of dtypes with as many weights the first by name describes the model.
func TestServedScheme(t *testing.T) {
	in := &Inspection{Checkpoint: &inspect.Checkpoint{Dtypes: []inspect.CheckpointDtype{{Dtype: "F32", Elements: 5}, {Dtype: "BF16", Elements: 5}, {Dtype: "F16", Elements: 4}}}}
	for range 50 { // in any order of a map
		if got := scheme(in); got != "BF16" {
			t.Fatal(got)
		}
	}
}

// TestFingerprint: a checkpoint with a changed file has another fingerprint.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	before, err := fingerprint(t.Context(), readable{path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := fingerprint(t.Context(), readable{path: dir}); err != nil || again != before {
		t.Errorf("%s %v, before %s", again, err, before)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "model.safetensors"), later, later); err != nil {
		t.Fatal(err)
	}
	if after, err := fingerprint(t.Context(), readable{path: dir}); err != nil || after == before {
		t.Errorf("%s %v", after, err)
	}
}

// TestVerifyFirstRow finds a weight that is no number in the first row of a GGUF file's tensor.
func TestVerifyFirstRow(t *testing.T) {
	l, err := gguf.NewLayout(nil, []gguf.TensorInfo{{Name: "a", Dims: []int64{32, 2}, Type: gguf.F32}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := append(l.Shards[0].Header, make([]byte, l.Shards[0].Size-int64(len(l.Shards[0].Header)))...)
	copy(b[l.Places[0].Offset+4:], "\xff\xff\xff\xff")
	file := filepath.Join(t.TempDir(), "a.gguf")
	if err := os.WriteFile(file, b, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := VerifyGGUF(t.Context(), file, VerifyOptions{Threads: 1})
	if err != nil || len(r.NotFinite) != 1 || !strings.Contains(r.NotFinite[0], `tensor "a": row 0 `) {
		t.Errorf("%+v %v", r, err)
	}
}
