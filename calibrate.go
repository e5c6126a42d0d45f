package gq

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer/calib"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// calibration is the part of a job that chooses codes with calibration.
type calibration struct {
	*quantizeJob
	imatrix, solved, awq bool // algorithms in the plan; awq finishes as imatrix does
	ran                  bool // calib.Run was called
}

// newCalibration returns the calibration that the plan's algorithms need, or nil. It refuses
// contradictory options.
func (j *quantizeJob) newCalibration() (*calibration, error) {
	k := &calibration{quantizeJob: j}
	for _, m := range j.plan.Matrices() {
		k.awq = k.awq || m.Scheme.Algorithm == gqf.AlgorithmAWQ
		k.imatrix = k.imatrix || m.Scheme.Algorithm == gqf.AlgorithmImatrix
		k.solved = k.solved || m.Scheme.Algorithm.ByLayers()
	}
	r := j.o.Recipe
	if !k.imatrix && !k.solved && !k.awq {
		return nil, j.uncalibrated()
	}
	switch {
	case k.imatrix && k.solved:
		return nil, optionf("", "imatrix together with gptq or gptq-ft: choose one of them for all tensors")
	case k.awq && (k.imatrix || k.solved):
		return nil, optionf("", "awq together with imatrix, gptq or gptq-ft: choose one of them for all tensors")
	case !k.imatrix && len(r.Imatrix) > 0:
		return nil, optionf("imatrix", "goes with algorithm imatrix")
	case !k.imatrix && j.o.ImatrixOut != "":
		return nil, optionf("imatrix-out", "goes with algorithm imatrix")
	case !k.solved && k.refine():
		return nil, optionf("refine", "goes with algorithm gptq or gptq-ft")
	case r.Calibrate == "" && len(r.Imatrix) == 0:
		return nil, optionf("calibrate", "is needed by this algorithm: state self, or a file of text")
	case r.Calibrate == "" && !j.choosesOnText() && j.o.CalibrateOut != "":
		return nil, optionf("calibrate-out", "goes with a text: calibrate self, or calibrate with a file of text")
	case j.dry && !j.choosesOnText() && j.o.CalibrateOut != "":
		return nil, optionf("calibrate-out", "has no text to write: a plan needs none, unless it chooses bits or the fold")
	case r.CalibrateTokens != 0 && r.CalibrateTokens < 16:
		return nil, optionf("calibrate-tokens", "%d: at least 16", r.CalibrateTokens)
	}
	return k, nil
}

// uncalibrated refuses options of calibration for a plan whose algorithms need none. Budgets and the
// choice of a fold need a text too, and rotations a seed.
func (j *quantizeJob) uncalibrated() error {
	r := j.o.Recipe
	const calibrated, imatrix = "gptq, gptq-ft, imatrix or awq", "imatrix"
	for _, option := range []struct {
		name       string
		set        bool
		algorithms string
	}{
		{"calibrate", r.Calibrate != "" && !j.choosesOnText(), calibrated},
		{"calibrate-tokens", r.CalibrateTokens != 0 && j.o.Budget == nil, calibrated},
		{"seed", r.Seed != 0 && !j.choosesOnText() && !r.Rotate && !r.Tunes(), calibrated},
		{"refine", r.Refine != nil, "gptq or gptq-ft"},
		{"imatrix", len(r.Imatrix) > 0, imatrix},
		{"imatrix-out", j.o.ImatrixOut != "", imatrix},
		{"calibrate-out", j.o.CalibrateOut != "" && !j.choosesOnText(), calibrated},
	} {
		if option.set {
			return optionf(option.name, "goes with algorithm %s", option.algorithms)
		}
	}
	return nil
}

// choosesOnText reports whether bits or the fold are chosen on a text, whatever the algorithm.
func (j *quantizeJob) choosesOnText() bool { return j.o.Budget != nil || j.o.Recipe.Auto }

// seed is the seed of texts and rotations.
func (j *quantizeJob) seed() uint64 { return cmp.Or(j.o.Recipe.Seed, 1) }

// run chooses the codes of a plan. done must be called when they are written.
func (k *calibration) run(p *conversion.Plan) (codes *conversion.CalibratedCodes, done func(), err error) {
	defer memlimit.Raise(k.memory(p, cpu.Threads(k.o.Threads)))()
	if err := k.to.checkOutput(p, k.checked()); err != nil {
		return nil, nil, err
	}
	if !k.solved {
		codes, err = k.runImatrix(p)
		return codes, func() {}, err
	}
	t, err := k.text(k.original, k.tokens())
	if err != nil {
		return nil, nil, err
	}
	add, end := k.begin(stageCalibrate, "weights", calib.Work(p))
	o := calib.Options{Refine: k.refine(), Work: k.work, Threads: k.o.Threads, Progress: add, Older: k.older}
	if !k.ran { // else this job made the layers
		o.Resumed = func(layers, of int) { k.resumed(k.work, fmt.Sprintf("%d of %d layers", layers, of)) }
	}
	k.ran = true
	result, err := calib.Run(k.ctx, p, t, o)
	end()
	if err != nil {
		return nil, nil, err
	}
	k.olderLayers = result.Older
	return result.Codes(), result.Close, nil
}

