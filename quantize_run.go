package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/lora"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/job/write"
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
		if in, err = r.mergeAdapters(&t, in, t.rereads() != ""); err != nil {
			return err
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
			err = cmp.Or(err, d.Remove())
		default:
			size := d.Size()
			kept, e := d.Close()
			if err = cmp.Or(err, e); kept {
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
	switch {
	case t.o.format == formatONNX:
		opts.ONNX = &toonnx.Options{Tile: t.o.Recipe.Targets[0].PackedTile(), Split: t.o.Split}
	case t.o.format.isDirectory():
		opts.Checkpoint = &tocheckpoint.Options{Format: t.o.format.checkpoint(), Split: t.o.Split}
	case t.o.format == formatGGUF:
		opts.GGUF = &togguf.Options{Pre: t.o.Recipe.Pre, Split: t.o.Split}
	}
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
	if j.calibration.own, err = r.ownTokens(j); err != nil {
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
	if in, err = r.mergeAdapters(t, in, true); err != nil {
		return nil, err
	}
	return r.planJob(t, in)
}

// streamedMemory is the most memory for bytes of a checkpoint that a job streams with: a slice that
// is stored transposed is needed as a whole.
const streamedMemory = 128 << 20

// complete settles the format and the destination of the output dst.
func (t *task) complete(dst string) (err error) {
	o := &t.o
	if dst == "" {
		return optionf("output", "is empty: name a file, or a directory for a checkpoint")
	}
	o.Recipe = o.Recipe.WithQuality()
	if err := o.resolveFormat(dst); err != nil {
		return err
	}
	if o.format.isDirectory() && !remote.IsRemote(dst) {
		dst = filepath.Clean(dst) // the names of other files begin with it
	}
	t.to, err = newDestination(dst, o.format, o.Split)
	return err
}

// check finds invalid options, whatever the source is.
func (t *task) check(ctx context.Context) (err error) {
	o := &t.o
	// The plan makes its own set of rules; this one finds contradictions before any work.
	if _, err := quantizer.NewRuleSet(o.Recipe, o.Rules); err != nil {
		return &OptionError{Err: err}
	}
	if o.SaveRecipe != "" {
		if _, err := o.Recipe.YAML("", o.Rules); err != nil {
			return optionf("save-recipe", "%s: %w", o.SaveRecipe, err)
		}
	}
	if err := t.checkPart(); err != nil {
		return err
	}
	if m := o.Measure; m != nil {
		if t.measured, err = m.job(ctx); err != nil {
			return err
		}
		t.measured.Name, t.measured.Parity = t.to.Name, true
	}
	if b := o.Budget; b != nil && len(b.Groups) > 0 && o.Recipe.ForGGUF() {
		return optionf("group", "beside a target of bytes or divergence: the types of GGUF files, which are chosen, have groups of their own")
	}
	return o.Budget.check()
}

// checkOutput checks that there is room for the output of a plan. check: it is read before it
// appears.
func (t *task) checkOutput(p *write.Job, check bool) error {
	if !t.writes() {
		return nil
	}
	return t.to.CheckOutput(p, check)
}

// rereads says why the job reads the weights more than once; "" if the options do not tell. Such a
// job keeps remote weights in a cache.
func (t *task) rereads() string {
	r := t.o.Recipe
	algorithms := []gqf.Algorithm{r.Algorithm}
	for _, rule := range slices.Concat(t.o.Rules, r.Rules) {
		algorithms = append(algorithms, rule.Algorithm)
	}
	switch {
	case t.o.Budget != nil:
		return "it chooses bits"
	case r.Fold != (quantizer.Fold{}):
		return "it folds the checkpoint"
	case r.Tunes() || r.Quality == quantizer.QualityMax:
		return "it tunes the model"
	case t.part != nil && r.HashFiles:
		return "it hashes the files"
	case !t.writes(): // the rest is for the writing
		return ""
	case slices.ContainsFunc(algorithms, gqf.Algorithm.Calibrated):
		return "it calibrates"
	case t.o.Measure != nil:
		return "it measures the file"
	case t.o.format != formatGQF:
		return "it compares the new file with them"
	case r.HashFiles:
		return "it hashes the files"
	}
	return ""
}

// checkPaths checks the source, and the outputs of the job against its inputs.
func (t *task) checkPaths(in *input) error {
	if t.part != nil && in.foreign != nil {
		return optionf("part", "%s is %s: every worker would have to convert all of it; parts are made of unquantized safetensors", in.Name, in.foreign.Noun())
	}
	var s files.Set
	o := &t.o
	if f := in.foreign; f != nil {
		list := foreignFiles(in.Path, f)
		s.Input(f.Noun(), append(list, in.RemoteNames(list)...)...)
		s.OutputTree("output", "the imported checkpoint", t.workPath(importSuffix))
	} else {
		list := checkpointFiles(in.Path)
		s.Input("the checkpoint", append(list, in.RemoteNames(list)...)...)
	}
	s.Input("the recipe", o.RecipeFile)
	s.Input("the calibration text", named(o.Recipe.Calibrate))
	s.Input("the text to tune on", named(o.Recipe.TuneText))
	s.Input("the importance matrix", o.Recipe.Imatrix...)
	for _, name := range o.Recipe.Lora {
		s.Input("the adapter", lora.Files(name)...)
	}
	if o.format.isDirectory() {
		s.OutputTree("output", "the "+strings.TrimPrefix(o.format.noun(), "a "), t.to.Path)
	} else {
		s.Output("output", "the ."+string(o.format)+" file", t.to.Name)
	}
	if o.format == formatGGUF && o.Split > 0 {
		s.OutputShards("output", "a shard of the .gguf file", func(name string) string { return gguf.ShardLike(t.to.Path, name) })
	}
	s.OutputTree("output", "the working directory", t.workPath(calibSuffix))
	s.OutputTree("output", "the folded checkpoint", t.workPath(foldSuffix))
	s.Output("save-recipe", "the saved recipe", o.SaveRecipe)
	s.Output("imatrix-out", "the importance matrix", o.ImatrixOut)
	s.Output("calibrate-out", "the calibration text", o.CalibrateOut)
	if o.Measure != nil {
		o.Measure.addPaths(&s)
	}
	return collisions(&s)
}
