package gq

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// planJob plans the job of a task, and refuses it if its steps do not suit the checkpoint or each
// other.
func (r *run) planJob(t *task, in *input) (_ *job, err error) {
	if err := r.open(in); err != nil {
		return nil, err
	}
	if in.foreign == nil && t.o.Requantize {
		return nil, optionf("requantize", "goes with a .gguf file, or a checkpoint whose weights are quantized; %s is not quantized", in.Name)
	}
	opts := conversion.Options{
		Context: r.ctx, Recipe: t.o.Recipe, Rules: t.o.Rules, Threads: t.o.Threads, Sources: in.files,
		Assets: new(fromcheckpoint.AssetCache),
	}
	t.o.setFormat(&opts)
	runnable := sync.OnceValue(func() string { return notRunnable(in) })
	j := &job{task: *t, name: in.Name, path: in.Path, notRunnable: runnable}
	if j.writes() { // while the plan compresses the checkpoint's small files, in one goroutine
		var wg sync.WaitGroup
		wg.Go(func() { _ = runnable() })
		defer wg.Wait()
	}
	if j.source, err = newSubject(in.ck, opts); err != nil {
		return nil, err
	}
	if err := j.source.plan.CheckQuantized(); err != nil {
		return nil, fmt.Errorf("%s: %w", j.name, err)
	}
	if j.calibration, err = j.newCalibration(); err != nil {
		return nil, err
	}
	if j.tuning, err = r.newTuning(j); err != nil {
		return nil, err
	}
	if err := j.checkFold(); err != nil {
		return nil, err
	}
	if err := j.checkDivisible(); err != nil {
		return nil, err
	}
	if j.source.bounds, err = r.bounds(j, j.source); err != nil {
		return nil, err
	}
	r.stages.plan = view{j, j.source}.stages(view.times)
	return j, nil
}

// notRunnable says why gq cannot run the model of a checkpoint; "" if it can.
func notRunnable(in *input) string {
	source := in.ck.Dir()
	if in.IsRemote() {
		source = in.Name // the directory is temporary, or in a cache
	}
	config, err := assets.ReadConfig(in.ck)
	if config == nil || err != nil {
		return fmt.Sprintf("%s has no config.json", source)
	}
	c, err := arch.ParseForward(config)
	if err != nil {
		return fmt.Sprintf("config.json: %v", err)
	}
	t, err := tokenizer.Open(in.ck.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("%s has no tokenizer (tokenizer.json)", source)
	}
	if err == nil {
		err = t.Fits(c.VocabSize)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// planSource opens the checkpoint and makes the plan. The weights are copied into the cache after
// all if the job turns out to read them more than once.
func (r *run) planSource(t *task, src string, in *input) (*job, error) {
	j, err := r.planJob(t, in)
	if err != nil || !in.Streams() || t.dry {
		return j, err
	}
	// A recipe's rules or the model's shapes may rule out streaming, although the options allow it.
	why := ""
	switch most, ok := j.source.plan.Streams(); {
	case j.calibration.needed():
		why = "it calibrates"
	case !ok || most > streamedMemory:
		why = "a slice that is stored transposed exceeds the memory for streaming"
	default:
		return j, nil
	}
	if in, err = r.wholeSource(src, why); err != nil {
		return nil, err
	}
	return r.planJob(t, in)
}

// streamedMemory is the most memory for bytes of a checkpoint that a job streams with: a slice that
// is stored transposed is needed as a whole.
const streamedMemory = 128 << 20
