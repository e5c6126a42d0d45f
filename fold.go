package gq

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/fold"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// folding is the part of a job that folds the checkpoint before it is quantized.
type folding struct {
	*quantizeJob
	awq    bool
	work   *workdir.Dir
	choice *FoldChoice             // of fold auto; nil: the recipe states the fold
	folded *safetensors.Checkpoint // nil: the checkpoint stays as it is

	// The checkpoint to quantize, and the options for that.
	ck     *safetensors.Checkpoint
	config []byte
	opts   conversion.Options
}

// newFolding returns the folding that the recipe asks for, or nil.
func (j *quantizeJob) newFolding() (*folding, error) {
	// A dry run has no text to choose AWQ's factors with, as it has none for other algorithms.
	f := &folding{quantizeJob: j, awq: j.calibration != nil && j.calibration.awq && !j.dry}
	r := j.o.Recipe
	if r.Fold == (quantizer.Fold{}) && !f.awq {
		return nil, nil
	}
	what := "rotate"
	switch {
	case r.Auto:
		what = "fold auto"
	case !r.Rotate && r.Equalize:
		what = "equalize"
	case !r.Rotate:
		what = "algorithm awq"
	}
	if err := j.wholeModel("for " + what); err != nil {
		return nil, err
	}
	if why := j.notRunnable(); r.Auto && why != "" {
		return nil, optionf("fold", "auto runs the model: %s; without it, state fold none", why)
	}
	for name, set := range map[string]bool{"imatrix": len(r.Imatrix) > 0, "imatrix-out": j.o.ImatrixOut != ""} {
		if set {
			return nil, optionf(name, "beside %s: second moments are of one checkpoint's activations, and folding changes these; use calibrate", what)
		}
	}
	return f, nil
}

// wholeModel refuses a checkpoint whose model cannot be run, or has tensors outside the checkpoint.
func (j *quantizeJob) wholeModel(why string) error {
	if j.config == nil {
		return optionf("", "%s has no config.json: %s the model has to run", j.ck.Dir(), why)
	}
	// The model is the directory's, so a single file must be all of it.
	whole, err := safetensors.Open(j.ck.Dir(), safetensors.Options{})
	if err != nil {
		return err
	}
	defer whole.Close()
	if !slices.EqualFunc(whole.Files(), j.ck.Files(), func(a, b safetensors.SourceFile) bool { return a.Name == b.Name }) {
		return optionf("", "%s is only a part of what is in %s: %s name the directory of the whole model", j.ck.Files()[0].Name, j.ck.Dir(), why)
	}
	return nil
}

// run folds the checkpoint, or finds it folded by an interrupted job, and opens the result; first it
// chooses the fold if the recipe leaves that open. close must be called.
func (f *folding) run() error {
	defer memlimit.Lift()()
	if !f.dry {
		if err := f.to.checkOutput(f.plan, f.checked()); err != nil {
			return err
		}
	}
	if f.o.Recipe.Auto {
		if err := f.choose(); err != nil {
			return err
		}
	}
	f.ck, f.config, f.opts = f.quantizeJob.ck, f.quantizeJob.config, f.quantizeJob.opts
	job, err := f.job(f.o.Recipe.Fold)
	if err != nil {
		return err
	}
	if f.awq {
		opts := f.opts
		opts.Progress, opts.Assets = nil, nil // the cache would hold the assets of a closed checkpoint until the job ends
		job.AWQ = &opts
	}
	if !job.Rotate && !job.Equalize && !f.awq { // fold auto chose none
		return nil
	}
	dir, record, found, err := f.make(job, true)
	if err != nil {
		return err
	}
	if found && f.choice == nil {
		f.resumed(f.work, "the folded checkpoint")
	}
	if f.folded, err = safetensors.Open(dir, safetensors.Options{}); err != nil {
		return err
	}
	f.ck = f.folded
	if f.config, err = conversion.ReadConfig(f.ck); err != nil {
		return err
	}
	f.opts.Origin, err = f.origin(record)
	return err
}

// job is the job that folds the checkpoint, without AWQ's factors.
func (f *folding) job(how quantizer.Fold) (job fold.Job, err error) {
	job = fold.Job{Rotate: how.Rotate, Seed: f.seed(), Equalize: how.Equalize, Options: fold.Options{Threads: f.o.Threads}}
	if f.calibration != nil && !f.dry {
		job.Text, err = f.text(f.original, f.calibration.tokens())
	}
	return job, err
}

// make folds the checkpoint, or finds it folded in the working directory. Only folding is a stage,
// and only if the job has not begun another.
func (f *folding) make(job fold.Job, stage bool) (dir string, record *fold.Record, found bool, err error) {
	key, err := f.key(job)
	if err != nil {
		return "", nil, false, err
	}
	return fold.Stored(f.ctx, f.work, key, func(dst string) (*fold.Record, error) {
		if stage {
			add, end := f.begin(stageFold, "bytes", job.Work(f.quantizeJob.ck))
			defer end()
			job.Progress = add
		}
		return fold.Make(f.ctx, f.original.SourceDir(), dst, job)
	})
}

// origin tells a plan of the folded checkpoint where it comes from.
func (f *folding) origin(record *fold.Record) (o *conversion.Origin, err error) {
	o = &conversion.Origin{Checkpoint: f.quantizeJob.ck, Fold: record.Summary()}
	if o.Record, err = record.JSON(); err != nil {
		return nil, err
	}
	o.Untied = record.Rotated() && slices.ContainsFunc(f.original.Tensors, func(t *conversion.PlanTensor) bool { return t.Action == conversion.ActionShare })
	return o, nil
}

// key hashes everything that the folded checkpoint depends on.
func (f *folding) key(job fold.Job) (string, error) {
	parts := []any{"fold", 3, job.Rotate, job.Equalize, f.original.SourceStamps()} // 3: the version of the result
	if job.Rotate {
		parts = append(parts, job.Seed)
	}
	if job.AWQ != nil {
		recipe, err := job.AWQ.Recipe.JSON(job.AWQ.Rules)
		if err != nil {
			return "", err
		}
		parts = append(parts, string(recipe))
	}
	if job.Text != nil {
		parts = append(parts, job.Text.Source, job.Text.SHA256, job.Text.Tokens())
	}
	// The folded checkpoint contains copies of them.
	assets, err := assetHashes(f.original.SourceDir())
	if err != nil {
		return "", err
	}
	return workdir.Key(append(parts, assets...)...)
}

// assetHashes lists the files beside a checkpoint that are stored with it, and their SHA-256.
func assetHashes(dir string) (list []any, err error) {
	for _, name := range conversion.AssetFiles() {
		data, err := files.Read(filepath.Join(dir, name), files.MaxModelFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, name, sha256.Sum256(data))
	}
	return list, nil
}
