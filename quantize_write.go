package gq

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
)

// checkSize refuses a file that exceeds its target once its description of calibration and tuning
// is added.
func (j *job) checkSize(p *fromcheckpoint.Plan, c *plan.Codes) error {
	b := j.o.Budget
	if c == nil || b == nil || b.FileBytes == 0 {
		return nil
	}
	var t *provenance.Tuning
	if c.Tuned != nil {
		t = c.Tuned.Tuning
	}
	size, err := p.SizeWith(c.Calibration, t)
	if err == nil && size > b.FileBytes {
		err = fmt.Errorf("the file would have %d bytes with what it says of calibration, more than the %d of its target", size, b.FileBytes)
	}
	return err
}

// onlyWrites reports whether the job only writes a file, so that a rate makes sense.
func (j *job) onlyWrites() bool {
	return !j.calibration.needed() && j.tuning == nil && j.foldsFor() == "" && j.o.Budget == nil && j.measured == nil
}

// measure measures the complete file at temp before it appears. An error keeps it from appearing.
// unmet is the error of a gate that the file does not meet, if the file is kept nevertheless.
func (r *run) measure(j *job, s *subject, temp string, to *QuantizeReport) (unmet, err error) {
	if j.textCalibrated() {
		if err := r.heldOut(j, s, temp, to); err != nil {
			return nil, err
		}
	}
	if j.measured == nil {
		return nil, nil
	}
	err = withGQF(r.ctx, temp, j.o.Threads, stages{}, func(file string, im *measure.Imported) (err error) {
		m := *j.measured
		m.Source, m.SourceName, m.File, m.Imported = j.path, j.name, file, im
		if s.ck != j.source.ck {
			m.Folded = s.ck.Dir()
		}
		to.Accuracy, err = j.o.Measure.run(r.ctx, &m, r.stages)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = Verdict(to.Accuracy)
	if gate, ok := errors.AsType[*GateNotMetError](err); ok {
		gate.Output, gate.Kept = j.to.Name, j.o.Keep
		if j.o.Keep {
			return gate, nil
		}
	}
	return nil, err
}

// saveRecipe writes everything that decides the bytes of the file, if o.SaveRecipe is set.
func (j *job) saveRecipe(v *values) error {
	if j.o.SaveRecipe == "" {
		return nil
	}
	r := v.source.opts.Recipe
	if k := j.calibration; !k.needed() {
		// Only the choice of bits needed a text, and the rules record it.
		r.Calibrate, r.CalibrateTokens, r.Refine, r.Imatrix = "", 0, nil, nil
	} else {
		if k.solved {
			r.Refine = new(k.refine)
		}
		if r.Calibrate != "" {
			r.CalibrateTokens = k.tokens
		}
	}
	selfTuned := false
	if k := j.tuning; k != nil {
		r.Tune, r.TuneTokens, selfTuned = k.kind, k.tokens, k.self
		if selfTuned {
			r.TuneText = quantizer.Self
		}
	}
	r.Seed = 0
	if r.Rotate || r.Calibrate == quantizer.Self || selfTuned {
		r.Seed = j.seed()
	}
	comment := j.o.Budget.comment(v.bits)
	if v.fold != nil {
		comment += "\nfold auto: " + v.fold.String()
	}
	rules := v.source.opts.Rules
	if v.bits != nil {
		rules = slices.Concat(v.bits.Rules, rules)
	}
	text, err := r.YAML(comment, rules)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(j.o.SaveRecipe, text)
}
