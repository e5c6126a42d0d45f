package gq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// listener is a Progress that records all calls, and calls a function when units are done.
type listener struct {
	mu     sync.Mutex
	done   func(stage string, units int64) // in all; nil: nothing
	stages []gq.Stage
	lines  []string
}

func (l *listener) Stage(s gq.Stage) (add func(n int64), end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stages = append(l.stages, s)
	units := int64(0)
	return func(n int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if units += n; l.done != nil {
			l.done(s.Name, units)
		}
	}, func() {}
}

func (l *listener) Log(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// calibrated are the options of a short job with every kind of stored work: a text, a folded
// checkpoint, probes and layers. Bits are chosen for the attention of one layer, in groups of 64:
// planning every size of groups took a third of the time.
func calibrated() gq.QuantizeOptions {
	return gq.QuantizeOptions{
		Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self, CalibrateTokens: 100, Fold: quantizer.Fold{Rotate: true}, Rules: []quantizer.Rule{{Match: "re:.*(layers.1|mlp).*", Bits: 4, Group: new(64)}}},
		Budget: &gq.Budget{BitsPerWeight: 5.8, Groups: []int{64}, EmbeddingFixed: true},
	}
}

// quantize runs the job until stop returns true, or to the end if stop is nil.
func quantize(t *testing.T, model, dst string, l *listener, stop func(stage string, units int64) bool) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if stop != nil {
		l.done = func(stage string, units int64) {
			if stop(stage, units) {
				cancel()
			}
		}
	}
	o := calibrated()
	o.Progress = l
	_, err := gq.Quantize(ctx, model, dst, o)
	return err
}

// whole is the file of an uninterrupted job, from the first call of wholeJob.
var whole struct {
	sync.Mutex
	file []byte
}

// wholeJob returns the file of an uninterrupted job on two layers of the bundled model.
func wholeJob(t *testing.T, model string) []byte {
	t.Helper()
	whole.Lock()
	defer whole.Unlock()
	if whole.file == nil {
		whole.file = makeWhole(t, model)
	}
	return whole.file
}

func makeWhole(t *testing.T, model string) []byte {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "model.gqf")
	var l listener
	if err := quantize(t, model, dst, &l, nil); err != nil {
		t.Fatal(err)
	}
	// Two allocations are calibrated to compare them, and the better one's layers are found.
	stages := slices.CompactFunc(slices.Clone(l.stages), func(a, b gq.Stage) bool { return a.Name == b.Name })
	for i, s := range stages {
		if s.Number != i+1 || s.Count != 6 || s.Cost <= 0 || (s.Later > 0) != (i < 5) {
			t.Errorf("stage %d is %+v", i+1, s)
		}
	}
	if len(stages) != 6 || len(l.stages) != 8 {
		t.Errorf("%d stages, %d different ones", len(l.stages), len(stages))
	}
	checkGone(t, dst)
	return read(t, dst)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkGone checks that a finished job left no working directories.
func checkGone(t *testing.T, dst string) {
	t.Helper()
	for _, end := range []string{".calib", ".fold", ".plan.fold"} {
		if _, err := os.Lstat(dst + end); err == nil {
			t.Errorf("%s is still there", dst+end)
		}
	}
}

// TestResume interrupts a job in every stage, one after the other: each call reports the work it
// found, and the file equals the file of an uninterrupted job.
func TestResume(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	t.Parallel()
	model := testmodels.Books(t, 2)
	want := wholeJob(t, model)
	dst := filepath.Join(t.TempDir(), "model.gqf")
	for _, c := range []struct {
		stage   string
		units   int64
		resumed []string // beginnings of lines
	}{
		{"writing text", 30, nil},
		{"writing text", 70, []string{"resumed: "}},
		{"folding", 1, []string{"resumed: "}},
		{"probing tensors", 12, []string{"resumed: found the text"}},
		{"calibrating", 150_000, []string{"resumed: found the text", "resumed: found the folded checkpoint"}},
		{"quantizing", 1, []string{"resumed: found the text", "resumed: found the folded checkpoint", "resumed: "}},
	} {
		var l listener
		err := quantize(t, model, dst, &l, func(stage string, units int64) bool { return stage == c.stage && units >= c.units })
		resume, ok := errors.AsType[*gq.ResumeError](err)
		if !errors.Is(err, context.Canceled) || !ok {
			t.Fatalf("%s: %v", c.stage, err)
		}
		if hint := resume.Hints[0]; !strings.Contains(hint, dst+".calib") || strings.Contains(hint, dst+".fold") != (c.stage != "writing text" && c.stage != "folding") {
			t.Errorf("%s: the hint is %q", c.stage, hint)
		}
		for i, begin := range c.resumed {
			if i >= len(l.lines) || !strings.HasPrefix(l.lines[i], begin) {
				t.Errorf("%s: %q does not say %q", c.stage, l.lines, begin)
			}
		}
		if c.resumed == nil && len(l.lines) > 0 {
			t.Errorf("%s: a new job says %q", c.stage, l.lines)
		}
	}
	var l listener
	if err := quantize(t, model, dst, &l, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, dst), want) {
		t.Error("the file is another one")
	}
	if lines := strings.Join(l.lines, "\n"); !strings.Contains(lines, " layers in ") || !strings.Contains(lines, "the choice of bits in ") {
		t.Errorf("the last call says %q", l.lines)
	}
	if slices.ContainsFunc(l.stages, func(s gq.Stage) bool { return s.Name == "writing text" || s.Name == "folding" }) {
		t.Errorf("finished stages were done again: %+v", l.stages)
	}
	checkGone(t, dst)
}

