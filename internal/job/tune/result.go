package tune

import (
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// Result holds the numbers of the best step.
type Result struct {
	// Before and After are the mean KL divergence on held-out text, in nats per token, with weights
	// dequantized and activations in float32.
	Before, After float64
	// Step is the step that After was measured at; 0: none was better than the start.
	Step, Steps int

	tuned   *plan.Tuned
	entries []*workdir.Entry
}

// Tuned is the input for plan.Codes, valid until Close.
func (r *Result) Tuned() *plan.Tuned { return r.tuned }

// Close closes the files of tuned codes.
func (r *Result) Close() {
	for _, e := range r.entries {
		e.Close()
	}
}

func (j *job) result() *Result {
	s := &j.state
	r := &Result{Before: s.Before, After: s.After, Step: s.BestStep, Steps: j.layers.steps + j.Steps, entries: j.layers.entries}
	if j.layers.better {
		r.Before, r.Step = j.layers.before, r.Step+j.layers.steps
	}
	if r.Step == 0 {
		return r
	}
	for _, t := range j.all {
		copy(t.x, t.best)
		t.grad, t.m, t.v = nil, nil, nil
	}
	byName := map[string]*matrix{}
	for _, m := range j.matrices {
		m.refresh(0, m.Rows)
		byName[m.Name()] = m
	}
	r.tuned = &plan.Tuned{
		Rows: func(m plan.Matrix) plan.RowReader {
			if t := byName[m.Name()]; t != nil {
				return t
			}
			return nil
		},
		Vectors: j.vectors(),
		Tuning:  j.account(),
	}
	r.tuned.Tuning.Vectors = len(r.tuned.Vectors)
	return r
}

func (j *job) account() *provenance.Tuning {
	t := j.text
	floats, codes := j.rates()
	parameters := map[string]any{"step-tokens": StepTokens}
	if j.Steps > 0 {
		parameters["rate"] = floats
	}
	if j.Kind == quantizer.TuneCodes {
		parameters["codes-rate"] = codes
	}
	if Layered(j.Kind) {
		parameters["logits-rate"] = j.softRate
	}
	return &provenance.Tuning{
		Mode: string(j.Kind), Parameters: parameters,
		Source: t.Source, SHA256: t.SHA256, Tokens: t.Tokens(), Sequences: len(t.Sequences), HeldOut: text.CountScored(t.HeldOut), Seed: t.Seed,
		Steps: j.layers.steps + j.Steps, Step: j.layers.steps + j.state.BestStep,
	}
}
