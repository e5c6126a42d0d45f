package gq

import (
	"cmp"
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/alloc"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// QuantizeOptions are the options of Quantize and Plan. The zero value is ready to use.
type QuantizeOptions struct {
	// Recipe decides the bytes of the file; see quantizer.Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules precede the recipe's own. Default: none.
	Rules []quantizer.Rule
	// Budget chooses bits, groups and mappings tensor by tensor. Default (nil): the recipe's.
	Budget *Budget
	// Format is the format of the file. Default (FormatByName): FormatGGUF if the file's name ends in
	// .gguf, else FormatGQF. A name that ends in another format's name is refused. The formats of
	// checkpoints make a directory. The recipe's target for a format other than .gqf is the format's
	// own, its default there.
	Format Format
	// Pre is llama.cpp's name of the pre-tokenizer, for a .gguf file. It overrides the recipe's.
	// Default (""): found by the tokenizer's ids of llama.cpp's test text.
	Pre string
	// Split is the greatest size of a .gguf file, or of the tensors in a file of a checkpoint: a larger
	// model is divided into shards. Default (0): one .gguf file; 5 GB for a checkpoint, as
	// Transformers.
	Split int64
	// RecipeFile is the file that Recipe was read from, which no output may replace. Default: none.
	RecipeFile string
	// SaveRecipe names a file for the recipe that was used, with a rule for each tensor whose bits
	// were chosen. The saved recipe gives the same file again. Default: none.
	SaveRecipe string
	// ImatrixOut names a file for the importance matrix that the algorithm imatrix used. Default:
	// none.
	ImatrixOut string
	// CalibrateOut names a file for the text of calibration, or of the choice of bits or the fold: plain
	// text, or token ids if the name ends in .ids. Default: none.
	CalibrateOut string
	// Measure measures the file before it appears. If Measure has a gate, the file appears only if
	// it meets the gate. Default (nil): no measurement.
	Measure *MeasureOptions
	// Requantize accepts a GGUF file or a checkpoint whose weights are quantized, and quantizes them once
	// more. Default: false.
	Requantize bool
	// Reuse names an older .gqf file of the same checkpoint, by path or remote name. Tensors that the job would make again are
	// copied from it, see conversion.Plan.Reuse; the new file has the same bytes without. Default: none.
	Reuse string
	// Keep writes the file even if it does not meet the gate. Default: false.
	Keep bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress

	// shared is the working directory of a sweep, where its jobs keep common work. It stays open. Default (nil): directories beside the file, for this job alone.
	shared *workdir.Dir
	// part is the part of the file that is made. Default: all of it.
	part *PartOptions
}

// Quantize turns the checkpoint src into the file dst, .gqf or .gguf, or into the directory dst with a
// checkpoint in a format of another library, which appears when it is complete. src is a .safetensors
// file, a directory, or a GGUF file, with unquantized weights, or a remote name (see [Pull]). If the file does not meet the gate of
// o.Measure, Quantize returns the report and a *GateNotMetError. If the job leaves finished work, the
// error is a *ResumeError.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*QuantizeReport, error) {
	return inJob(ctx, src, dst, o, false, (*quantizeJob).quantize)
}

// Plan describes the job of Quantize with the same arguments. It chooses bits for o.Budget only if
// o.SaveRecipe or o.CalibrateOut is set, which takes as long as in Quantize. Otherwise the report describes
// the work of the choice. If an interrupted Quantize has made the choice already, the report has it.
//
// Plan writes only o.SaveRecipe and, if bits or the fold are chosen, o.CalibrateOut. It removes the
// temporary files that it makes beside dst: the checkpoint of a GGUF file, folded checkpoints, and files
// that measure choices.
func Plan(ctx context.Context, src, dst string, o QuantizeOptions) (*PlanReport, error) {
	if o.Measure != nil {
		return nil, optionf("", "a plan writes nothing that could be measured")
	}
	return inJob(ctx, src, dst, o, true, func(j *quantizeJob) (*PlanReport, error) {
		r := newPlanReport(j.plan)
		if r.Allocation = j.chosen; j.chosen != nil {
			r.OutputBytes = j.chosen.OutputBytes // with room for a description of calibration
		}
		if j.o.Budget != nil && j.chosen == nil {
			r.Choice = j.plannedChoice()
			r.OutputBytes = 0
		}
		r.Warnings = append(r.Warnings, j.warnings...)
		if j.folding != nil {
			r.FoldChoice = j.folding.choice
		}
		r.Estimate = j.estimate()
		return r, nil
	})
}

