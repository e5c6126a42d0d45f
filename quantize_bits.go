package gq

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
)

// Entries of the working directory: the choice of bits and the measured allocations.
const bitsName, measuredName = "bits", "measured"

func choiceKey(r *run, j *job, v *values) ([]any, error) {
	inputs, err := r.choiceInputs(j, v.source)
	// 5: the version of the choice. The size of the smallest file changes with the tokenizer and the
	// other small files.
	return []any{bitsName, 5, inputs, j.o.Budget, v.source.bounds.outline.Least.OutputBytes}, err
}

func chooseBits(r *run, j *job, v *values) (err error) {
	before := len(r.warnings)
	if v.bits, err = r.allocate(j, v.source); err != nil {
		return err
	}
	a := v.bits
	v.choice = storedChoice{a.Rows, a.ActivationKL, a.Source, a.KL, a.Evaluations, r.warnings[before:]}
	return nil
}

// useBits makes the allocation of a choice that an earlier job made. A choice does not suit the job
// if it does not fit the checkpoint, or if the job writes the text of the choice.
func useBits(r *run, j *job, v *values, found func(what string)) (suits bool, err error) {
	if v.bits != nil {
		return true, nil
	}
	if j.o.CalibrateOut != "" {
		return false, nil
	}
	c := &v.choice
	out := &Allocation{Source: c.Source, KL: c.KL, Evaluations: c.Evaluations}
	err = j.withAllocJob(v.source, v.source.bounds.minBits, func(task alloc.Job) (err error) {
		out.Allocation, err = task.Restore(c.Rows, c.ActivationKL)
		return err
	})
	if err != nil || out.Allocation == nil {
		return false, err
	}
	found("the choice of bits")
	for _, warning := range c.Warnings {
		r.warn("%s", warning)
	}
	v.bits = out
	return true, nil
}

// choiceInputs hashes everything that the measurements of a choice of bits depend on, except the
// texts that the model writes.
func (r *run) choiceInputs(j *job, s *subject) (string, error) {
	recipe := s.opts.Recipe
	names := slices.Clone(recipe.Imatrix)
	if name := named(recipe.Calibrate); name != "" {
		names = append(names, name)
	}
	var hashes [][sha256.Size]byte
	for _, name := range names {
		data, err := files.ReadContext(r.ctx, name, max(files.MaxText, files.MaxImatrix))
		if err != nil {
			return "", err
		}
		hashes = append(hashes, sha256.Sum256(data))
	}
	return workdir.Key(j.source.plan.SourceStamps(), recipe, j.o.Rules, j.o.format, hashes)
}

func (r *run) allocate(j *job, s *subject) (*Allocation, error) {
	inputs, err := r.choiceInputs(j, s)
	if err != nil {
		return nil, err
	}
	h := &chooser{run: r, job: j, subject: s, inputs: inputs}
	defer h.close()
	defer memlimit.Lift()()
	if err := h.open(); err != nil {
		return nil, fmt.Errorf("choosing bits: %w", err)
	}
	p, err := h.probe()
	if err != nil {
		return nil, err
	}
	out := &Allocation{Source: h.text}
	switch b := j.o.Budget; {
	case b.MaxKL > 0:
		out.Allocation, out.Evaluations, err = p.MaxKL(r.ctx, b.MaxKL, h.measure)
	case j.measuredFiles(evaluations) == 0: // or the predictions are for the codes of the file
		out.Allocation, err = b.meet(p)
	default:
		out.Allocation, out.Evaluations, err = p.Best(r.ctx, b.meet, h.measure, h.clearly)
	}
	for _, e := range out.Evaluations {
		if out.Allocation != nil && e.PredictedKL == out.PredictedKL && e.BitsPerWeight == out.BitsPerWeight {
			out.KL = &e.KL
		}
	}
	return out, err
}

// A chooser probes and measures allocations of a checkpoint.
type chooser struct {
	run           *run
	job           *job
	subject       *subject
	inputs        string // see choiceInputs
	float, probed *forward.Model
	reference     *eval.Reference
	text          string // the source of the text
	// of text that the choice does not see, see measure; nil: not yet computed
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
	j, s := h.job, h.subject
	options := forward.Options{Threads: j.o.Threads, Packed: s.ck.DataBytes() <= packedBytes, Log: func(kernels.Choice) {}}
	if h.float, err = forward.OpenCheckpoint(s.ck.Dir(), options); err != nil {
		return err
	}
	// If calibration needs a text anyway, the probes use it: the model of the unfolded checkpoint
	// writes it, as long as calibration needs it.
	from, tokens := s.plan, j.seenTokens()
	if j.calibration.onText {
		from = j.source.plan
	}
	own, err := h.run.text(j, from, tokens)
	if err != nil {
		return err
	}
	h.text = own.Source
	if h.reference, err = eval.NewReference(h.run.ctx, h.float, text.WindowsOf(own.Spread(j.choiceTokens()))); err != nil {
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

// measure measures an allocation on text that neither calibration nor the choice of bits sees. On
// its own text calibration fits the codes: other text has more divergence, and schemes with more
// parameters gain more than on other text. Each measurement may need a calibration, so that the
// working directory keeps all of them.
func (h *chooser) measure(ctx context.Context, a *alloc.Allocation) (m alloc.Measured, err error) {
	if h.unseen == nil {
		windows, _, err := h.run.heldOutWindows(h.job)
		if err != nil {
			return m, err
		}
		reference, err := eval.NewReference(ctx, h.float, windows)
		if err != nil {
			return m, err
		}
		h.unseen = &divergences{ctx: ctx, threads: h.job.o.Threads, reference: reference}
	}
	key, err := workdir.Key(measuredName, 3, h.inputs, h.unseen.reference.Sequences())
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

// clearly reports whether uniform bits diverge clearly less than mixed bits.
func (h *chooser) clearly(uniform, mixed alloc.Measured) bool {
	less, difference, stdErr := h.unseen.reference.Less(uniform.Tokens, mixed.Tokens)
	taken := "mixed"
	if less {
		taken = "uniform"
	}
	h.run.logf("KL of uniform less mixed bits %+.5f, standard error %.5f: the file has %s bits", difference, float64(stdErr), taken)
	return less
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
		of, err := h.unseen.of(temp, forward.Int8)
		m.KL, m.Bound, m.Tokens = of.Mean, of.Bound, of.Tokens
		if err != nil || h.activationKL != nil {
			return err
		}
		weights, err := h.unseen.of(temp, forward.Float32)
		part := max(m.KL-weights.Mean, 0)
		h.activationKL = &part
		return err
	})
	if err != nil {
		return m, err
	}
	m.ActivationKL = *h.activationKL
	h.run.logf("%.3f bits per weight: KL %.5f, bound for other text %.5f", a.BitsPerWeight, m.KL, m.Bound)
	return m, nil
}
