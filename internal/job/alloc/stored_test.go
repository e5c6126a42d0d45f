package alloc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestGoesOn ends a job in the middle. The next job makes only the missing measurements and chooses
// the same options.
func TestGoesOn(t *testing.T) {
	testshared.SlowEmulated(t, "resumption is the same natively")
	const dir = "../../../internal/lm/forward/testdata/torch/llama3"
	open := func() Job {
		j := openJob(t, dir, 2)
		j.Options.Recipe.Mapping = gqf.MappingFullRange // no search for fractional zero points
		return j
	}
	p := probe(t, open())
	want := half(t, p).Rows
	groups := p.job.groupsOf(p.Decisions)
	probes := len(groups)
	three := p.job.errorSteps(p.Decisions)
	for _, g := range groups[:3] {
		three += p.job.probeSteps(g)
	}
	j := open()
	work, err := workdir.Open(filepath.Join(t.TempDir(), "work"))
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	resumed := ""
	j.Work, j.Resumed = work, func(probes, of int) { resumed = fmt.Sprintf("%d of %d", probes, of) }
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	j.Progress = func(n int) {
		if steps += n; steps > three { // of the fourth probe
			cancel()
		}
	}
	if _, err := j.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a job that was cancelled: %v", err)
	}

	started := 0
	steps, j.Start, j.Progress = 0, func(n int) { started = n }, func(n int) { steps += n }
	p = probe(t, j)
	if p.Measured != probes-3 {
		t.Errorf("%d measurements of %d, 3 of which were known", p.Measured, probes)
	}
	if steps != started {
		t.Errorf("%d steps of %d", steps, started)
	}
	j.Start, j.Progress = nil, nil
	if want := fmt.Sprintf("3 of %d", probes); resumed != want {
		t.Errorf("resumed: %q, not %q", resumed, want)
	}
	if got := half(t, p).Rows; !slices.Equal(got, want) {
		t.Errorf("a job that went on chose %+v, not %+v", got, want)
	}
	if p := probe(t, j); p.Measured != 0 {
		t.Errorf("%d measurements were made again", p.Measured)
	}
	for name, change := range map[string]func(*Job){
		"other text":      func(j *Job) { j.Reference = reference(t, dir, j.Reference.Sequences()[1:]) },
		"another mapping": func(j *Job) { j.Options.Recipe.Mapping = gqf.MappingAsymmetric },
	} {
		other := j
		change(&other)
		if p := probe(t, other); p.Measured != len(groups) {
			t.Errorf("%s: %d measurements for %d groups", name, p.Measured, len(groups))
		}
	}
	probe(t, j)
	file := filepath.Join(work.Path(), storedName+".work")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(raw); at += len(raw)/3 + 1 {
		b := bytes.Clone(raw)
		b[at] ^= 1 // one digit for another, for example
		if err := os.WriteFile(file, b, 0o666); err != nil {
			t.Fatal(err)
		}
		p := probe(t, j)
		if got := half(t, p).Rows; !slices.Equal(got, want) || p.Measured != probes {
			t.Errorf("with byte %d damaged: %d measurements, %+v, not %+v", at, p.Measured, got, want)
		}
	}
}