// TestDamagedJob interrupts a job at its end and damages each of its stored files: the final file
// is the same.
func TestDamagedJob(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	t.Parallel()
	model := testmodels.Books(t, 2)
	want := wholeJob(t, model)
	dst := filepath.Join(t.TempDir(), "model.gqf")
	last := func(stage string, units int64) bool { return stage == "quantizing" }
	if err := quantize(t, model, dst, &listener{}, last); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	dir := filepath.Dir(dst)
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 13 {
		t.Fatalf("the job keeps only %q (%v)", files, err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	number := regexp.MustCompile(`\d+`)
	kinds := map[string]bool{}
	for _, name := range files {
		// One file of each kind: layer-0.work and layer-1.work are of the same.
		if kind := number.ReplaceAllString(name, "N"); kinds[kind] {
			continue
		} else {
			kinds[kind] = true
		}
		again := t.TempDir()
		copyTree(t, dir, again, files)
		b := read(t, filepath.Join(again, name))
		i := r.IntN(len(b))
		b[i] ^= 1 << r.IntN(8)
		if err := os.WriteFile(filepath.Join(again, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(again, "model.gqf")
		if err := quantize(t, model, dst, &listener{}, nil); err != nil {
			t.Errorf("byte %d of %s damaged: %v", i, name, err)
		} else if !bytes.Equal(read(t, dst), want) {
			t.Errorf("byte %d of %s damaged: the file is another one", i, name)
		}
	}
}

// copyTree copies files with their times, which keys depend on.
func copyTree(t *testing.T, from, to string, files []string) {
	t.Helper()
	for _, name := range files {
		st, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, read(t, filepath.Join(from, name)), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwoJobs starts a second job for the same output, by another name.
func TestTwoJobs(t *testing.T) {
	model := testmodels.Books(t, 2)
	dir := t.TempDir()
	for _, end := range []string{".calib", ".fold"} {
		d, err := workdir.Open(filepath.Join(dir, "model.gqf"+end))
		if err != nil {
			t.Fatal(err)
		}
		err = quantize(t, model, filepath.Join(dir, "..", filepath.Base(dir), "model.gqf"), &listener{}, nil)
		if _, ok := errors.AsType[*workdir.LockedError](err); !ok || !strings.Contains(err.Error(), "model.gqf"+end) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("%s is locked: %v", end, err)
		}
		if _, err := d.Close(); err != nil {
			t.Error(err)
		}
		checkGone(t, filepath.Join(dir, "model.gqf"))
	}
}

// TestPlanKeeps plans a job while there is work of an interrupted one, and checks that the work is
// still there.
func TestPlanKeeps(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 2)
	dst := filepath.Join(t.TempDir(), "model.gqf")
	if err := quantize(t, model, dst, &listener{}, func(stage string, _ int64) bool { return stage == "probing tensors" }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o := calibrated()
	o.Budget = nil
	if _, err := gq.Plan(t.Context(), model, dst, o); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dst + ".plan.fold"); err == nil {
		t.Error("the plan leaves a folded checkpoint")
	}
	var l listener
	if err := quantize(t, model, dst, &l, nil); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Join(l.lines, "\n"); !strings.Contains(lines, "the text") || !strings.Contains(lines, "the folded checkpoint") {
		t.Errorf("the job behind the plan says %q", l.lines)
	}
}

// TestResumeFoldChoice interrupts a job behind its choice of a fold: the next one finds the choice.
func TestResumeFoldChoice(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	t.Parallel()
	model, dst := testmodels.Books(t, 1), filepath.Join(t.TempDir(), "model.gqf")
	run := func(stop string) (*listener, *gq.QuantizeReport, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var l listener
		l.done = func(stage string, _ int64) {
			if stage == stop {
				cancel()
			}
		}
		r, err := gq.Quantize(ctx, model, dst, gq.QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Auto: true}}, Progress: &l})
		for i, s := range l.stages {
			if s.Number < 1 || s.Count != 4 || i > 0 && s.Number <= l.stages[i-1].Number {
				t.Errorf("stage %d is %+v", i+1, s)
			}
		}
		return &l, r, err
	}
	if _, _, err := run("quantizing"); err == nil {
		t.Fatal("the job was not interrupted")
	}
	l, r, err := run("")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(l.lines, func(s string) bool { return strings.HasPrefix(s, "resumed: found the choice of the fold") }) ||
		slices.ContainsFunc(l.stages, func(s gq.Stage) bool { return s.Name == "choosing the fold" }) {
		t.Errorf("the choice was made again: %v", l.lines)
	}
	if r.FoldChoice == nil || len(r.FoldChoice.Candidates) != 4 {
		t.Errorf("%+v", r.FoldChoice)
	}
	checkGone(t, dst)
}
