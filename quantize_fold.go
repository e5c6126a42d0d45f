package gq

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
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
	rotated := slices.ContainsFunc(record.Steps, func(s fold.Step) bool { return s.Kind == fold.KindRotate })
	opts.Origin.Untied = rotated && slices.ContainsFunc(source.plan.Tensors, func(t *plan.Tensor) bool { return t.Action == plan.ActionShare })
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, false, err
	}
	if s, err = newSubject(ck, opts); err != nil {
		ck.Close()
	}
	return s, found, err
}

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
		parts = append(parts, spec.Text.Source, spec.Text.SHA256, spec.Text.Tokens(), spec.Text.Seed)
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

const (
	// foldTokens is the length of the text that folds are chosen on.
	foldTokens = 2048
	// equalizeGain and rotateGain are the parts of a simpler candidate's divergence below which a
	// candidate is preferred. Smaller differences are noise; rotations also store the lm_head of a
	// tied model apart.
	equalizeGain = 0.97
	rotateGain   = 0.9
)

// foldCandidates are in the order in which folds are measured: equalize is often chosen, and its
// checkpoint then serves the job.
var foldCandidates = []quantizer.Fold{{}, {Rotate: true}, {Rotate: true, Equalize: true}, {Equalize: true}}

// foldsBySteps lists the simplest first.
var foldsBySteps = []quantizer.Fold{{}, {Equalize: true}, {Rotate: true}, {Rotate: true, Equalize: true}}

// bestFold returns the simplest fold that no other fold beats by more than noise.
func bestFold(kl map[quantizer.Fold]FoldCandidate) (best quantizer.Fold) {
	for _, fold := range foldsBySteps {
		gain := equalizeGain
		if fold.Rotate {
			gain = rotateGain
		}
		if k := kl[fold]; k.Impossible == "" && k.KL < float64(gain*kl[best].KL) {
			best = fold
		}
	}
	return best
}

// choiceName is the entry of the working directory.
const choiceName = "choice"

func foldChoiceKey(r *run, j *job, v *values) ([]any, error) {
	own, err := r.foldText(j)
	if err != nil {
		return nil, err
	}
	opts := v.source.opts
	recipe, err := opts.Recipe.JSON(opts.Rules)
	// 1: the version of the choice.
	return []any{"fold choice", 1, v.source.plan.SourceStamps(), string(recipe), j.seed(), j.o.format, own.SHA256, own.Tokens()}, err
}

// chooseFold is the step that resolves fold auto.
func chooseFold(r *run, j *job, v *values) error {
	defer memlimit.Lift()()
	own, err := r.foldText(j)
	if err == nil {
		v.fold, err = r.compareFolds(j, own)
	}
	return err
}

// useFold plans the checkpoint with the choice of the fold.
func useFold(r *run, j *job, v *values, found func(what string)) (suits bool, err error) {
	if v.fold == nil || len(v.fold.Candidates) == 0 {
		return false, nil
	}
	found("the choice of the fold")
	opts := v.source.opts
	if opts.Recipe.Fold, err = quantizer.ParseFold(v.fold.Fold); err != nil {
		return false, err
	}
	r.logf("fold auto: %s", v.fold)
	if v.source, err = newSubject(v.source.ck, opts); err != nil {
		return false, err
	}
	v.source.bounds, err = r.bounds(j, v.source)
	return true, err
}

// foldText is the text to choose a fold on: calibration's, if there is one.
func (r *run) foldText(j *job) (*text.Text, error) {
	p := j.source.plan
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: 1, Log: func(kernels.Choice) {}})
	if err != nil {
		return nil, optionf("fold", "auto runs the model: %w; without it, state fold none", err)
	}
	m.Close()
	tokens := foldTokens
	if j.calibration.onText {
		tokens = j.calibration.tokens
	}
	return r.text(j, p, tokens)
}

func (r *run) compareFolds(j *job, own *text.Text) (*FoldChoice, error) {
	windows := text.WindowsOf(own.First(foldTokens))
	d, err := newDivergences(r.ctx, j.source.plan.SourceDir(), windows, j.o.Threads)
	if err != nil {
		return nil, err
	}
	defer d.close()
	activations := forward.Int8
	if j.o.format != formatGQF {
		activations = forward.Float32
	}
	c := &FoldChoice{Tokens: text.CountScored(windows), Source: own.Source, Activations: activations.String()}
	add, end := r.begin(stageFoldChoice, "steps", int64(len(foldCandidates)))
	defer end()
	kl := map[quantizer.Fold]FoldCandidate{}
	for _, how := range foldCandidates {
		if kl[how], err = r.tryFold(j, how, d, activations); err != nil {
			return nil, fmt.Errorf("choosing the fold: %s: %w", how, err)
		}
		add(1)
	}
	for _, how := range foldsBySteps {
		c.Candidates = append(c.Candidates, kl[how])
	}
	c.Fold = bestFold(kl).String()
	return c, nil
}

func (r *run) tryFold(j *job, how quantizer.Fold, d *divergences, a forward.Activations) (c FoldCandidate, err error) {
	c.Fold = how.String()
	s, opts := j.source, j.source.opts
	opts.Recipe, opts.Rules = withoutData(opts.Recipe), rulesWithoutData(opts.Rules)
	opts.Recipe.Fold = how
	if how == (quantizer.Fold{}) {
		s, err = newSubject(s.ck, opts)
	} else {
		var spec fold.Job
		if spec, err = r.foldJob(j, how); err != nil {
			return c, err
		}
		opts.Assets = nil // the cache would hold the assets of a closed checkpoint until the job ends
		if s, _, err = r.fold(j, spec, opts, false); err == nil {
			defer s.ck.Close()
		}
	}
	if no, impossible := errors.AsType[*arch.UnsupportedError](err); impossible {
		c.Impossible = no.Msg
		return c, nil
	}
	if err != nil {
		return c, err
	}
	err = s.plan.WriteTemporary(r.ctx, j.to.Path, write.Options{}, func(temp string) error {
		of, err := d.of(temp, a)
		c.KL = of.Mean
		return err
	})
	return c, err
}

func withoutData(r quantizer.Recipe) quantizer.Recipe {
	if r.Algorithm.Calibrated() {
		r.Algorithm = gqf.AlgorithmSearch
	}
	r.Rules = rulesWithoutData(r.Rules)
	return r
}

func rulesWithoutData(rules []quantizer.Rule) (list []quantizer.Rule) {
	for _, rule := range rules {
		if rule.Algorithm.Calibrated() {
			rule.Algorithm = gqf.AlgorithmSearch
		}
		list = append(list, rule)
	}
	return list
}
