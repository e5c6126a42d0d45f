package gq

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/model/generate"
	"github.com/lowbit-go/gq/quantizer"
)

// TestAdapters quantizes with an adapter in all ways, which have to give the same bytes, and
// compares the file with the merged model and with others.
func TestAdapters(t *testing.T) {
	testshared.SlowEmulated(t, "runs natively")
	t.Parallel()
	adapter, dir := testmodels.Adapter(t, books), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	recipe := quantizer.Recipe{Lora: []string{adapter}}
	// Rows are merged as they are read.
	if _, err := Quantize(t.Context(), books, path("a.gqf"), QuantizeOptions{Recipe: recipe, SaveRecipe: path("recipe.yaml"), Threads: 1}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path("a.gqf"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(name string) {
		t.Helper()
		if b, err := os.ReadFile(path(name)); err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s has other bytes, %v", name, err)
		}
		if _, err := os.Stat(path(name) + importSuffix); err == nil {
			t.Errorf("%s is left", name+importSuffix)
		}
	}
	// A job that measures reads a merged copy.
	r, err := Quantize(t.Context(), books, path("b.gqf"), QuantizeOptions{Recipe: recipe, Measure: &MeasureOptions{Gate: "default", Texts: []TextFile{{Path: story}}}})
	if err != nil || r.Accuracy == nil || !r.Accuracy.Gate.Passed {
		t.Fatalf("the gate: %v", err)
	}
	same("b.gqf")
	b, err := os.ReadFile(path("recipe.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := quantizer.ParseRecipe("recipe.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Quantize(t.Context(), books, path("c.gqf"), QuantizeOptions{Recipe: saved}); err != nil {
		t.Fatal(err)
	}
	same("c.gqf")
	var plan string
	for i := range 2 {
		p := PartOptions{}
		p.Index, p.Of = i, 2
		part, err := QuantizePart(t.Context(), books, path("d.gqf"), p, QuantizeOptions{Recipe: recipe})
		if err != nil {
			t.Fatal(err)
		}
		plan = part.Plan
	}
	if _, err := Merge(t.Context(), path("d.gqf"), MergeOptions{Plan: plan}); err != nil {
		t.Fatal(err)
	}
	same("d.gqf")

	f, err := gqf.Open(path("a.gqf"), gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := f.Asset(gqf.ProvenanceName)
	if err != nil {
		t.Fatal(err)
	}
	made, err := provenance.Parse(raw)
	if err != nil || len(made.Adapters) != 1 || made.Adapters[0].Name != "adapter" || len(made.Adapters[0].SHA256) != 64 || made.Adapters[0].Scale != 1 {
		t.Errorf("the file records the adapters %+v, %v", made.Adapters, err)
	}
	if bytes.Contains(raw, []byte(dir)) {
		t.Error("the file records a path")
	}

	if _, err := Quantize(t.Context(), books, path("plain.gqf"), QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file string
		lora []string
		want string // of the error; "": none
	}{
		{"a.gqf", []string{adapter}, ""},
		{"plain.gqf", nil, ""},
		{"a.gqf", nil, "names no adapter, and "},
		{"a.gqf", []string{adapter + "=0.5"}, "name the same adapters"},
		{"plain.gqf", []string{adapter}, "was made with no adapter"},
	} {
		r, err := Measure(t.Context(), books, path(tt.file), MeasureOptions{Lora: tt.lora, Texts: []TextFile{{Path: story}}})
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s with %v: %v, want %q", tt.file, tt.lora, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with %v: %v", tt.file, tt.lora, err)
		} else if kl := r.Scored()[0].Model.KL.Mean; !(kl < 0.2) {
			t.Errorf("%s with %v: a mean KL divergence of %v", tt.file, tt.lora, kl)
		}
	}
	// gq diff compares with the merged checkpoint.
	worst := func(lora ...string) float64 {
		t.Helper()
		d, err := Diff(t.Context(), books, path("a.gqf"), DiffOptions{Lora: lora})
		if err != nil || len(d.Tensors) == 0 {
			t.Fatal(len(d.Tensors), err)
		}
		least := math.Inf(1)
		for _, x := range d.Tensors {
			if x.SQNR != nil {
				least = min(least, float64(*x.SQNR))
			}
		}
		return least
	}
	if with, without := worst(adapter), worst(); !(with > 15 && without < with-3) {
		t.Errorf("diff: SQNR of at least %g dB, and without the adapter %g", with, without)
	}
	if _, err := Diff(t.Context(), books, path("plain.gqf"), DiffOptions{Lora: []string{adapter}}); err == nil || !strings.Contains(err.Error(), "was made with no adapter") {
		t.Errorf("diff of another file: %v", err)
	}
	// All of it unquantized runs as the merged checkpoint does.
	if _, err := Quantize(t.Context(), books, path("float.gqf"), QuantizeOptions{Recipe: quantizer.Recipe{Lora: []string{adapter}, AllowUnquantized: true}, Rules: []quantizer.Rule{rule(t, "*=skip")}}); err != nil {
		t.Fatal(err)
	}
	run := func(model string, lora ...string) string {
		t.Helper()
		o := RunOptions{Options: generate.Options{Prompt: "The sea", MaxTokens: 16}, Lora: lora}
		o.Sampling.Temperature = 0
		r, err := Run(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		return r.Text
	}
	merged := run(books, adapter)
	if file, base := run(path("float.gqf")), run(books); merged != file || merged == base {
		t.Errorf("the merged checkpoint continues %q, its file %q, the checkpoint %q", merged, file, base)
	}
	for name, err := range map[string]error{
		"a file": func() error {
			_, err := Run(t.Context(), path("a.gqf"), RunOptions{Lora: []string{adapter}})
			return err
		}(),
		"a sweep of other files": func() error {
			s := &sweep{o: SweepOptions{Recipes: []SweepRecipe{{Name: "a", Recipe: recipe}, {Name: "b"}}}}
			return s.checkRecipes()
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "lora") {
			t.Errorf("an adapter with %s: %v", name, err)
		}
	}
}
