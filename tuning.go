package gq

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/tune"
)

// TuningReport says what tuning gained on text that was held out from it. All divergences are mean
// KL divergences from the checkpoint in nats per token.
type TuningReport struct {
	Kind quantizer.Tune `json:"kind"`
	// Kept reports whether the file has the tuned numbers. The file has the untuned ones if the tuned
	// ones are no better as executed.
	Kept  bool `json:"kept"`
	Steps int  `json:"steps"`
	Step  int  `json:"step"` // with the least divergence; 0: the start
	// WeightsBefore and WeightsAfter are measured with dequantized weights and activations in
	// float32.
	WeightsBefore float64 `json:"weights_before"`
	WeightsAfter  float64 `json:"weights_after"`
	// Before and After are measured as a device executes the files; nil if gq has no kernels for
	// the files. WeightsBefore and WeightsAfter decide then.
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
	// Tokens counts the tokens of the text, HeldOut the scored tokens of the held-out part. Source is
	// "self", "text" or "tokens".
	Tokens  int    `json:"tokens"`
	HeldOut int    `json:"held_out_tokens"`
	Source  string `json:"source"`
}

// tuning is the part of a job that trains numbers after calibration.
type tuning struct {
	*quantizeJob
	kind  quantizer.Tune
	size  tune.Size
	words *tune.Text // nil: not read or written yet
}

// newTuning returns the tuning that the recipe asks for, or nil. It refuses, before any work, models
// that cannot be tuned.
func (j *quantizeJob) newTuning() (*tuning, error) {
	r := &j.o.Recipe
	if r.Quality == quantizer.QualityMax && r.Tune == "" {
		r.Tune = tune.ForSize(int64(weights(j.plan)))
	}
	if !r.Tunes() {
		switch {
		case r.TuneTokens != 0:
			return nil, optionf("tune-tokens", "goes with tune")
		case r.TuneText != "":
			return nil, optionf("tune-text", "goes with tune")
		}
		return nil, nil
	}
	k := &tuning{quantizeJob: j, kind: r.Tune}
	if r.TuneTokens != 0 && r.TuneTokens < tune.LeastTokens {
		return nil, optionf("tune-tokens", "%d: at least %d", r.TuneTokens, tune.LeastTokens)
	}
	if why := j.notRunnable(); why != "" {
		return nil, optionf("tune", "needs a model that gq can run: %s", why)
	}
	if err := j.wholeModel("to tune it"); err != nil {
		return nil, err
	}
	if err := tune.Check(j.plan); err != nil {
		return nil, &OptionError{"tune", err}
	}
	if name := r.TuneText; name != "" && name != quantizer.Self { // a text that is too short is an error now
		if _, err := k.text(); err != nil {
			return nil, err
		}
	}
	var err error
	if k.size, err = tune.SizeOf(j.plan, k.kind, k.length(), j.o.Threads); err != nil {
		return nil, err
	}
	if most := memlimit.Available(); most > 0 && k.size.Memory > most {
		return nil, &OptionError{"tune", &tune.MemoryError{Kind: k.kind, Need: k.size.Memory, Have: most}}
	}
	return k, nil
}

// tokens bounds the tokens of the text.
func (k *tuning) tokens() int { return cmp.Or(k.o.Recipe.TuneTokens, tune.DefaultTokens(k.kind)) }

// length is the number of tokens of the text, or their bound if it is not written yet.
func (k *tuning) length() int {
	if k.words == nil {
		return k.tokens()
	}
	return k.words.Tokens()
}

// Entries of the working directory.
const (
	tuneText, tuneDraft = "tune-text", "tune-draft"
	stageTuneText       = "writing text to tune on"
	stageTune           = "tuning"
	stageCompare        = "comparing tuned and untuned"
)

// tuneSeed tells the text's seed from the calibration text's: tuning on that text gains half.
const tuneSeed = 0x74756e65

// text is the text to tune on.
func (k *tuning) text() (*tune.Text, error) {
	if k.words != nil {
		return k.words, nil
	}
	_, t, err := k.textOf(k.original, k.o.Recipe.TuneText, selfText{
		tokens: k.tokens(), seed: k.seed() ^ tuneSeed, stage: stageTuneText, name: tuneText, draft: tuneDraft, option: "tune-text",
	})
	if err != nil {
		return nil, fmt.Errorf("tuning: %w", err)
	}
	if k.words, err = tune.NewText(t); err != nil {
		return nil, fmt.Errorf("tuning: %w", err)
	}
	return k.words, nil
}

