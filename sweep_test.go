package gq_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// sweepOptions are the options of a short sweep of two files.
func sweepOptions(dir string, l *listener) gq.SweepOptions {
	return gq.SweepOptions{
		Recipes: gq.CrossRecipes(quantizer.Recipe{CalibrateTokens: 200}, []int{3, 4}, nil, []gqf.Algorithm{gqf.AlgorithmGPTQ}),
		Output:  dir,
		Measure: gq.MeasureOptions{Texts: []gq.TextFile{{Path: "testdata/text/lighthouse.txt"}}, Windows: text.Options{MaxTokens: 200}, Progress: l},
	}
}

// TestSweepResumes interrupts a sweep in each stage of its second file. The next one goes on from
// there, and gives the files and figures of a sweep that is not interrupted.
func TestSweepResumes(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 2)
	whole := filepath.Join(t.TempDir(), "whole")
	want, err := gq.Sweep(t.Context(), model, sweepOptions(whole, &listener{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"calibrating", "quantizing", "comparing"} {
		dir := filepath.Join(t.TempDir(), "sweep")
		ctx, cancel := context.WithCancel(t.Context())
		l := &listener{}
		second := false
		l.done = func(at string, _ int64) {
			second = second || slices.ContainsFunc(l.lines, func(s string) bool { return strings.HasPrefix(s, "recipe 2 of 2") })
			if second && (at == stage || at == "scoring" && stage == "comparing") {
				cancel()
			}
		}
		_, err := gq.Sweep(ctx, model, sweepOptions(dir, l))
		cancel()
		resume, ok := errors.AsType[*gq.ResumeError](err)
		if !ok || !errors.Is(err, context.Canceled) || !strings.Contains(resume.Hints[0], filepath.Join(dir, "sweep.work")) {
			t.Fatalf("%s: %v", stage, err)
		}
		l = &listener{}
		got, err := gq.Sweep(t.Context(), model, sweepOptions(dir, l))
		if err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
		if !got.Files[0].Found || got.Files[1].Found {
			t.Errorf("%s: the first file was found: %v, the second one: %v", stage, got.Files[0].Found, got.Files[1].Found)
		}
		for _, line := range l.lines {
			if strings.HasPrefix(line, "the float model runs") {
				t.Errorf("%s: the float model's predictions were made again", stage)
			}
		}
		for i, f := range got.Files {
			kl, _ := f.KL()
			wantKL, _ := want.Files[i].KL()
			if f.SHA256 != want.Files[i].SHA256 || kl != wantKL {
				t.Errorf("%s: %s has SHA-256 %s and KL %v, want %s and %v", stage, f.Name, f.SHA256, kl, want.Files[i].SHA256, wantKL)
			}
		}
	}
}

// TestSweepLocked holds the working directory while a second sweep of the same output begins.
func TestSweepLocked(t *testing.T) {
	model := testmodels.Books(t, 2)
	dir := filepath.Join(t.TempDir(), "sweep")
	l := &listener{}
	var second error
	l.done = func(string, int64) {
		if second == nil {
			_, second = gq.Sweep(t.Context(), model, sweepOptions(dir, &listener{}))
		}
	}
	if _, err := gq.Sweep(t.Context(), model, sweepOptions(dir, l)); err != nil {
		t.Fatal(err)
	}
	if second == nil || !strings.Contains(second.Error(), "is working in this directory") {
		t.Errorf("the second sweep: %v", second)
	}
}

// TestCrossRecipes checks names, and which recipes calibrate.
func TestCrossRecipes(t *testing.T) {
	list := gq.CrossRecipes(quantizer.Recipe{Calibrate: "text.txt"}, []int{3}, []int{64, quantizer.PerChannel}, []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmGPTQFT})
	var got []string
	for _, r := range list {
		got = append(got, r.Name+" "+r.Recipe.Calibrate)
	}
	want := []string{"3bit-g64-search ", "3bit-g64-gptq-ft text.txt", "3bit-channel-search ", "3bit-channel-gptq-ft text.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if list := gq.CrossRecipes(quantizer.Recipe{}, nil, nil, []gqf.Algorithm{gqf.AlgorithmAWQ}); len(list) != 1 || list[0].Name != "awq" || list[0].Recipe.Calibrate != quantizer.Self {
		t.Errorf("%+v", list)
	}
}

// TestSweepMissing removes a file of a finished sweep without -o's record, and one whose record is
// of other content: both are made again.
func TestSweepMissing(t *testing.T) {
	model := testmodels.Books(t, 2)
	dir := filepath.Join(t.TempDir(), "sweep")
	sweep := func() *accuracy.SweepReport {
		t.Helper()
		r, err := gq.Sweep(t.Context(), model, sweepOptions(dir, &listener{}))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := sweep()
	if err := os.WriteFile(first.Files[0].File, []byte("another file"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.Files[1].File); err != nil {
		t.Fatal(err)
	}
	for i, f := range sweep().Files {
		if f.Found || f.SHA256 != first.Files[i].SHA256 {
			t.Errorf("%s: found %v, SHA-256 %s, want %s", f.Name, f.Found, f.SHA256, first.Files[i].SHA256)
		}
	}
	for _, f := range sweep().Files {
		if !f.Found {
			t.Errorf("%s was made again", f.Name)
		}
	}
}
