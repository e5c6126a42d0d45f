package gq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/quantizer"
)

// inJob finds the source of a task, plans the job and calls end.
func inJob[T any](ctx context.Context, src, dst string, t task, end func(r *run, j *job) (T, error)) (result T, err error) {
	r := newRun(ctx, t.o.Progress)
	defer func() { r.close() }()
	if err := t.complete(dst); err != nil {
		return result, err
	}
	download := remote.IsRemote(src) // mistakes are found before it
	if download {
		err = t.check(ctx)
	}
	in := &input{}
	if err == nil {
		in, err = r.findSource(&t, src)
	}
	if err == nil {
		err = t.checkPaths(in)
	}
	if err == nil && !download {
		err = t.check(ctx)
	}
	if err != nil {
		return result, err
	}
	if err := t.to.Open(ctx, !t.writes()); err != nil {
		return result, err
	}
	defer t.to.Close()
	err = func() error {
		if in.foreign != nil {
			if in, err = r.importSource(&t, in); err != nil {
				return err
			}
		}
		j, err := r.planSource(&t, src, in)
		if err != nil {
			return err
		}
		if err := r.openDirs(j); err != nil {
			return err
		}
		result, err = end(r, j)
		return err
	}()
	r.close()
	return result, r.cleanUp(&t, err)
}

// openDirs opens the working directories of the job's steps, from which an interrupted job resumes,
// and locks them for the whole job. A dry run needs a place for folded checkpoints only.
func (r *run) openDirs(j *job) error {
	if err := j.checkOutput(j.source.plan.Job, j.checked()); err != nil {
		return err
	}
	for _, s := range steps() {
		if len(s.keeps) == 0 || s.dir == calibSuffix && !j.writes() || (view{j, j.source}).times(s) == 0 {
			continue
		}
		if _, err := r.openDir(&j.task, s.dir); err != nil {
			return err
		}
	}
	r.work = r.dir(j, calibSuffix)
	return nil
}

// cleanUp ends the job with the error err. It removes the working directories if no work is left:
// the file is written, or does not meet its gate, or no file can meet the target. Otherwise it
// keeps finished work for the next job, and says where.
func (r *run) cleanUp(t *task, err error) error {
	_, unmet := errors.AsType[*GateNotMetError](err)
	_, missed := errors.AsType[*alloc.TargetError](err)
	done := err == nil || unmet || missed || !t.writes()
	var left []string
	for _, suffix := range []string{calibSuffix, importSuffix, foldSuffix} {
		switch d := r.dirs[suffix]; {
		case d == nil:
		case done || suffix == importSuffix && wrongOptions(err):
			err = join(err, d.Remove())
		default:
			size := d.Size()
			kept, e := d.Close()
			if err = join(err, e); kept {
				left = append(left, fmt.Sprintf("%s (%.1f MB)", d.Path(), float64(size)/1e6))
			}
		}
	}
	if len(left) == 0 {
		return err
	}
	hint := fmt.Sprintf("what is finished is in %s: the same command goes on from there, or one with another target", strings.Join(left, " and "))
	return &ResumeError{err, []string{hint}}
}

// wrongOptions reports whether a job failed because of what was asked for, so that the same command
// cannot go on.
func wrongOptions(err error) bool {
	_, option := errors.AsType[*OptionError](err)
	_, request := errors.AsType[*quantizer.RequestError](err)
	return option || request
}

func join(err, second error) error {
	if err != nil {
		return err
	}
	return second
}

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