// run tunes the codes of the plan. It returns them unchanged if the tuned ones are no better.
func (k *tuning) run(codes *conversion.CalibratedCodes) (*conversion.CalibratedCodes, *TuningReport, error) {
	defer memlimit.Lift()()
	t, err := k.text()
	if err != nil {
		return nil, nil, err
	}
	if codes == nil {
		codes = &conversion.CalibratedCodes{}
	}
	result, err := k.train(codes, t)
	if err != nil {
		return nil, nil, err
	}
	r := &TuningReport{
		Kind: k.kind, Steps: result.Steps, Step: result.Step, WeightsBefore: result.Before, WeightsAfter: result.After,
		Tokens: t.Tokens(), HeldOut: text.CountScored(t.HeldOut), Source: t.Source,
	}
	if result.Step == 0 {
		return codes, r, nil
	}
	tuned := *codes
	tuned.Tuned = result.Tuned()
	if r.Kept, err = k.better(codes, &tuned, t, r); err != nil || !r.Kept {
		return codes, r, err
	}
	return &tuned, r, nil
}

// train runs the optimizer.
func (k *tuning) train(codes *conversion.CalibratedCodes, t *tune.Text) (*tune.Result, error) {
	o := tune.Options{Kind: k.kind, Work: k.work, Threads: k.o.Threads}
	steps := tune.Work(o, t, k.layers())
	add, end := k.begin(stageTune, "steps", int64(steps))
	defer end()
	o.Progress = add
	o.Resumed = func(done, of int) { k.resumed(k.work, fmt.Sprintf("%d of %d steps of tuning", done, of)) }
	o.Evaluated = func(e tune.Evaluation) {
		k.logf("tuning: step %d of %d: KL %.5f on held-out text, %.5f at best", e.Step, e.Steps, e.KL, e.Best)
	}
	o.Trained = func(l tune.TrainedLayer) {
		k.logf("tuning: layer %d of %d: mean squared error on held-out text %.4g -> %.4g", l.Layer+1, l.Layers, l.Before, l.After)
	}
	return tune.Run(k.ctx, k.plan, codes, t, o)
}

// layers is the number of the model's decoder layers.
func (k *tuning) layers() int {
	c, err := arch.ParseForward(k.config)
	if err != nil {
		return 0 // newTuning has parsed it
	}
	return len(c.Layers)
}

// better is the guard: it reports whether the tuned file is better than the untuned one on held-out
// text, as a device executes them.
func (k *tuning) better(codes, tuned *conversion.CalibratedCodes, t *tune.Text, r *TuningReport) (bool, error) {
	_, end := k.begin(stageCompare, "", 0)
	defer end()
	reference, done, err := k.floatReference(k.plan, t.HeldOut)
	if err != nil {
		return false, err
	}
	defer done()
	var kl [2]float64
	for i, c := range []*conversion.CalibratedCodes{codes, tuned} {
		var failed error // to execute the file
		err := k.plan.WriteTemporary(k.ctx, k.dst, c, func(temp string) error {
			kl[i], failed = k.klOf(temp, reference, model.Int8)
			return nil
		})
		switch {
		case k.ctx.Err() != nil:
			return false, k.ctx.Err()
		case err != nil:
			return false, err
		case failed != nil && i == 0:
			k.logf("tuning: the file cannot be executed (%v): weights alone decide", failed)
			return r.WeightsAfter < r.WeightsBefore, nil
		case failed != nil:
			return false, failed
		}
	}
	r.Before, r.After = &kl[0], &kl[1]
	return kl[1] < kl[0], nil
}

// longestTuning is the longest account of tuning that a file may have.
func longestTuning() *conversion.Tuning {
	c := longestAccount(nil)
	return &conversion.Tuning{
		Mode: string(quantizer.TuneFloats), Parameters: map[string]any{"rate": .004, "layer-rate": .002, "codes-rate": .01, "step-tokens": 512},
		Source: c.Source, SHA256: c.SHA256, Tokens: c.Tokens, Sequences: c.Sequences, HeldOut: c.Tokens, Seed: c.Seed,
		Steps: c.Tokens, Step: c.Tokens, Vectors: c.Tokens,
	}
}
