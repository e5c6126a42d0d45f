package gq

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/memlimit"
)

// Entries of the working directory: the choice of bits and the measured allocations.
const bitsName, measuredName = "bits", "measured"

// choiceKey lists what the choice of bits depends on.
func choiceKey(r *run, j *job, v *values) ([]any, error) {
	inputs, err := r.choiceInputs(j, v.source)
	// 3: the version of the choice. The size of the smallest file changes with the tokenizer and the
	// other small files.
	return []any{bitsName, 3, inputs, j.o.Budget, v.source.bounds.outline.Least.OutputBytes}, err
}

// chooseBits is the step that chooses bits.
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

// allocate chooses bits, groups and mappings.
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
	case !j.calibration.needed(): // the predictions are for the codes of the file
		out.Allocation, err = b.meet(p)
	default:
		out.Allocation, out.Evaluations, err = p.Best(r.ctx, b.meet, h.measure)
	}
	for _, e := range out.Evaluations {
		if out.Allocation != nil && e.PredictedKL == out.PredictedKL && e.BitsPerWeight == out.BitsPerWeight {
			out.KL = &e.KL
		}
	}
	return out, err
}
