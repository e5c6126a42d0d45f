package gq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tune"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
)

// A task is what Quantize, Plan or QuantizePart is asked for.
type task struct {
	o        QuantizeOptions
	to       *location.Destination
	dry      bool         // Plan: nothing but the saved recipe and the text is written
	part     *PartOptions // of QuantizePart
	measured *measure.Job // nil: no measurement
	// shared is the working directory of a sweep, in which its jobs keep common work. It stays open.
	// nil: directories for this job alone.
	shared *workdir.Dir
}

func (t *task) writes() bool { return !t.dry && t.part == nil }

// workPath is the path of a working directory. Plan leaves the directories of Quantize alone.
func (t *task) workPath(suffix string) string {
	if !t.writes() {
		suffix = ".plan" + suffix
	}
	return t.to.Path + suffix
}

// Ends of the names of working directories: of calibration and the choice of bits, of the folded
// and of the imported checkpoint.
const (
	calibSuffix  = ".calib"
	foldSuffix   = ".fold"
	importSuffix = ".import"
)

type subject struct {
	ck     *safetensors.Checkpoint
	config []byte             // config.json; nil: none
	opts   conversion.Options // the recipe states the fold
	plan   *fromcheckpoint.Plan
	bounds *bounds // of the choice of bits; nil: no budget
}

func newSubject(ck *safetensors.Checkpoint, opts conversion.Options) (*subject, error) {
	config, err := assets.ReadConfig(ck)
	if err != nil {
		return nil, err
	}
	plan, err := conversion.NewPlan(ck, config, opts)
	return &subject{ck: ck, config: config, opts: opts, plan: plan}, err
}

func (s *subject) with(plan *fromcheckpoint.Plan) *subject {
	other := *s
	other.plan = plan
	return &other
}

// wholeModel refuses a checkpoint without all tensors of a model, or without its configuration.
func (s *subject) wholeModel(why string) error {
	if s.config == nil {
		return optionf("", "%s has no config.json: %s the model has to run", s.ck.Dir(), why)
	}
	// The model is the directory's, so a single file must be all of it.
	whole, err := safetensors.Open(s.ck.Dir(), safetensors.Options{})
	if err != nil {
		return err
	}
	defer whole.Close()
	if !slices.EqualFunc(whole.Files(), s.ck.Files(), func(a, b safetensors.SourceFile) bool { return a.Name == b.Name }) {
		return optionf("", "%s is only a part of what is in %s: %s name the directory of the whole model", s.ck.Files()[0].Name, s.ck.Dir(), why)
	}
	return nil
}

// A job is a task with the plan of its source, and what its steps are to do.
type job struct {
	task
	name        string // of the source, as reports and errors have it
	path        string // of the source on this machine
	source      *subject
	calibration calibration
	tuning      *tuning // nil: none
	// notRunnable says why gq cannot run the model of the checkpoint; "" if it can.
	notRunnable func() string
}

// A calibration says how codes are chosen with data. The zero value: no algorithm needs data.
type calibration struct {
	imatrix, solved, awq bool // algorithms in the plan; awq finishes as imatrix does
	folds                bool // the checkpoint is folded with the text; a plan has none
	refine               bool
	onText               bool
	tokens               int // of the text, at most
	// own is the number of tokens of the recipe's file, or 0 if the model writes no text to follow
	// them.
	own int
}

func (k calibration) needed() bool { return k.imatrix || k.solved || k.awq }

// seenTokens is the number of tokens at the beginning of a text that codes or bits are chosen with,
// or that the text of the choice is spread over.
func (j *job) seenTokens() int {
	switch {
	case j.calibration.onText:
		return j.calibration.tokens
	case named(j.o.Recipe.Calibrate) != "":
		return max(cmp.Or(j.o.Recipe.CalibrateTokens, calib.DefaultTokens), j.choiceTokens())
	}
	return j.choiceTokens()
}

// heldOutTokens is the number of tokens that files are measured on. A limit of divergence needs
// many: the margin for other text shrinks with the root of the number. So does the standard error
// of the difference between two files.
func (j *job) heldOutTokens() int {
	if b := j.o.Budget; b != nil && b.MaxKL > 0 {
		return heldOutMost
	}
	n := j.calibration.tokens / heldOutShare
	if j.measuredFiles(evaluations) == compared {
		n *= 2
	}
	return min(max(n, heldOutLeast), heldOutMost)
}

// The length of the held-out text is a fraction of the calibration text's, within these bounds.
const (
	heldOutShare  = 8
	heldOutLeast  = 256
	heldOutMost   = 4096
	stageHeldText = "writing held-out text" // if a file of text has no rest
)

// A tuning says how numbers are trained after calibration.
type tuning struct {
	kind   quantizer.Tune
	self   bool // the model writes the text
	steps  int  // with the whole model, at most
	tokens int  // of the text, at most
	length int  // of the text; tokens if it is not written yet
	size   tune.Size
}

// bounds are the limits of the choice of bits for a checkpoint.
type bounds struct {
	outline *alloc.Outline
	minBits int // of the options
	// bytes: of gradients, and of the divergences on the text of the choice and on held-out text
	gradients, choice, heldOut int64
}

// choosesOnText reports whether bits or the fold are chosen on a text, whatever the algorithm.
func (j *job) choosesOnText() bool { return j.o.Budget != nil || j.o.Recipe.Auto }

