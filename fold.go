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
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/fold"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// folding is the part of a job that folds the checkpoint before it is quantized.
type folding struct {
	*quantizeJob
	awq  bool
	work *workdir.Dir

	// The folded checkpoint, and the options that quantize it.
	ck     *safetensors.Checkpoint
	config []byte
	opts   conversion.Options
}

// newFolding returns the folding that the recipe asks for, or nil.
func (j *quantizeJob) newFolding() (*folding, error) {
	// A dry run has no text to choose AWQ's factors with, as it has none for other algorithms.
	f := &folding{quantizeJob: j, awq: j.calibration != nil && j.calibration.awq && !j.dry}
	r := j.o.Recipe
	if !r.Rotate && !r.Equalize && !f.awq {
		return nil, nil
	}
	what := "rotate"
	switch {
	case !r.Rotate && r.Equalize:
		what = "equalize"
	case !r.Rotate:
		what = "algorithm awq"
	}
	if err := j.wholeModel("for " + what); err != nil {
		return nil, err
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

// run folds the checkpoint, or finds it folded by an interrupted job, and opens the result. close
// must be called.
func (f *folding) run() error {
	defer memlimit.Lift()()
	if !f.dry {
		if err := f.plan.CheckOutput(f.dst); err != nil {
			return err
		}
	}
	f.opts = f.quantizeJob.opts
	r := f.o.Recipe
	job := fold.Job{Rotate: r.Rotate, Seed: f.seed(), Equalize: r.Equalize, Options: fold.Options{Threads: f.o.Threads}}
	if f.calibration != nil && !f.dry {
		var err error
		if job.Text, err = f.text(f.original, f.calibration.tokens()); err != nil {
			return err
		}
	}
	if f.awq {
		opts := f.opts
		opts.Progress = nil
		job.AWQ = &opts
	}
	key, err := f.key(job)
	if err != nil {
		return err
	}
	original := f.quantizeJob.ck
	dir, record, found, err := fold.Stored(f.ctx, f.work, key, func(dst string) (*fold.Record, error) {
		add, end := f.begin(stageFold, "bytes", job.Work(original))
		defer end()
		job.Progress = add
		return fold.Make(f.ctx, original.Dir(), dst, job)
	})
	if err != nil {
		return err
	}
	if found {
		f.resumed(f.work, "the folded checkpoint")
	}
	if f.ck, err = safetensors.Open(dir, safetensors.Options{}); err != nil {
		return err
	}
	if f.config, err = conversion.ReadConfig(f.ck); err != nil {
		return err
	}
	origin := &conversion.Origin{Checkpoint: original, Fold: record.Summary()}
	if origin.Record, err = record.JSON(); err != nil {
		return err
	}
	origin.Untied = record.Rotated() && slices.ContainsFunc(f.original.Tensors, func(t *conversion.PlanTensor) bool { return t.Action == conversion.ActionShare })
	f.opts.Origin = origin
	return nil
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
	for _, name := range conversion.AssetFiles() {
		data, err := files.Read(filepath.Join(f.original.SourceDir(), name), files.MaxModelFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, name, sha256.Sum256(data))
	}
	return workdir.Key(parts...)
}