// tokens is the number of calibration tokens.
func (k *calibration) tokens() int { return cmp.Or(k.o.Recipe.CalibrateTokens, calib.DefaultTokens) }

func (k *calibration) refine() bool { return k.o.Recipe.Refine != nil && *k.o.Recipe.Refine }

// momentsName is the entry of the working directory that has the second moments.
const momentsName = "moments"

// moments finds the second moments of a text, added to the moments of files with this hash, in the
// working directory, or collects them. The rows that they chose depend on the schemes, so a file of
// other widths collects its own.
func (k *calibration) moments(p *conversion.Plan, files *calib.Imatrix, hash string, t *text.Text) (*calib.Imatrix, error) {
	type matrix struct {
		Name          string
		Scheme        rounding.Scheme
		SmallestScale float32
	}
	var list []matrix
	for _, m := range p.Matrices() {
		list = append(list, matrix{m.Name(), m.Scheme, m.SmallestScale})
	}
	// 2: the version of the moments and choices.
	key, err := workdir.Key(momentsName, 2, text.HashIDs(t.Sequences), p.SourceStamps(), hash, list)
	if err != nil {
		return nil, err
	}
	im := calib.NewImatrix()
	if k.work != nil && k.work.GetJSON(momentsName, key, im) {
		k.resumed(k.work, "the importance matrix")
		return im, nil
	}
	if err := k.collect(files, p, t); err != nil {
		return nil, err
	}
	if k.work != nil {
		err = k.work.PutJSON(momentsName, key, files)
	}
	return files, err
}

// collect adds the second moments of a text to an importance matrix.
func (k *calibration) collect(im *calib.Imatrix, p *conversion.Plan, t *text.Text) error {
	m, err := model.OpenCheckpoint(p.SourceDir(), model.Options{Threads: 1})
	if err != nil {
		return err
	}
	layers := len(m.Config().Layers)
	m.Close()
	add, end := k.begin(stageCalibrate, "tokens", int64(layers)*int64(t.Tokens()))
	defer end()
	return im.Collect(k.ctx, p, t, calib.Options{Threads: k.o.Threads, Progress: add})
}

func (k *calibration) runImatrix(p *conversion.Plan) (*conversion.CalibratedCodes, error) {
	r := k.o.Recipe
	im := calib.NewImatrix()
	info := conversion.Calibration{Source: "imatrix"}
	h := sha256.New()
	for _, name := range r.Imatrix {
		data, err := files.ReadContext(k.ctx, name, files.MaxImatrix)
		if err != nil {
			return nil, fmt.Errorf("imatrix: %w", err)
		}
		h.Write(data)
		one, err := calib.ReadImatrix(data, p)
		if err == nil {
			err = im.Merge(one)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	info.SHA256 = hex.EncodeToString(h.Sum(nil))
	if r.Calibrate != "" {
		t, err := k.text(k.original, k.tokens())
		if err != nil {
			return nil, err
		}
		if len(r.Imatrix) > 0 {
			info.Parameters = map[string]any{"imatrix-sha256": info.SHA256}
		}
		files := info.SHA256
		info.Source, info.SHA256, info.Tokens, info.Sequences, info.Seed = t.Source, t.SHA256, t.Tokens(), len(t.Sequences), t.Seed
		if im, err = k.moments(p, im, files, t); err != nil {
			return nil, err
		}
	}
	if k.o.ImatrixOut != "" {
		var b bytes.Buffer
		if err := im.Write(&b); err != nil {
			return nil, err
		}
		if err := atomicfile.WriteFile(k.o.ImatrixOut, b.Bytes()); err != nil {
			return nil, err
		}
	}
	if err := k.choose(im, p); err != nil {
		return nil, err
	}
	return im.Codes(p, info)
}

// choose chooses the rows that are rounded with second moments of files alone.
func (k *calibration) choose(im *calib.Imatrix, p *conversion.Plan) error {
	o := calib.Options{Threads: k.o.Threads}
	if k.o.Recipe.Calibrate == "" {
		var end func()
		o.Progress, end = k.begin(stageCalibrate, "weights", calib.Weighed(p))
		defer end()
	}
	return im.Choose(k.ctx, p, o)
}
