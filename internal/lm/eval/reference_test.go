package eval

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

const fixture = "../../../testdata/books1.3M-bf16"

func openFixture(t *testing.T) *forward.Model {
	t.Helper()
	m, err := forward.OpenCheckpoint(fixture, forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// quantizedFixture returns the model of a file with 3 bits.
func quantizedFixture(t *testing.T) *forward.Model {
	t.Helper()
	ck, err := safetensors.Open(fixture, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: quantizer.Recipe{Bits: 3}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.gqf")
	if _, err := plan.Write(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := forward.OpenGQF(f, forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestReference compares a Reference, with and without stored predictions, with Compare.
func TestReference(t *testing.T) {
	quantized, float := quantizedFixture(t), openFixture(t)
	windows := []text.Window{{Tokens: []int32{1, 300, 301, 17, 900, 5}, First: 1}, {Tokens: []int32{1, 44, 45, 46, 47, 48, 49}, First: 3}}
	want, err := Compare(t.Context(), float, []*forward.Model{quantized}, windows, CompareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReference(t.Context(), float, windows)
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int{ReferenceBytes, 0} {
		if err := r.store(t.Context(), bytes); err != nil || (r.stored != nil) != (bytes > 0) {
			t.Fatalf("%d bytes to keep: %v, %v", bytes, r.stored != nil, err)
		}
		for range 2 {
			got, err := r.KL(t.Context(), quantized)
			if err != nil || math.Abs(got-want[0].KL.Mean) > 1e-12*got {
				t.Errorf("%d bytes to keep: KL %g, %v; Compare has %g", bytes, got, err, want[0].KL.Mean)
			}
		}
		mean := want[0].KL
		if d, err := r.Divergences(t.Context(), quantized); err != nil || math.Abs(d.Bound-mean.Mean-1.645*float64(mean.StdErr)) > 1e-9*d.Bound {
			t.Errorf("%d bytes to keep: bound %g, %v; Compare has %g with a standard error of %g", bytes, d.Bound, err, mean.Mean, mean.StdErr)
		}
		if got, err := r.KL(t.Context(), float); err != nil || got != 0 {
			t.Errorf("%d bytes to keep: the float model differs from itself by %g, %v", bytes, got, err)
		}
	}
}

// TestBoundOfOneWindow: the standard error of a single cluster is unknown, so there is no margin.
func TestBoundOfOneWindow(t *testing.T) {
	r, err := NewReference(t.Context(), openFixture(t), []text.Window{{Tokens: []int32{1, 300, 301, 17}, First: 1}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Divergences(t.Context(), quantizedFixture(t))
	if err != nil || d.Mean <= 0 || d.Bound != d.Mean {
		t.Errorf("KL %g, bound %g, %v", d.Mean, d.Bound, err)
	}
}

// TestLess compares divergences token by token: a small difference is clear only if it is about the
// same everywhere.
func TestLess(t *testing.T) {
	r := &Reference{}
	for i := range int32(12) {
		r.windows = append(r.windows, text.Window{Tokens: []int32{1, 2 * i, 2*i + 1}, First: 1})
	}
	steady, varied, mixed := make([]float64, 24), make([]float64, 24), make([]float64, 24)
	for i := range mixed {
		mixed[i] = .05 * float64(1+i%5)
		steady[i] = mixed[i] - .01
		varied[i] = steady[i] + .2*float64(i/2%4/2) - .1
	}
	for _, c := range []struct {
		a, b []float64
		less bool
	}{{steady, mixed, true}, {mixed, steady, false}, {varied, mixed, false}, {mixed, mixed, false}} {
		less, difference, stdErr := r.Less(c.a, c.b)
		if less != c.less {
			t.Errorf("difference %g, standard error %g: less is %v", difference, float64(stdErr), less)
		}
	}
	r.windows = r.windows[:1]
	if less, _, stdErr := r.Less(steady[:2], mixed[:2]); less || stdErr.Known() {
		t.Errorf("one window: less is %v, standard error %g", less, float64(stdErr))
	}
}

// TestReferenceFrom replaces linear layers one by one in any order: KLFrom and KL agree.
func TestReferenceFrom(t *testing.T) {
	float, changed := openFixture(t), openFixture(t)
	windows := []text.Window{{Tokens: []int32{1, 300, 301, 17, 900, 5}, First: 1}, {Tokens: []int32{1, 44, 45, 46, 47, 48, 49}, First: 3}}
	r, err := NewReference(t.Context(), float, windows)
	if err != nil {
		t.Fatal(err)
	}
	layers := len(float.Config().Layers)
	for _, layer := range []int{0, 2, 2, layers - 1, 1, layers} {
		name := changed.Head()
		if layer < layers {
			name = changed.Stages(layer)[1][0].Linears[0]
		}
		old := changed.Linear(name)
		half, err := kernels.NewRows(old.Rows(), old.Cols(), func(dst []float32, i int) {
			for k := range dst {
				dst[k] = float32(i%7-3) / 64
			}
		}, nil, kernels.Options{})
		if err != nil {
			t.Fatal(err)
		}
		undo, err := changed.SetLinear(name, half, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.KLFrom(t.Context(), changed, layer, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.KL(t.Context(), changed)
		if err != nil || got != want || got == 0 {
			t.Errorf("layer %d: KL %g, all of the model %g, %v", layer, got, want, err)
		}
		undo()
	}
	if got, err := r.KLFrom(t.Context(), changed, 0, nil); err != nil || got != 0 {
		t.Errorf("all undone: KL %g, %v", got, err)
	}
}

// TestReferenceChange replaces a linear layer of two decoder layers and the lm_head while they run:
// the divergence is the same as with all of them replaced.
func TestReferenceChange(t *testing.T) {
	float, changed := openFixture(t), openFixture(t)
	windows := []text.Window{{Tokens: []int32{1, 300, 301, 17, 900, 5}, First: 1}, {Tokens: []int32{1, 44, 45, 46, 47, 48, 49}, First: 3}}
	r, err := NewReference(t.Context(), float, windows)
	if err != nil {
		t.Fatal(err)
	}
	layers := len(float.Config().Layers)
	replace := func(layer int) (undo func(), err error) {
		name := changed.Head()
		if layer < layers {
			name = changed.Stages(layer)[1][0].Linears[0]
		}
		old := changed.Linear(name).(kernels.RowReader)
		rough, err := kernels.NewRows(old.Rows(), old.Cols(), func(dst []float32, i int) {
			old.ReadRow(dst, i)
			for k := range dst {
				dst[k] *= float32(k%3+8) / 9
			}
		}, nil, kernels.Options{})
		if err != nil {
			return func() {}, err
		}
		return changed.SetLinear(name, rough, false)
	}
	var seen []int
	now := 0 // replacements
	got, err := r.KLFrom(t.Context(), changed, 1, func(layer int) (undo func(), err error) {
		if now != 0 {
			t.Errorf("layer %d runs with another layer changed", layer)
		}
		seen = append(seen, layer)
		if layer == 2 {
			return func() {}, nil
		}
		now++
		back, err := replace(layer)
		return func() { now--; back() }, err
	})
	if err != nil || now != 0 {
		t.Fatalf("%v, and %d layers are still changed", err, now)
	}
	for layer := 1; layer <= layers; layer++ {
		if !slices.Contains(seen, layer) {
			t.Errorf("layer %d of %v was not offered", layer, seen)
		}
		if layer != 2 {
			if _, err := replace(layer); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := r.KL(t.Context(), changed)
	if err != nil || got != want || got == 0 {
		t.Errorf("KL %g, with all replaced at once %g, %v", got, want, err)
	}
	failed := errors.New("failed")
	if _, err := r.KLFrom(t.Context(), changed, 3, func(layer int) (func(), error) { now++; return func() { now-- }, failed }); !errors.Is(err, failed) || now != 0 {
		t.Errorf("a change that fails: %v, %d layers are changed", err, now)
	}
}
