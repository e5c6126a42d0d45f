package gq

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/tune"
)

// A job is a row of steps. Each makes a value of the values before it:
//
//	options    ->  task             what is asked for, checked
//	task       ->  input            the source, found, and imported if it is no checkpoint
//	input      ->  job              the checkpoint with its plan, and what the steps are to do
//	job        ->  FoldChoice       how to fold, if the recipe leaves that open
//	FoldChoice ->  subject          the folded checkpoint with its plan
//	subject    ->  Allocation       the plan with chosen bits, and its rules
//	Allocation ->  CalibratedCodes  codes that calibration chose
//	codes      ->  CalibratedCodes  tuned codes
//	codes      ->  QuantizeReport   the file, measured before it appears
//
// Nothing changes a value once it is made. A run has what all steps use: the context, the progress,
// the working directories, and the texts that the model wrote.

type step struct {
	stage string // the step's name for progress
	// dir ends the name of the working directory, and keeps are the names of the entries there, up to
	// a number or a hyphen, with which the next run goes on.
	dir   string
	keeps []string
	// runs is how often the step probably runs, plans how often a plan needs it. 0 or nil: not at all.
	runs, plans func(v view) int
	// cost estimates the work of one run, memory the private memory and disk the size of the entries.
	// nil: none.
	cost         func(v view) float64
	memory, disk func(v view) int64
	// key lists everything that the step's value depends on, and the version of the step. The first
	// entry of the working directory then keeps the value, which entry points at. nil: make looks for
	// what an earlier run kept.
	key   func(r *run, j *job, v *values) ([]any, error)
	entry func(v *values) any
	// make adds the step's value. nil: the steps that need the value make it.
	make func(r *run, j *job, v *values) error
	// use adds what follows from the value of entry. A value of an earlier run that does not suit the
	// job is made again; if it does, found is called first.
	use func(r *run, j *job, v *values, found func(what string)) (suits bool, err error)
	// file says that the step makes the file of the values before it: a dry run ends before it.
	file bool
}

// steps returns the table of steps, in their order.
func steps() []step {
	return []step{
		{
			stage: stageText, dir: calibSuffix, keeps: []string{textName, draftName, heldOutName, heldDraft},
			runs: func(v view) int {
				return once(v.ownText() && (v.choosesOnText() || v.calibration.onText && v.calibration.needed()))
			},
			plans: func(v view) int { return once(v.choosesOnText() && v.ownText()) }, cost: func(v view) float64 { return v.textCost(v.textTokens()) },
			memory: view.textBytes,
		}, {
			stage: stageFoldChoice, dir: foldSuffix, keeps: []string{choiceName},
			runs: view.foldChoices, plans: view.foldChoices, cost: view.foldChoiceCost, memory: view.foldChoiceBytes,
			key: foldChoiceKey, entry: func(v *values) any { return &v.fold }, make: chooseFold, use: useFold,
		}, {
			stage: stageFold, dir: foldSuffix, keeps: []string{"fold"},
			runs: func(v view) int { return once(v.folds() || v.calibration.awq) }, plans: func(v view) int { return once(v.folds()) },
			cost: view.foldCost, memory: view.foldBytes, make: foldSource,
		}, {
			stage: stageProbe, dir: calibSuffix, keeps: []string{bitsName, measuredName, "probes"},
			runs:  func(v view) int { return once(v.o.Budget != nil) },
			plans: func(v view) int { return once(v.o.Budget != nil && (v.o.SaveRecipe != "" || v.o.CalibrateOut != "")) },
			cost:  view.probeCost, memory: view.probeBytes, disk: view.candidateBytes,
			key: choiceKey, entry: func(v *values) any { return &v.choice }, make: chooseBits, use: useBits,
		}, {
			stage: stageCalibrate, dir: calibSuffix, keeps: []string{"layer", momentsName},
			runs:  func(v view) int { return once(v.calibration.needed()) * max(v.measuredFiles(evaluations), 1) },
			plans: func(v view) int { return once(v.calibration.needed()) * v.measuredFiles(evaluations) },
			cost:  view.calibrationCost, memory: view.calibrationBytes, disk: view.codesBytes, make: calibrate, file: true,
		}, {
			stage: stageTuneText, dir: calibSuffix, keeps: []string{tuneText, tuneDraft},
			runs: func(v view) int { return once(v.tuning != nil && v.tuning.self) }, cost: func(v view) float64 { return v.textCost(v.tuning.tokens) },
			memory: func(v view) int64 { return v.writerBytes(&selfText{tokens: v.tuning.tokens}) },
		}, {
			stage: stageTune, dir: calibSuffix, keeps: []string{"tuning", "tuned-layer"},
			runs: func(v view) int { return once(v.tuning != nil) }, cost: view.tuneCost,
			memory: func(v view) int64 { return v.tuning.size.Memory }, disk: func(v view) int64 { return v.tuning.size.Disk },
			make: tuneCodes, file: true,
		}, {
			stage: stageCompare,
			runs:  func(v view) int { return once(v.tuning != nil) }, cost: view.compareCost,
		}, {
			stage: stageQuantize,
			runs:  func(v view) int { return 1 }, cost: view.codesCost, make: writeFile, file: true,
		}, {
			stage: stageHeldOut,
			runs:  func(v view) int { return once(v.textCalibrated()) },
			// both models
			cost: func(v view) float64 { return v.passCost(2 * float64(v.heldOutTokens())) }, memory: view.heldOutBytes,
		},
	}
}

