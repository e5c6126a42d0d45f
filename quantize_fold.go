package gq

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/quantizer"
)

// checkFold refuses to fold a part of a model, and options for the unfolded model.
func (j *job) checkFold() error {
	what := j.foldsFor()
	if what == "" {
		return nil
	}
	if err := j.source.wholeModel("for " + what); err != nil {
		return err
	}
	if j.o.Recipe.Auto {
		if why := j.notRunnable(); why != "" {
			return optionf("fold", "auto runs the model: %s; without it, state fold none", why)
		}
	}
	for name, set := range map[string]bool{"imatrix": len(j.o.Recipe.Imatrix) > 0, "imatrix-out": j.o.ImatrixOut != ""} {
		if set {
			return optionf(name, "beside %s: second moments are of one checkpoint's activations, and folding changes these; use calibrate", what)
		}
	}
	return nil
}

// foldSource is the step that folds the checkpoint, or finds it folded by an interrupted job.
func foldSource(r *run, j *job, v *values) error {
	defer memlimit.Lift()()
	if err := j.checkOutput(j.source.plan.Job, j.checked()); err != nil {
		return err
	}
	opts := v.source.opts
	spec, err := r.foldJob(j, opts.Recipe.Fold)
	if err != nil {
		return err
	}
	if j.awq() {
		plain := opts
		// the cache would hold the assets of a closed checkpoint until the job ends
		plain.Assets = nil
		spec.AWQ = &plain
	}
	folded, found, err := r.fold(j, spec, opts, true)
	if err != nil {
		return err
	}
	r.atEnd(func() { folded.ck.Close() })
	if found && v.fold == nil {
		r.resumed(r.dir(j, foldSuffix), "the folded checkpoint")
	}
	if folded.bounds, err = r.bounds(j, folded); err != nil { // an untied lm_head takes more now
		return err
	}
	v.source = folded
	return nil
}

// foldJob says how to fold the checkpoint, without AWQ's factors.
func (r *run) foldJob(j *job, how quantizer.Fold) (spec fold.Job, err error) {
	spec = fold.Job{Rotate: how.Rotate, Seed: j.seed(), Equalize: how.Equalize, Options: fold.Options{Threads: j.o.Threads}}
	if j.calibration.folds {
		spec.Text, err = r.text(j, j.source.plan, j.calibration.tokens)
	}
	return spec, err
}

// fold folds the checkpoint, or finds it folded in the working directory, and plans it. Folding is
// a stage unless the job is in another stage. The caller closes the checkpoint.
func (r *run) fold(j *job, spec fold.Job, opts conversion.Options, stage bool) (s *subject, found bool, err error) {
	source := j.source
	key, err := foldKey(source.plan, spec)
	if err != nil {
		return nil, false, err
	}
	dir, record, found, err := fold.Stored(r.ctx, r.dir(j, foldSuffix), key, func(dst string) (*fold.Record, error) {
		if stage {
			add, end := r.begin(stageFold, "bytes", spec.Work(source.ck))
			defer end()
			spec.Progress = add
		}
		return fold.Make(r.ctx, source.plan.SourceDir(), dst, spec)
	})
	if err != nil {
		return nil, false, err
	}
	opts.Origin = &fromcheckpoint.Origin{Checkpoint: source.ck, Fold: record.Summary()}
	if opts.Origin.Record, err = record.JSON(); err != nil {
		return nil, false, err
	}
	opts.Origin.Untied = record.Rotated() && slices.ContainsFunc(source.plan.Tensors, func(t *plan.Tensor) bool { return t.Action == plan.ActionShare })
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, false, err
	}
	if s, err = newSubject(ck, opts); err != nil {
		ck.Close()
	}
	return s, found, err
}

// foldKey hashes everything that the folded checkpoint depends on.
func foldKey(source *fromcheckpoint.Plan, spec fold.Job) (string, error) {
	// 3: the version of the result
	parts := []any{"fold", 3, spec.Rotate, spec.Equalize, source.SourceStamps()}
	if spec.Rotate {
		parts = append(parts, spec.Seed)
	}
	if spec.AWQ != nil {
		recipe, err := spec.AWQ.Recipe.JSON(spec.AWQ.Rules)
		if err != nil {
			return "", err
		}
		parts = append(parts, string(recipe))
	}
	if spec.Text != nil {
		parts = append(parts, spec.Text.Source, spec.Text.SHA256, spec.Text.Tokens())
	}
	// The folded checkpoint contains copies of them.
	assets, err := assetHashes(source.SourceDir())
	if err != nil {
		return "", err
	}
	return workdir.Key(append(parts, assets...)...)
}

// assetHashes lists the tokenizer and the other small files that are stored with a checkpoint, and
// their SHA-256.
func assetHashes(dir string) (list []any, err error) {
	for _, name := range assets.AssetFiles() {
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