// quantizeJob is a running Quantize or Plan.
type quantizeJob struct {
	ctx  context.Context
	o    QuantizeOptions
	src  string // on this machine
	name string // as reports and errors have it
	from *source
	held []*source // released at the end
	to   *destination
	dst  string // to.Path
	dry  bool   // nothing is written
	// reuseName is o.Reuse as reports and errors have it; o.Reuse is on this machine.
	reuseName string
	start     time.Time
	stages
	measured *accuracy.Job // nil: no measurement

	// The checkpoint; after folding the folded one.
	ck     *safetensors.Checkpoint
	config []byte
	opts   conversion.Options
	plan   *conversion.Plan

	original    *conversion.Plan        // of the checkpoint before folding
	calibration *calibration            // nil: no algorithm needs it
	tuning      *tuning                 // nil: none
	folding     *folding                // nil: the checkpoint stays as it is
	chosen      *Allocation             // nil: no budget
	older       *conversion.Older       // nil: nothing is copied from an older file
	olderLayers *conversion.OlderLayers // that calibration copied; nil: it did not run
	probeBytes  int64                   // memory for the gradients that choose bits
	outline     *alloc.Outline          // nil: no budget
	written     atomic.Pointer[func(int64)]
	unmet       error // the gate's error, for a file that is kept

	// tokenizable tries the tokenizer of the checkpoint, once.
	tokenizable func() error

	opened   *safetensors.Checkpoint // the source; nil: not yet
	foreign  *conversion.Foreign     // the source, if it is a GGUF file or quantized already; nil: a checkpoint
	imported *workdir.Dir            // the checkpoint that is made of foreign
	source   []conversion.Source     // the files of foreign
	work     *workdir.Dir            // finished parts of a long job; nil: none are stored
	texts    map[string]*text.Text   // by their keys
	shown    bool                    // the text was examined and written to o.CalibrateOut
	warnings []string                // about the text

	degenerate map[string]bool // the options of degenerate texts, see warnDegenerate
}

// inJob prepares a job, calls end and cleans up.
func inJob[T any](ctx context.Context, src, dst string, o QuantizeOptions, dry bool, end func(*quantizeJob) (T, error)) (result T, err error) {
	if dst == "" {
		return result, optionf("output", "is empty: name a file, or a directory for a checkpoint")
	}
	o.Recipe = o.Recipe.WithQuality()
	if err := o.resolveFormat(dst); err != nil {
		return result, err
	}
	if o.Format.IsDirectory() && !remote.IsRemote(dst) {
		dst = filepath.Clean(dst) // the names of other files begin with it
	}
	to, err := newDestination(dst, o.Format, o.Split)
	if err != nil {
		return result, err
	}
	j := &quantizeJob{ctx: ctx, o: o, to: to, dst: to.Path, dry: dry, start: time.Now(), stages: stages{to: o.Progress}}
	defer j.release()
	defer func() { j.close() }()
	if err := j.resolve(src); err != nil {
		return result, err
	}
	if j.foreign != nil {
		defer j.foreign.Close()
	}
	if err := j.check(); err != nil {
		return result, err
	}
	if err := to.open(ctx, dry || o.part != nil); err != nil {
		return result, err
	}
	defer to.close()
	if j.foreign != nil {
		dir, err := j.importSource()
		if err != nil {
			return result, j.cleanUp(err)
		}
		if j.measured != nil {
			j.measured.Source = dir
		}
		j.from = &source{Name: j.name, Path: dir}
	}
	if err = j.openSource(src); err == nil {
		if err = j.openWork(); err == nil {
			if err = j.prepare(); err == nil {
				result, err = end(j)
			}
		}
	}
	return result, j.cleanUp(err)
}

// resolve finds the source.
func (j *quantizeJob) resolve(src string) error {
	if remote.IsRemote(src) || remote.IsRemote(j.o.Reuse) { // mistakes are found before a download
		if err := j.checkOptions(); err != nil {
			return err
		}
	}
	if err := j.findReuse(); err != nil {
		return err
	}
	err := j.find(src)
	if j.from != nil {
		j.src, j.name = j.from.Path, j.from.Name
	}
	return err
}

// check finds invalid options, and outputs that are inputs, before the checkpoint is read.
func (j *quantizeJob) check() error {
	if err := j.checkPartSource(); err != nil {
		return err
	}
	if err := j.checkPaths(); err != nil {
		return err
	}
	if err := j.checkOptions(); err != nil {
		return err
	}
	if j.measured != nil {
		j.measured.Source, j.measured.SourceName = j.src, j.name
	}
	return nil
}

// checkOptions finds invalid options, whatever the source is.
func (j *quantizeJob) checkOptions() (err error) {
	// The plan makes its own set of rules; this one finds contradictions before any work.
	if _, err := quantizer.NewRuleSet(j.o.Recipe, j.o.Rules); err != nil {
		return &OptionError{Err: err}
	}
	if j.o.Threads < 0 {
		return optionf("threads", "%d: at least 1", j.o.Threads)
	}
	if err := j.checkPart(); err != nil {
		return err
	}
	if m := j.o.Measure; m != nil {
		if j.measured, err = m.job(j.ctx); err != nil {
			return err
		}
		j.measured.Name, j.measured.Parity = j.to.Name, true
	}
	if err := j.checkReuse(); err != nil {
		return err
	}
	if b := j.o.Budget; b != nil && len(b.Groups) > 0 && j.o.Recipe.ForGGUF() {
		return optionf("group", "beside a target of bytes or divergence: the types of GGUF files, which are chosen, have groups of their own")
	}
	return j.o.Budget.check()
}

