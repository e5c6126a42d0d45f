package gq

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/tune"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/quantizer"
)

// newTuning returns the tuning that the recipe asks for, or nil. It refuses, before any work,
// models that cannot be tuned.
func (r *run) newTuning(j *job) (*tuning, error) {
	recipe, plan := j.o.Recipe, j.source.plan
	k := &tuning{kind: recipe.Tune, self: named(recipe.TuneText) == ""}
	if recipe.Quality == quantizer.QualityMax && k.kind == "" {
		k.kind = tune.ForSize(int64(weights(plan)))
		recipe.Tune = k.kind
	}
	if !recipe.Tunes() {
		return nil, nil
	}
	coarse := tune.Coarse(plan)
	if b := j.o.Budget; b != nil { // bits are not chosen yet
		bpw := b.BitsPerWeight
		if b.FileBytes > 0 {
			bpw = 8 * float64(b.FileBytes) / weights(plan)
		}
		coarse = bpw > 0 && bpw < 3
	}
	k.steps = tune.DefaultSteps(k.kind, coarse)
	k.tokens = cmp.Or(recipe.TuneTokens, tune.DefaultTokens(k.kind, coarse))
	if why := j.notRunnable(); why != "" {
		return nil, optionf("tune", "needs a model that gq can run: %s", why)
	}
	if err := j.source.wholeModel("to tune it"); err != nil {
		return nil, err
	}
	if err := tune.Check(plan); err != nil {
		return nil, &OptionError{"tune", err}
	}
	k.length = k.tokens
	if !k.self { // a text that is too short is an error now
		t, err := r.tuneText(j, k)
		if err != nil {
			return nil, err
		}
		k.length = t.Tokens()
	}
	var err error
	if k.size, err = tune.SizeOf(plan, k.kind, k.length, j.o.Threads); err != nil {
		return nil, err
	}
	if most := memlimit.Available(); most > 0 && k.size.Memory > most {
		return nil, &OptionError{"tune", &tune.MemoryError{Kind: k.kind, Need: k.size.Memory, Have: most}}
	}
	return k, nil
}

// tuneSeed tells the text's seed from the calibration text's: tuning on that text gains half.
const tuneSeed = 0x74756e65

func (r *run) tuneText(j *job, k *tuning) (*tune.Text, error) {
	_, t, err := r.textOf(j, j.source.plan, j.o.Recipe.TuneText, selfText{
		tokens: k.tokens, seed: j.seed() ^ tuneSeed, stage: stageTuneText, name: tuneText, draft: tuneDraft, option: "tune-text",
	})
	if err == nil {
		var words *tune.Text
		if words, err = tune.NewText(t); err == nil {
			return words, nil
		}
	}
	return nil, fmt.Errorf("tuning: %w", err)
}

// tuneCodes is the step that tunes codes. The codes stay if the tuned codes are no better.
func tuneCodes(r *run, j *job, v *values) error {
	defer memlimit.Lift()()
	t, err := r.tuneText(j, j.tuning)
	if err != nil {
		return err
	}
	p, codes := v.subject().plan, cmp.Or(v.codes, &plan.Codes{})
	result, err := r.train(j, p, codes, t)
	if err != nil {
		return err
	}
	r.atEnd(result.Close)
	v.codes = codes
	v.tuning = &TuningReport{
		Kind: j.tuning.kind, Steps: result.Steps, Step: result.Step, WeightsBefore: result.Before, WeightsAfter: result.After,
		Tokens: t.Tokens(), HeldOut: text.CountScored(t.HeldOut), Source: t.Source,
	}
	if result.Step == 0 {
		return nil
	}
	tuned := *codes
	tuned.Tuned = result.Tuned()
	if v.tuning.Used, err = r.better(j, p, codes, &tuned, t, v.tuning); v.tuning.Used {
		v.codes = &tuned
	}
	return err
}

func (r *run) train(j *job, p *fromcheckpoint.Plan, codes *plan.Codes, t *tune.Text) (*tune.Result, error) {
	o := tune.Options{Kind: j.tuning.kind, Steps: j.tuning.steps, Work: r.work, Threads: j.o.Threads}
	layers := 0
	if c, err := arch.ParseForward(j.source.config); err == nil { // newTuning has parsed it
		layers = len(c.Layers)
	}
	add, end := r.begin(stageTune, "steps", int64(tune.Work(p, o, t, layers)))
	defer end()
	o.Progress = add
	o.Resumed = func(done, of int) { r.resumed(r.work, "%d of %d steps of tuning", done, of) }
	o.Evaluated = func(e tune.Evaluation) {
		r.logf("tuning: step %d of %d: KL %.5f on held-out text, %.5f at best", e.Step, e.Steps, e.KL, e.Best)
	}
	o.Trained = func(l tune.TrainedLayer) {
		r.logf("tuning: layer %d of %d: mean squared error on held-out text %.4g -> %.4g", l.Layer+1, l.Layers, l.Before, l.After)
	}
	return tune.Run(r.ctx, p, codes, t, o)
}

// better is the guard: it reports whether the tuned file is better than the untuned file on
// held-out text, as a device executes them.
func (r *run) better(j *job, p *fromcheckpoint.Plan, codes, tuned *plan.Codes, t *tune.Text, to *TuningReport) (bool, error) {
	_, end := r.begin(stageCompare, "", 0)
	defer end()
	d, err := newDivergences(r.ctx, p.SourceDir(), t.HeldOut, j.o.Threads)
	if err != nil {
		return false, err
	}
	defer d.close()
	var kl [2]float64
	for i, c := range []*plan.Codes{codes, tuned} {
		var failed error // to execute the file
		err := p.WriteTemporary(r.ctx, j.to.Path, write.Options{Codes: c}, func(temp string) error {
			of, err := d.of(temp, forward.Int8)
			kl[i], failed = of.Mean, err
			return nil
		})
		switch {
		case r.ctx.Err() != nil:
			return false, r.ctx.Err()
		case err != nil:
			return false, err
		case failed != nil && i == 0:
			r.logf("tuning: the file cannot be executed (%v): weights alone decide", failed)
			return to.WeightsAfter < to.WeightsBefore, nil
		case failed != nil:
			return false, failed
		}
	}
	to.Before, to.After = &kl[0], &kl[1]
	return kl[1] < kl[0], nil
}
