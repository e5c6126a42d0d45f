package tune

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// ids makes sequences of arbitrary tokens, the same in each call.
func ids(t testing.TB, vocab int, lengths ...int) *Text {
	t.Helper()
	d, err := NewText(testplan.Text(vocab, lengths...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// file writes the result of a job and returns its checksum.
func file(t testing.TB, p *fromcheckpoint.Plan, r *Result) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gqf")
	c := &plan.Codes{Tuned: r.Tuned()}
	if _, err := p.WriteWith(context.Background(), path, write.Options{Codes: c}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestRun tunes two layers of a trained model and holds the file to a checksum: the same on every
// CPU, for any number of threads, and after an interruption.
func TestRun(t *testing.T) {
	p := testplan.New(t, testmodels.Books(t, 2), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	words := ids(t, 512, 100, 100, 200, 160, 160)
	t.Run("short text", func(t *testing.T) { // codes train all that the others train
		r, err := Run(context.Background(), p, nil, ids(t, 512, 100, 100, 56), Options{Kind: quantizer.TuneCodes, Steps: 3, codesRate: .1})
		if err != nil {
			t.Fatal(err)
		}
		if got := file(t, p, r); got != goldenShort {
			t.Errorf("the file has the checksum %s", got)
		}
	})
	if testing.Short() && runtime.GOARCH == "arm64" {
		return // under emulation
	}
	for kind, want := range golden {
		run := func(o Options) (*Result, error) {
			o.Kind, o.Steps, o.codesRate = kind, 3, .1 // so that codes move in three steps
			return Run(context.Background(), p, nil, words, o)
		}
		r, err := run(Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Step == 0 || !(r.After < r.Before) {
			t.Errorf("%s: KL %g, then %g at step %d of %d", kind, r.Before, r.After, r.Step, r.Steps)
		}
		if got := file(t, p, r); got != want {
			t.Errorf("%s: the file has the checksum %s", kind, got)
		}
		if kind != quantizer.TuneCodes {
			continue
		}
		work, err := workdir.Open(filepath.Join(t.TempDir(), "work"))
		if err != nil {
			t.Fatal(err)
		}
		// Progress comes before the measurement after a step. Layers are trained before.
		at := Work(p, Options{Kind: kind, Steps: 3}, words, 2) - 2
		ctx, cancel := context.WithCancel(context.Background())
		done := 0
		_, err = Run(ctx, p, nil, words, Options{Kind: kind, Steps: 3, codesRate: .1, Threads: 3, Work: work, Progress: func(n int64) {
			if done += int(n); done == at {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled job: %v", err)
		}
		resumed := 0
		r, err = run(Options{Threads: 2, Work: work, Resumed: func(steps, of int) { resumed = steps }})
		if err != nil {
			t.Fatal(err)
		}
		if got := file(t, p, r); got != want || resumed != 2*LayerSteps(words.TrainTokens())+2 {
			t.Errorf("resumed at step %d: the file has the checksum %s", resumed, got)
		}
		if _, err := work.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWorseSteps has steps of the whole model that lose what its layers gained: the result has the
// layers' codes.
func TestWorseSteps(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the bits")
	p := testplan.New(t, testmodels.Books(t, 2), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	r, err := Run(context.Background(), p, nil, ids(t, 512, 100, 100, 200, 160, 160), Options{Kind: quantizer.TuneCodes, Steps: 2, codesRate: 1e3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Step != r.Steps-2 {
		t.Fatalf("step %d of %d is the best, want the one before the whole model's", r.Step, r.Steps)
	}
	for _, m := range p.Matrices() {
		rows := r.Tuned().Rows(m)
		if rows == nil {
			continue
		}
		row := rounding.NewCodes(m.Scheme.Shape(1, m.Cols)).Row(0)
		if err := rows.ReadRow(0, row); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(row.Codes, func(c int8) bool { return c != row.Codes[0] }) {
			t.Errorf("%s: all codes of a row are %d, its scales %v", m.Name(), row.Codes[0], row.Scales)
		}
	}
}

// TestCuts has rates that ruin the model: the job goes back to its best step, divides the rates and
// gains, also after an interruption behind the division.
func TestCuts(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the bits")
	p := testplan.New(t, testmodels.Books(t, 2), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	words := ids(t, 512, slices.Repeat([]int{200}, 10)...)
	o := Options{Kind: quantizer.TuneCodes, Steps: 9, codesRate: .25}
	cuts, start, from := 0, 0., 0.
	o.Evaluated = func(e Evaluation) {
		if e.Step == 0 {
			start, from = e.KL, e.KL
		} else if e.KL > worse*from {
			cuts++
			from = e.Best
		}
	}
	r, err := Run(context.Background(), p, nil, words, o)
	if err != nil {
		t.Fatal(err)
	}
	if cuts == 0 || r.After > .95*start {
		t.Errorf("KL %g, then %g, with %d cuts", start, r.After, cuts)
	}
	want := file(t, p, r)

	if o.Work, err = workdir.Open(filepath.Join(t.TempDir(), "work")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cuts = 0
	o.Progress = func(int64) {
		if cuts > 0 {
			cancel()
		}
	}
	if _, err := Run(ctx, p, nil, words, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled job: %v", err)
	}
	resumed := 0
	o.Progress, o.Resumed = nil, func(steps, of int) { resumed = steps }
	if r, err = Run(context.Background(), p, nil, words, o); err != nil {
		t.Fatal(err)
	}
	if got := file(t, p, r); got != want || resumed == 0 {
		t.Errorf("resumed at step %d: the file has the checksum %s, want %s", resumed, got, want)
	}
	if _, err := o.Work.Close(); err != nil {
		t.Fatal(err)
	}
}

const goldenShort = "ccffd43001c405fa9d4c2f2887b80858a0900f682bb2ec1ea1ce323154128840"

var golden = map[quantizer.Tune]string{
	quantizer.TuneNorms:  "b58fe2af694d361db42836d7fdaa9b1d1414bbdd1d4f5438deb895993ad66ca6",
	quantizer.TuneFloats: "078578a6e33da7cc874ae9c9cfadbdf45a9a334286a9f896c82b36d0a5799ee6",
	quantizer.TuneCodes:  "3d4db9ddc5f1db681cff1b5eec688de77c420e5ed7a6aadec7b9ef6117245a72",
}

// TestArchitectures tunes random models, their layers first: a mixture of experts, norms that
// multiply by 1 + gain, norms behind attention, biases, tied embeddings, layers with states.
func TestArchitectures(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the bits")
	for _, name := range []string{"mixtral", "gemma2", "qwen2", "lfm2", "qwen3-next"} {
		dir := t.TempDir()
		v := testmodels.Find(t, name).Narrow()
		v.Write(t, dir)
		p := testplan.New(t, dir, quantizer.Recipe{Bits: 2})
		kept := 0
		o := Options{Kind: quantizer.TuneCodes, Steps: 2, Trained: func(l TrainedLayer) {
			if l.Kept {
				kept++
			}
		}}
		r, err := Run(context.Background(), p, nil, ids(t, testmodels.Vocab, 100, 100, 100), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if kept == 0 || !(r.After < r.Before) {
			t.Errorf("%s: %d layers kept; KL %g, then %g at step %d of %d", name, kept, r.Before, r.After, r.Step, r.Steps)
		}
	}
}

// TestText divides texts.
func TestText(t *testing.T) {
	short := &text.Text{Sequences: [][]int32{make([]int32, 255)}}
	if _, err := NewText(short); err == nil || !strings.Contains(err.Error(), "at least 256 are needed") {
		t.Errorf("a short text: %v", err)
	}
	single := &text.Text{Sequences: make([][]int32, 400)}
	for i := range single.Sequences {
		single.Sequences[i] = []int32{1}
	}
	if _, err := NewText(single); err == nil {
		t.Error("sequences of one token can be tuned on")
	}
	d := ids(t, 512, 800, 400, 400)
	if n := d.TrainTokens(); n != 1400 || text.CountScored(d.HeldOut) != 200 {
		t.Errorf("%d tokens to train on, %d held out", n, text.CountScored(d.HeldOut))
	}
}

// TestForSize is the rule of the preset max, which documents state.
func TestForSize(t *testing.T) {
	for n, want := range map[int64]quantizer.Tune{1e6: quantizer.TuneCodes, 128e6: quantizer.TuneCodes, 1e9: quantizer.TuneBlocks, 8e9: quantizer.TuneNorms} {
		if got := ForSize(n); got != want {
			t.Errorf("%d weights: %s, want %s", n, got, want)
		}
	}
}