// times is how often a step probably runs in the task.
func (v view) times(s step) int {
	switch {
	case !v.dry:
		return s.runs(v)
	case s.plans == nil:
		return 0
	}
	return s.plans(v)
}

// whole is how often a step probably runs in a task that writes the file.
func (v view) whole(s step) int { return s.runs(v) }

// stages lists the stages of the job for progress and for the estimate of time. A resumed job skips
// finished stages.
func (v view) stages(times func(v view, s step) int) (list []*planned) {
	for _, s := range steps() {
		if n := times(v, s); n > 0 {
			list = append(list, &planned{s.stage, s.cost(v), n})
		}
	}
	if v.measured != nil {
		list = append(list, accuracyStages(v.measured, weights(v.plan))...)
	}
	return list
}

// estimate predicts the job: the sum of the estimates of its steps, and of memory the largest.
func (v view) estimate() *Estimate {
	e := &Estimate{Threads: cpu.Threads(v.o.Threads), MemoryBytes: v.privateMemory()}
	for _, s := range steps() {
		if s.disk != nil && s.runs(v) > 0 {
			e.DiskBytes += s.disk(v)
		}
	}
	cost := 0.0
	for _, s := range v.stages(view.whole) {
		cost += s.cost * float64(s.runs)
	}
	e.Seconds = cost * unitSeconds * cpuSpeed().others / float64(e.Threads)
	e.How = "time: CPU time per weight and token, by this CPU's measured speed and the threads; memory: buffers of the threads"
	if v.tuning != nil {
		e.How += fmt.Sprintf(", with %.1f MB for tuning: up to %d bytes for each trained number, a byte for each weight, and what a layer needs for %d tokens", float64(v.tuning.size.Memory)/1e6, tune.NumberBytes(v.tuning.kind), tune.StepTokens)
		e.How += v.tuning.size.Layers
	}
	if v.calibration.needed() {
		e.How += ", and matrices and hidden states of the largest layer"
	}
	return e
}

// privateMemory is the private memory of the job at its peak, whether or not it is only planned.
func (v view) privateMemory() int64 {
	n := baseBytes + int64(cpu.Threads(v.o.Threads))*threadBytes + int64(len(v.plan.Tensors))*tensorBytes
	size := v.tokenizerBytes()
	n += min(12*size, parserBytes+perParsed*size/10)
	if v.ck.Remote() {
		most, _ := v.plan.Streams()
		n += most
	}
	most := int64(0) // a step frees its memory at its end
	for _, s := range steps() {
		if s.memory != nil && s.runs(v) > 0 {
			most = max(most, s.memory(v))
		}
	}
	return n + most
}

// Memory of every job, measured as RssAnon: 5 MB with one thread, 7 MB with two. The directory of
// 200,000 tensors takes 200 MB while it is made.
const (
	baseBytes   = 4 << 20
	threadBytes = 3 << 20
	tensorBytes = 1100
	// The tokenizer is parsed while a copy of it is compressed for the file: 21 MB for Llama 2's
	// tokenizer.json of 1.8 MB, 70 for Llama 3's of 9.1, 77 for Qwen 3's of 11.4, 175 for Gemma 3's
	// of 33.4.
	parserBytes = 20_000_000
	perParsed   = 47 // tenths of a byte for each byte of a large file
)

// unitSeconds is the CPU time of a unit of cost on the EPYC of quantize_cost.go.
const unitSeconds = .026