// open makes the plan of the checkpoint before folding.
func (j *quantizeJob) open(ck *safetensors.Checkpoint) (err error) {
	if j.foreign == nil && j.o.Requantize {
		return optionf("requantize", "goes with a .gguf file, or a checkpoint whose weights are quantized; %s is not quantized", j.name)
	}
	j.ck = ck
	if j.config, err = conversion.ReadConfig(ck); err != nil {
		return err
	}
	j.opts = conversion.Options{
		Recipe: j.o.Recipe, Rules: j.o.Rules, Threads: j.o.Threads, Sources: j.source,
		Assets: new(conversion.AssetCache),
		Progress: func(n int64) {
			if add := j.written.Load(); add != nil {
				(*add)(n)
			}
		},
	}
	j.o.setFormat(&j.opts)
	j.tokenizable = sync.OnceValue(func() error {
		_, err := tokenizer.Open(ck.Dir())
		return err
	})
	if !j.dry { // while the plan compresses the checkpoint's small files, in one goroutine
		var wg sync.WaitGroup
		wg.Go(func() { _ = j.tokenizable() })
		defer wg.Wait()
	}
	if j.plan, err = conversion.NewPlan(j.ck, j.config, j.opts); err != nil {
		return err
	}
	j.original = j.plan
	if j.calibration, err = j.newCalibration(); err != nil {
		return err
	}
	if j.tuning, err = j.newTuning(); err != nil {
		return err
	}
	if j.folding, err = j.newFolding(); err != nil {
		return err
	}
	if err := j.checkDivisible(); err != nil {
		return err
	}
	j.stages.plan = j.plannedStages(j.dry)
	if j.o.Budget != nil {
		return j.feasible()
	}
	return nil
}

// The stages of Quantize. Measure has further stages.
const (
	stageText      = "writing text"
	stageFold      = "folding"
	stageProbe     = "probing tensors"
	stageCalibrate = "calibrating"
	stageReuse     = "comparing"
	stageQuantize  = "quantizing"
)

// prepare folds the checkpoint and chooses bits, as the options ask.
func (j *quantizeJob) prepare() error {
	if j.folding != nil {
		if err := j.folding.run(); err != nil {
			return err
		}
		j.ck, j.config, j.opts = j.folding.ck, j.folding.config, j.folding.opts
		var err error
		if j.plan, err = conversion.NewPlan(j.ck, j.config, j.opts); err != nil {
			return err
		}
		if j.measured != nil && j.folding.folded != nil {
			j.measured.Folded = j.ck.Dir()
		}
		if j.o.Budget != nil { // an untied lm_head takes more now
			if err := j.feasible(); err != nil {
				return err
			}
		}
	}
	rules := j.opts.Rules
	if j.o.Budget != nil {
		var err error
		if j.chosen, err = j.choice(); err != nil {
			return err
		}
		if j.chosen == nil { // nothing that a plan writes needs the choice
			return nil
		}
		j.plan, rules = j.chosen.Plan, append(j.chosen.Rules, rules...)
	}
	return j.saveRecipe(rules)
}

// saveRecipe writes everything that decides the bytes of the file, if o.SaveRecipe is set. rules
// precede the recipe's own; they include the chosen ones.
func (j *quantizeJob) saveRecipe(rules []quantizer.Rule) error {
	if j.o.SaveRecipe == "" {
		return nil
	}
	r := j.opts.Recipe
	if k := j.calibration; k == nil {
		// Only the choice of bits needed a text, and the rules record it.
		r.Calibrate, r.CalibrateTokens, r.Refine, r.Imatrix = "", 0, nil, nil
	} else {
		if k.solved {
			r.Refine = new(k.refine())
		}
		if r.Calibrate != "" {
			r.CalibrateTokens = k.tokens()
		}
	}
	selfTuned := false
	if k := j.tuning; k != nil {
		r.Tune, r.TuneTokens, r.TuneText = k.kind, k.tokens(), cmp.Or(r.TuneText, quantizer.Self)
		selfTuned = r.TuneText == quantizer.Self
	}
	r.Seed = 0
	if r.Rotate || r.Calibrate == quantizer.Self || selfTuned {
		r.Seed = j.seed()
	}
	comment := j.o.Budget.comment(j.chosen)
	if j.folding != nil && j.folding.choice != nil {
		comment += "\nfold auto: " + j.folding.choice.String()
	}
	text, err := r.YAML(comment, rules)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(j.o.SaveRecipe, text)
}
