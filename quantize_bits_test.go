package gq_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/quantizer"
)

// TestPlannedChoice plans a job with a target before it begins, after it was interrupted behind its
// choice of bits, and with another target. A plan makes no choice, and shows the choice that the
// job has left.
func TestPlannedChoice(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 2)
	dir := t.TempDir()
	dst, text := filepath.Join(dir, "model.gqf"), filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("It was late, and nobody came to the old house by the river. ", 8)), 0o666); err != nil {
		t.Fatal(err)
	}
	options := func(bpw float64) gq.QuantizeOptions {
		return gq.QuantizeOptions{
			Recipe: quantizer.Recipe{Calibrate: text, Rules: []quantizer.Rule{{Match: "re:.*(layers.1|mlp).*", Bits: 4, Group: new(64)}}},
			Budget: &gq.Budget{BitsPerWeight: bpw},
		}
	}
	plan := func(bpw float64) *gq.PlanReport {
		t.Helper()
		var l listener
		o := options(bpw)
		o.Progress = &l
		r, err := gq.Plan(t.Context(), model, dst, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.stages) > 0 {
			t.Errorf("the plan has stages: %+v", l.stages)
		}
		return r
	}
	open := func(r *gq.PlanReport) {
		t.Helper()
		c := r.Choice
		if c == nil || r.Allocation != nil || r.OutputBytes != 0 {
			t.Fatalf("not a plan without a choice: %+v", r)
		}
		if len(c.Tensors) != 5 || c.MinBits != 2 || c.MaxBits != 8 || !slices.Equal(c.Groups, []int{32, 48, 64, 96, 128}) || c.Probes != 5 || c.Tokens != 1280 || c.Files != 0 {
			t.Errorf("%+v", c)
		}
		if c.LeastBitsPerWeight < 2 || c.LeastBitsPerWeight > 5 || c.MostBitsPerWeight < 5.5 || c.LeastOutputBytes >= c.MostOutputBytes {
			t.Errorf("limits %+v", c)
		}
		if e := r.Estimate; e == nil || e.Seconds <= 0 {
			t.Errorf("estimate %+v", e)
		}
	}
	open(plan(5.2))
	// Calibrated layers, and a file that is measured, take disk space.
	o := options(5.2)
	o.Recipe.Algorithm = gqf.AlgorithmGPTQ
	r, err := gq.Plan(t.Context(), model, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Recipe.CalibrateTokens = 700
	if short, err := gq.Plan(t.Context(), model, dst, o); err != nil || short.Choice.Tokens != 700 {
		t.Errorf("%+v, %v: want the tokens of calibration", short, err)
	}
	const layers = 2 * (3*128*384 + 2*128*128 + 2*64*128) // weights
	if most := layers*9/8 + r.Choice.MostOutputBytes; r.Estimate.DiskBytes < layers+r.Choice.LeastOutputBytes || r.Estimate.DiskBytes > most {
		t.Errorf("%d bytes of disk space", r.Estimate.DiskBytes)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o = options(5.2)
	o.Progress = &listener{done: func(stage string, _ int64) {
		if stage == "quantizing" {
			cancel()
		}
	}}
	if _, err := gq.Quantize(ctx, model, dst, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	found := plan(5.2)
	if found.Choice != nil || found.Allocation == nil {
		t.Fatalf("the plan does not have the job's choice: %+v", found)
	}
	open(plan(5.3))

	var l listener
	o.Progress = &l
	job, err := gq.Quantize(t.Context(), model, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Join(l.lines, "\n"); !strings.Contains(lines, "resumed: found the choice of bits in "+dst+".calib") ||
		slices.ContainsFunc(l.stages, func(s gq.Stage) bool { return s.Name == "probing tensors" }) {
		t.Errorf("the choice was made again: %q, %+v", l.lines, l.stages)
	}
	whole, err := gq.Quantize(t.Context(), model, filepath.Join(dir, "whole.gqf"), options(5.2))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*gq.Allocation{found.Allocation, job.Allocation} {
		if w := whole.Allocation; !reflect.DeepEqual(a.Rows, w.Rows) || a.Summary() != w.Summary() || a.Source != w.Source || !reflect.DeepEqual(a.KL, w.KL) || len(a.Evaluations) != len(w.Evaluations) {
			t.Errorf("a resumed choice: %s\nan undisturbed one: %s", a.Summary(), w.Summary())
		}
	}
	if string(read(t, dst)) != string(read(t, filepath.Join(dir, "whole.gqf"))) {
		t.Error("the resumed job made another file")
	}
}

// TestReachableTargets plans for targets from the least that 1 bit takes to more than 8 bits take.
// There is no target between that is refused, and targets of bits and of bytes choose from the same
// options.
func TestReachableTargets(t *testing.T) {
	t.Parallel()
	model := testmodels.Books(t, 1)
	plan := func(b gq.Budget) (*gq.PlanReport, error) {
		return gq.Plan(t.Context(), model, filepath.Join(t.TempDir(), "model.gqf"), gq.QuantizeOptions{Budget: &b})
	}
	choice := func(b gq.Budget) (*gq.PlannedChoice, []string) {
		t.Helper()
		r, err := plan(b)
		if err != nil {
			t.Fatalf("%+v: %v", b, err)
		}
		return r.Choice, r.Warnings
	}
	two, _ := choice(gq.Budget{BitsPerWeight: 5})
	one, _ := choice(gq.Budget{BitsPerWeight: two.LeastBitsPerWeight - .1})
	weights := 8 * float64(two.LeastOutputBytes-one.LeastOutputBytes) / (two.LeastBitsPerWeight - one.LeastBitsPerWeight)
	for _, tt := range []struct {
		bits float64
		from int // bits of the narrowest option
		much bool
	}{
		{one.LeastBitsPerWeight, 1, false},
		{2.49, 1, false},
		{2.51, 1, false},
		{two.LeastBitsPerWeight, 1, false},
		{two.LeastBitsPerWeight * 1.09, 1, false},
		{two.LeastBitsPerWeight * 1.11, 2, false},
		{two.MostBitsPerWeight, 2, false},
		{two.MostBitsPerWeight + .1, 2, true},
	} {
		size := one.LeastOutputBytes + int64((tt.bits-one.LeastBitsPerWeight)*weights/8+.5)
		for _, b := range []gq.Budget{{BitsPerWeight: tt.bits}, {FileBytes: size}} {
			c, warnings := choice(b)
			much := slices.ContainsFunc(warnings, func(s string) bool { return strings.Contains(s, "more than the widest options take") })
			if c.MinBits != tt.from || much != tt.much {
				t.Errorf("%+v: options from %d bits, not from %d; warnings %q", b, c.MinBits, tt.from, warnings)
			}
		}
	}
	for _, b := range []gq.Budget{{BitsPerWeight: one.LeastBitsPerWeight - .001}, {FileBytes: one.LeastOutputBytes - 1}} {
		if _, err := plan(b); err == nil || !strings.Contains(err.Error(), "ask for that") {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// stopped is a Progress that stops the job behind a number of measured files.
type stopped struct {
	listener
	measured []string
	stop     func(measured int)
}

func (s *stopped) Log(line string) {
	if strings.Contains(line, " bits per weight: KL ") {
		s.measured = append(s.measured, line)
		s.stop(len(s.measured))
	}
}

// TestMeasuredOnce: a job that goes on measures no file again that it has measured.
func TestMeasuredOnce(t *testing.T) {
	t.Parallel()
	model, dst := testmodels.Books(t, 1), filepath.Join(t.TempDir(), "model.gqf")
	rules := []quantizer.Rule{{Match: "re:.*mlp.*", Bits: 4, Group: new(64)}}
	var made [][]string
	for _, most := range []int{1, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &stopped{stop: func(n int) {
			if n == most {
				cancel()
			}
		}}
		_, err := gq.Quantize(ctx, model, dst, gq.QuantizeOptions{Rules: rules, Budget: &gq.Budget{MaxKL: .05, Groups: []int{64}}, Progress: s})
		if (most > 0) != errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		made = append(made, s.measured)
	}
	if len(made[1]) == 0 || slices.ContainsFunc(made[1], func(line string) bool { return slices.Contains(made[0], line) }) {
		t.Errorf("measured %q, then %q", made[0], made[1])
	}
}
