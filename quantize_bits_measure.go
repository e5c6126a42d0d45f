package gq

import (
	"context"
	"slices"

	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/kernels"
)

// A chooser probes and measures allocations of a checkpoint.
type chooser struct {
	run           *run
	job           *job
	subject       *subject
	inputs        string // see choiceInputs
	float, probed *forward.Model
	reference     *eval.Reference
	text          string // the source of the text
	// of text that calibration does not see, see measure; nil: not yet computed
	unseen       *divergences
	activationKL *float64 // the part of int8 activations in the KL; nil: not yet measured
}

func (h *chooser) close() {
	for _, m := range []*forward.Model{h.float, h.probed} {
		if m != nil {
			m.Close()
		}
	}
}

// Checkpoints up to packedBytes are repacked in memory, in the order of their kernels.
const packedBytes = 1 << 29 // there are two copies

// open opens the model and the text and runs the float model on it.
func (h *chooser) open() (err error) {
	j, s, size := h.job, h.subject, int64(0)
	for _, t := range s.ck.Tensors() {
		size += t.Size
	}
	options := forward.Options{Threads: j.o.Threads, Packed: size <= packedBytes, Log: func(kernels.Choice) {}}
	if h.float, err = forward.OpenCheckpoint(s.ck.Dir(), options); err != nil {
		return err
	}
	// If calibration needs a text anyway, the probes use it: the model of the unfolded checkpoint
	// writes it, as long as calibration needs it.
	from, tokens := s.plan, j.choiceTokens()
	if j.calibration.onText {
		from, tokens = j.source.plan, j.calibration.tokens
	}
	own, err := h.run.text(j, from, tokens)
	if err != nil {
		return err
	}
	h.text = own.Source
	if h.reference, err = eval.NewReference(h.run.ctx, h.float, text.WindowsOf(own.First(j.choiceTokens()))); err != nil {
		return err
	}
	h.probed, err = forward.OpenCheckpoint(s.ck.Dir(), options)
	return err
}

func (h *chooser) probe() (*alloc.Sensitivities, error) {
	task := h.job.allocJob(h.subject, h.subject.bounds.minBits)
	task.Model, task.Reference, task.Work = h.probed, h.reference, h.run.work
	task.Resumed = func(probes, of int) { h.run.resumed(h.run.work, "%d of %d probes", probes, of) }
	add, end := func(int64) {}, func() {}
	task.Start = func(steps int) { add, end = h.run.begin(stageProbe, "steps", int64(steps)) }
	task.Progress = func(n int) { add(int64(n)) }
	defer func() { end() }()
	return task.Probe(h.run.ctx)
}

// measure measures an allocation on text that calibration does not see, if calibration has a text,
// else on the text that bits are chosen with. On its own text calibration fits the codes: other
// text has more divergence, and schemes with more parameters gain more than on other text. Each
// measurement may need a calibration, so that the working directory keeps all of them.
func (h *chooser) measure(ctx context.Context, a *alloc.Allocation) (m alloc.Measured, err error) {
	if h.unseen == nil {
		h.unseen = &divergences{ctx: ctx, threads: h.job.o.Threads, reference: h.reference}
		if h.job.calibration.onText {
			windows, _, err := h.run.heldOutWindows(h.job)
			if err != nil {
				return m, err
			}
			if h.unseen.reference, err = eval.NewReference(ctx, h.float, windows); err != nil {
				return m, err
			}
		}
	}
	key, err := workdir.Key(measuredName, 1, h.inputs, h.unseen.reference.Sequences())
	if err != nil {
		return m, err
	}
	name, err := workdir.Key(a.Rows)
	if err != nil {
		return m, err
	}
	known := map[string]alloc.Measured{}
	h.run.work.GetJSON(measuredName, key, &known)
	if m, ok := known[name]; ok {
		h.activationKL = &m.ActivationKL
		return m, nil
	}
	if m, err = h.execute(ctx, a); err != nil {
		return m, err
	}
	known[name] = m
	return m, h.run.work.PutJSON(measuredName, key, known)
}

// execute writes a temporary file of an allocation and runs it as a device would.
// The first file is run with float32 activations too.
func (h *chooser) execute(ctx context.Context, a *alloc.Allocation) (m alloc.Measured, err error) {
	s, opts := h.subject, h.subject.opts
	opts.Rules = slices.Concat(a.Rules, opts.Rules)
	p, err := conversion.NewPlan(s.ck, s.config, opts) // a.Plan is for the final file
	if err != nil {
		return m, err
	}
	var codes *plan.Codes
	if h.job.calibration.needed() {
		var done func()
		if codes, done, err = h.run.calibrate(h.job, s.with(p)); err != nil {
			return m, err
		}
		defer done() // its layers stay: if no allocation is better, the final file takes them
	}
	err = p.WriteTemporary(ctx, h.job.to.Path, write.Options{Codes: codes}, func(temp string) error {
		if m.KL, err = h.unseen.of(temp, forward.Int8); err != nil || h.activationKL != nil {
			return err
		}
		weights, err := h.unseen.of(temp, forward.Float32)
		part := max(m.KL-weights, 0)
		h.activationKL = &part
		return err
	})
	if err != nil {
		return m, err
	}
	m.ActivationKL = *h.activationKL
	h.run.logf("%.3f bits per weight: KL %.5f", a.BitsPerWeight, m.KL)
	return m, nil
}
