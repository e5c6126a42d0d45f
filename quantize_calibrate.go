package gq

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/quantizer"
)

// newCalibration returns the calibration that the plan's algorithms need. It refuses contradictory
// options.
func (j *job) newCalibration() (k calibration, err error) {
	r := j.o.Recipe
	k = calibration{refine: r.Refine != nil && *r.Refine, onText: r.Calibrate != "", tokens: cmp.Or(r.CalibrateTokens, calib.DefaultTokens)}
	for _, m := range j.source.plan.Matrices() {
		k.awq = k.awq || m.Scheme.Algorithm == gqf.AlgorithmAWQ
		k.imatrix = k.imatrix || m.Scheme.Algorithm == gqf.AlgorithmImatrix
		k.solved = k.solved || m.Scheme.Algorithm.ByLayers()
	}
	has := map[string]bool{
		quantizer.With.Text: k.needed() || j.choosesOnText(), quantizer.With.Tokens: k.needed() || j.o.Budget != nil,
		quantizer.With.Seed:   k.needed() || j.choosesOnText() || r.Rotate || r.Tunes(),
		quantizer.With.Solver: k.solved || k.needed() && !k.refine, quantizer.With.Imatrix: k.imatrix,
		quantizer.With.Tune: r.Tunes() || r.Tune == "" && r.Quality == quantizer.QualityMax,
	}
	switch {
	case j.o.ImatrixOut != "" && !k.imatrix:
		return k, optionf("imatrix-out", "goes with %s", quantizer.With.Imatrix)
	case j.o.CalibrateOut != "" && !has[quantizer.With.Text]:
		return k, optionf("calibrate-out", "goes with %s", quantizer.With.Text)
	}
	if err := checkSettings(r, has); err != nil || !k.needed() {
		return calibration{}, err
	}
	k.folds = j.writes()
	switch {
	case k.imatrix && k.solved:
		return k, optionf("", "imatrix together with gptq or gptq-ft: choose one of them for all tensors")
	case k.awq && (k.imatrix || k.solved):
		return k, optionf("", "awq together with imatrix, gptq or gptq-ft: choose one of them for all tensors")
	case !k.onText && len(r.Imatrix) == 0:
		return k, optionf("calibrate", "is needed by this algorithm: state self, or a file of text")
	case !k.onText && !j.choosesOnText() && j.o.CalibrateOut != "":
		return k, optionf("calibrate-out", "goes with a text: calibrate self, or calibrate with a file of text")
	}
	return k, nil
}

// calibrate is the step that chooses codes with data.
func calibrate(r *run, j *job, v *values) error {
	codes, done, err := r.calibrate(j, v.subject())
	if err == nil {
		v.codes = codes
		r.atEnd(done)
	}
	return err
}

// calibrate chooses the codes of a plan. done must be called when the codes are written.
func (r *run) calibrate(j *job, s *subject) (codes *plan.Codes, done func(), err error) {
	defer memlimit.Raise(view{j, s}.privateMemory())()
	if err := j.to.CheckOutput(s.plan.Job, j.checked()); err != nil {
		return nil, nil, err
	}
	k := j.calibration
	if !k.solved {
		codes, err = r.imatrixCodes(j, s.plan)
		return codes, func() {}, err
	}
	t, err := r.text(j, j.source.plan, k.tokens)
	if err != nil {
		return nil, nil, err
	}
	add, end := r.begin(stageCalibrate, "weights", calib.Work(s.plan))
	defer end()
	o := calib.Options{Refine: k.refine, Work: r.work, Threads: j.o.Threads, Progress: add}
	if !r.calibrated { // else this run made the layers
		o.Resumed = func(layers, of int) { r.resumed(r.work, "%d of %d layers", layers, of) }
	}
	r.calibrated = true
	result, err := calib.Run(r.ctx, s.plan, t, o)
	if err != nil {
		return nil, nil, err
	}
	return result.Codes(), result.Close, nil
}

// imatrixCodes weighs errors by second moments of files and of the text.
func (r *run) imatrixCodes(j *job, p *fromcheckpoint.Plan) (*plan.Codes, error) {
	k, names := j.calibration, j.o.Recipe.Imatrix
	im := calib.NewImatrix()
	info := provenance.Calibration{Source: "imatrix"}
	h := sha256.New()
	for _, name := range names {
		data, err := files.ReadContext(r.ctx, name, files.MaxImatrix)
		if err != nil {
			return nil, fmt.Errorf("imatrix: %w", err)
		}
		h.Write(data)
		file, err := calib.ReadImatrix(data, p)
		if err == nil {
			err = im.Merge(file)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	info.SHA256 = hex.EncodeToString(h.Sum(nil))
	if k.onText {
		t, err := r.text(j, j.source.plan, k.tokens)
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			info.Parameters = map[string]any{"imatrix-sha256": info.SHA256}
		}
		files := info.SHA256
		info.Source, info.SHA256, info.Tokens, info.Sequences = t.Source, t.SHA256, t.Tokens(), len(t.Sequences)
		info.Seed, info.Written = t.Seed, t.Written
		if im, err = r.moments(j, p, im, files, t); err != nil {
			return nil, err
		}
		im.Chunks = 0 // of files alone
	}
	if j.o.ImatrixOut != "" {
		var b bytes.Buffer
		if err := im.Write(&b); err != nil {
			return nil, err
		}
		if err := atomicfile.WriteFile(j.o.ImatrixOut, b.Bytes()); err != nil {
			return nil, err
		}
	}
	o, end := calib.Options{Threads: j.o.Threads}, func() {}
	if !k.onText { // rows that are rounded with second moments of files alone
		o.Progress, end = r.begin(stageCalibrate, "weights", calib.Weighed(p))
	}
	err := im.Choose(r.ctx, p, o)
	if end(); err != nil {
		return nil, err
	}
	codes, err := im.Codes(p, info)
	if err == nil && !k.onText {
		var bases []string
		for _, name := range names {
			bases = append(bases, filepath.Base(name))
		}
		codes.Facts = im.Facts(bases)
	}
	return codes, err
}

// momentsName is the entry of the working directory that has the second moments.
const momentsName = "moments"

// moments finds the second moments of a text, added to the moments of files with this hash, in the
// working directory, or collects them. The rows that they chose depend on the schemes, so a file of
// other widths collects its own.
func (r *run) moments(j *job, p *fromcheckpoint.Plan, files *calib.Imatrix, hash string, t *text.Text) (*calib.Imatrix, error) {
	// 2: the version of the moments and choices.
	key, err := workdir.Key(momentsName, 2, text.HashIDs(t.Sequences), p.SourceStamps(), hash, plan.Keys(p.Matrices()))
	if err != nil {
		return nil, err
	}
	im := calib.NewImatrix()
	if r.work.GetJSON(momentsName, key, im) {
		r.resumed(r.work, "the importance matrix")
		return im, nil
	}
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	layers := len(m.Config().Layers)
	m.Close()
	add, end := r.begin(stageCalibrate, "tokens", int64(layers)*int64(t.Tokens()))
	defer end()
	if err := files.Collect(r.ctx, p, t, calib.Options{Threads: j.o.Threads, Progress: add}); err != nil {
		return nil, err
	}
	return files, r.work.PutJSON(momentsName, key, files)
}