// textCalibrated reports whether codes are chosen on a text: the loss is then measured on another
// text. A sweep measures its files itself.
func (j *job) textCalibrated() bool {
	return j.calibration.onText && j.shared == nil
}

func (j *job) seed() uint64 { return cmp.Or(j.o.Recipe.Seed, 1) }

// checked reports whether the complete file is read before it appears.
func (j *job) checked() bool { return j.measured != nil || j.textCalibrated() }

// awq reports whether factors of AWQ are folded into the checkpoint.
func (j *job) awq() bool { return j.calibration.awq && j.calibration.folds }

// foldsFor returns the steps for which the job folds the checkpoint, in words; "" if it does not.
func (j *job) foldsFor() string {
	switch r := j.o.Recipe; {
	case r.Auto:
		return "fold auto"
	case r.Rotate:
		return "rotate"
	case r.Equalize:
		return "equalize"
	case j.awq():
		return "algorithm awq"
	}
	return ""
}

// An input is the source of a job: a checkpoint, or the model of another program that a checkpoint
// is made of.
type input struct {
	*location.Source
	ck      *safetensors.Checkpoint // nil: not open yet
	foreign imports.Foreign         // nil: the source is a checkpoint
	files   []provenance.Source     // of foreign, or of a checkpoint with adapters
	merges  bool                    // ck merges adapters into rows as they are read
}

// Streams reports whether some weights are made or fetched when they are read.
func (in *input) Streams() bool { return in.merges || in.Source.Streams() }

// values are the results of the steps that a run has behind it.
type values struct {
	fold   *FoldChoice // nil: the recipe states the fold
	source *subject    // the folded checkpoint, or else the job's
	bits   *Allocation // nil: no budget, or a plan that does not choose
	choice storedChoice
	codes  *plan.Codes
	tuning *TuningReport // nil: not tuned
	report *QuantizeReport
}

// subject is the checkpoint with the plan of the file.
func (v *values) subject() *subject {
	if v.bits == nil {
		return v.source
	}
	return v.source.with(v.bits.Plan)
}

type storedChoice struct {
	Rows         []alloc.Row
	ActivationKL float64
	Source       string
	KL           *float64
	Evaluations  []alloc.Evaluation
	Warnings     []string // about the text
}

// A view is a job with the checkpoint that it quantizes: the table of steps decides and estimates
// by both.
type view struct {
	*job
	*subject
}

// named returns the name of a file of text; "" for text that the model writes.
func named(text string) string {
	if text == quantizer.Self {
		return ""
	}
	return text
}

// The names of the steps. Package accuracy names the steps of a measurement.
const (
	stageText       = "writing text"
	stageFoldChoice = "choosing the fold"
	stageFold       = "folding"
	stageProbe      = "probing tensors"
	stageCalibrate  = "calibrating"
	stageTuneText   = "writing text to tune on"
	stageTune       = "tuning"
	stageCompare    = "comparing tuned and untuned"
	stageQuantize   = "quantizing"
	stageHeldOut    = "measuring"
)

// once is the number of runs of a step that a job has or does not have.
func once(has bool) int {
	if has {
		return 1
	}
	return 0
}

// A run has what the steps of a job use: the progress, the working directories and the texts.
type run struct {
	ctx   context.Context
	start time.Time
	stages
	warnings []string // for the report
	ended    []func() // called at the end, the last first

	dirs map[string]*workdir.Dir // by the ends of their names
	work *workdir.Dir            // of calibration and the choice of bits; nil: nothing is kept

	texts      map[string]*text.Text // that the model wrote, by their keys
	shown      bool                  // the text was examined and written to o.CalibrateOut
	degenerate map[string]bool       // the options of degenerate texts, see warnDegenerate
	calibrated bool                  // this run made layers of gptq or gptq-ft
}

func newRun(ctx context.Context, to Progress) *run {
	return &run{
		ctx: ctx, start: time.Now(), stages: stages{to: to},
		dirs: map[string]*workdir.Dir{}, texts: map[string]*text.Text{}, degenerate: map[string]bool{},
	}
}

// atEnd has f called when the job ends.
func (r *run) atEnd(f func()) { r.ended = append(r.ended, f) }

// close calls what atEnd was given.
func (r *run) close() {
	for _, f := range slices.Backward(r.ended) {
		f()
	}
	r.ended = nil
}

// warn adds a warning to the report, unless the report has the same.
func (r *run) warn(format string, args ...any) (added bool) {
	warning := fmt.Sprintf(format, args...)
	if slices.Contains(r.warnings, warning) {
		return false
	}
	r.warnings = append(r.warnings, warning)
	return true
}

func (r *run) openDir(t *task, suffix string) (d *workdir.Dir, err error) {
	if t.shared != nil {
		return t.shared, nil
	}
	if d = r.dirs[suffix]; d == nil {
		if d, err = workdir.Open(t.workPath(suffix)); err == nil {
			r.dirs[suffix] = d
		}
	}
	return d, err
}

// dir is the open working directory of a suffix; nil: nothing is kept.
func (r *run) dir(j *job, suffix string) *workdir.Dir { return cmp.Or(j.shared, r.dirs[suffix]) }

// resumed logs that an earlier job did a part of this one.
func (r *run) resumed(d *workdir.Dir, format string, args ...any) {
	r.logf("resumed: found %s in %s", fmt.Sprintf(format, args...), d.Path())
}
