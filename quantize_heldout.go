package gq

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
)

// heldOut measures the file at path. If the model cannot be run, it adds a warning to the report.
func (r *run) heldOut(j *job, s *subject, path string, to *QuantizeReport) error {
	defer memlimit.Raise(view{j, s}.privateMemory())()
	h, err := r.measureHeldOut(j, path)
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if err != nil {
		to.Warnings = append(to.Warnings, fmt.Sprintf("the KL divergence on held-out text was not measured: %v", err))
		return nil
	}
	to.HeldOut = h
	return nil
}

func (r *run) measureHeldOut(j *job, path string) (*HeldOut, error) {
	windows, source, err := r.heldOutWindows(j)
	if err != nil {
		return nil, err
	}
	_, end := r.begin(stageHeldOut, "", 0)
	defer end()
	kl, err := newDivergences(r.ctx, j.source.plan.SourceDir(), windows, j.o.Threads)
	if err != nil {
		return nil, err
	}
	defer kl.close()
	h := &HeldOut{Tokens: text.CountScored(windows), Source: source}
	of, err := kl.of(path, forward.Int8)
	h.KL = of.Mean
	return h, err
}

// divergences measure files by the predictions of a checkpoint's model.
type divergences struct {
	ctx       context.Context
	threads   int
	reference *eval.Reference
	close     func()
}

// newDivergences runs the model of a checkpoint on the windows. close must be called.
func newDivergences(ctx context.Context, checkpoint string, windows []text.Window, threads int) (*divergences, error) {
	float, err := forward.OpenCheckpoint(checkpoint, forward.Options{Threads: threads, Log: func(kernels.Choice) {}})
	if err != nil {
		return nil, err
	}
	d := &divergences{ctx: ctx, threads: threads, close: func() { float.Close() }}
	if d.reference, err = eval.NewReference(ctx, float, windows); err != nil {
		float.Close()
		return nil, err
	}
	return d, nil
}

// of runs the model in the file at path, .gqf or .gguf.
func (d *divergences) of(path string, a forward.Activations) (of eval.Divergences, err error) {
	err = withModel(d.ctx, path, d.threads, stages{}, func(file readable) error {
		f, err := file.open()
		if err != nil {
			return err
		}
		defer f.Close()
		f.CheckSums()
		m, err := forward.OpenGQF(f, forward.Options{Threads: d.threads, Activations: a, Log: func(kernels.Choice) {}})
		if err != nil {
			return err
		}
		defer m.Close()
		of, err = d.reference.Divergences(d.ctx, m)
		return err
	})
	return of, err
}

// heldOutWindows returns text that neither calibration nor the choice of bits sees: the rest of the
// file after their text, or text that the model writes.
func (r *run) heldOutWindows(j *job) ([]text.Window, string, error) {
	p, tokens := j.source.plan, cmp.Or(j.calibration.own, j.seenTokens())
	tok, err := tokenizer.Open(p.SourceDir())
	if err != nil {
		return nil, "", err
	}
	if name := named(j.o.Recipe.Calibrate); name != "" {
		t, err := r.fileText(p, tok, name, tokens+j.heldOutTokens())
		if err != nil {
			return nil, "", err
		}
		if rest := t.After(tokens); text.CountScored(rest) >= heldOutLeast/2 {
			return rest, t.Source, nil
		}
	}
	t, err := r.selfText(j, p, tok, j.heldOutText())
	if err != nil {
		return nil, "", err
	}
	return text.WindowsOf(t.Sequences), t.Source, nil
}
