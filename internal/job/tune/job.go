package tune

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

// Options of a job. The zero value is ready to use.
type Options struct {
	// Kind chooses the numbers to train. Default: quantizer.TuneFloats.
	Kind quantizer.Tune
	// Steps bounds the steps, as at most three passes over the text do. Default (0): DefaultSteps.
	Steps int
	// Work stores the state, from which a job for the same result resumes. Default: none.
	Work *workdir.Dir
	// Resumed is called with the steps of an interrupted job, if any, and of all. Default: none.
	Resumed func(steps, of int)
	// Threads is the number of goroutines; the result is the same for any. Default: GOMAXPROCS.
	Threads int
	// Progress is called with the number of steps since the last call. A step of the whole model
	// counts as a step of each layer, if layers are trained. Default: none.
	Progress func(n int64)
	// Evaluated is called after each measurement on held-out text. Default: none.
	Evaluated func(Evaluation)
	// Trained is called after each layer of quantizer.TuneBlocks. Default: none.
	Trained func(TrainedLayer)

	// Defaults: the constants.
	codesRate, softRate float64
	mostState           int64
}

// Evaluation is a measurement on held-out text with dequantized weights and float32 activations.
type Evaluation struct {
	Step, Steps int
	KL          float64 // nats per token
	Best        float64 // the smallest up to this step
}

type job struct {
	Options
	ctx   context.Context
	plan  *fromcheckpoint.Plan
	codes *plan.Codes // before training
	text  *Text
	pool  *kernels.Pool

	teacher, student *forward.Model
	held             *eval.Reference
	matrices         []*matrix          // of the model
	linears          map[string]*matrix // by the linear layer's name
	embedding        *matrix            // nil: unquantized
	// layered are the matrices that are trained layer by layer, by the linear layer's name. Their
	// codes are in memory while their layer is trained.
	layered map[string]plan.Matrix
	layers  trainedLayers
	gains   []*gains
	gainsOf map[string]*gains // by tensor
	tapes   tapes

	all     []*trained
	batches [][][]int32 // by step
	state   state
	key     string
}

// The constants of training. The rates were chosen with the models of docs/QUALITY.md.
const (
	StepTokens = 512
	// Evaluations is the number of measurements on held-out text after the first.
	Evaluations = 16
	rate        = 4e-3
	coarseRate  = 6e-3 // up to 2.5 bits
	codesRate   = 1e-2
	// fineCodes and fineScales are the parts of the rates after layers with more than 2.5 bits. At
	// the whole rate, the first steps undid layers: stories260K's KL at 4 bits rose by a quarter.
	fineCodes, fineScales = .3, .5
	passes                = 3
	// If the divergence grows by this factor from where the rates began, the job goes back to its
	// best step, and divides the rates by 2^cutBits. Rates for models of a million weights ruined
	// SmolLM2-135M at 2.6 bits per weight: its KL rose from .49 to 1.13 in 95 steps.
	worse, cutBits = 1.02, 2
)

// saveInterval bounds the time that a killed job loses. If the state is large, saving takes at most
// 1/saveShare of the time, and a killed job may lose more.
const (
	saveInterval = 20 * time.Second
	saveShare    = 20
)

// Run trains the numbers of a plan with the codes c. Package model must run the plan's checkpoint.
func Run(ctx context.Context, p *fromcheckpoint.Plan, c *plan.Codes, t *Text, o Options) (*Result, error) {
	o.Kind = cmp.Or(o.Kind, quantizer.TuneFloats)
	o.codesRate, o.softRate = cmp.Or(o.codesRate, codesRate), cmp.Or(o.softRate, softRate)
	o.Steps = Steps(p, o, t.TrainTokens())
	j := &job{Options: o, ctx: ctx, plan: p, codes: cmp.Or(c, &plan.Codes{}), text: t, linears: map[string]*matrix{}}
	if j.Progress == nil {
		j.Progress = func(int64) {}
	}
	defer j.close()
	r, err := j.run()
	if err != nil {
		j.layers.close()
	}
	return r, err
}

func (j *job) run() (*Result, error) {
	if err := j.open(); err != nil {
		return nil, err
	}
	if Layered(j.Kind) {
		if err := j.trainBlocks(); err != nil {
			return nil, err
		}
		if j.Steps == 0 {
			return j.layersResult(), nil
		}
		if err := j.takeLayers(); err != nil {
			return nil, err
		}
	}
	if err := j.prepare(); err != nil {
		return nil, err
	}
	if err := j.train(); err != nil {
		return nil, err
	}
	return j.result(), nil
}

func quiet(kernels.Choice) {}

func (j *job) open() (err error) {
	j.pool = kernels.NewPool(j.Threads)
	o := forward.Options{Threads: j.Threads, Log: quiet}
	dir := j.plan.SourceDir()
	if j.student, err = forward.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	o.Packed = packs(j.plan)
	if j.teacher, err = forward.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	inLayers := map[string]bool{}
	if j.layered = map[string]plan.Matrix{}; Layered(j.Kind) {
		for layer := range j.student.Config().Layers {
			for _, name := range j.layerLinears(layer) {
				inLayers[name] = true
			}
		}
	}
	for _, m := range j.plan.Matrices() {
		name := j.linearName(m)
		switch {
		case name == "" && !j.isEmbedding(m):
			continue
		case inLayers[name] && !j.isEmbedding(m):
			j.layered[name] = m
			continue
		}
		codes, err := j.start(m)
		if err != nil {
			return err
		}
		if _, _, err := j.place(m, codes, name); err != nil {
			return err
		}
	}
	return nil
}

// layerLinears lists the linear layers of a decoder layer.
func (j *job) layerLinears(layer int) (list []string) {
	for _, stage := range j.student.Stages(layer) {
		for _, g := range stage {
			list = append(list, g.Linears...)
		}
	}
	return list
}

// packedBytes bounds the checkpoints that get a copy of the teacher in the order of its kernels.
const packedBytes = 1 << 29

func packs(p *fromcheckpoint.Plan) bool { return p.SourceBytes <= packedBytes }

func (j *job) linearName(m plan.Matrix) string {
	switch {
	case m.Shared:
		return j.student.Head()
	case j.student.Linear(m.Name()) != nil && !(m.Role == gqf.RoleEmbedding):
		return m.Name()
	}
	return ""
}

func (j *job) isEmbedding(m plan.Matrix) bool {
	c := j.student.Config()
	return m.Role == gqf.RoleEmbedding && m.Cols == c.HiddenSize && m.Rows == c.VocabSize && j.embedding == nil
}

// place makes the student use codes, until undo.
func (j *job) place(m plan.Matrix, c *rounding.Codes, linear string) (t *matrix, undo func(), err error) {
	if err := j.ctx.Err(); err != nil {
		return nil, nil, err
	}
	if t, err = newMatrix(m, c); err != nil {
		return nil, nil, err
	}
	if j.isEmbedding(m) {
		j.embedding, t.embedded = t, true
		j.student.SetEmbedding(t)
	}
	if undo = func() {}; linear != "" {
		op, err := kernels.NewRows(t.Rows, t.Cols, j.plan.Factors[t.Tensor].Divided(t.row), nil, kernels.Options{Log: quiet})
		if err != nil {
			return nil, nil, err
		}
		if undo, err = j.student.SetLinear(linear, op, false); err != nil {
			return nil, nil, err
		}
		j.linears[linear] = t
	}
	j.matrices = append(j.matrices, t)
	return t, undo, nil
}

// prepare makes the parameters, the batches, and the float model's predictions of held-out text.
func (j *job) prepare() (err error) {
	if err := j.setKey(); err != nil { // of the codes before training
		return err
	}
	r, codes := j.rates()
	for _, m := range j.matrices {
		m.train(j.Kind == quantizer.TuneNorms, r)
		j.all = append(j.all, m.scales.by)
		if m.mins != nil && m.mins.by != m.scales.by {
			j.all = append(j.all, m.mins.by)
		}
		if j.Kind != quantizer.TuneCodes || m.embedded {
			continue
		}
		err := m.trainCodes(codes, j.reader(m))
		if err != nil {
			return err
		}
		if m.steps != nil {
			j.all = append(j.all, m.steps)
		}
	}
	if err := j.openGains(r); err != nil {
		return err
	}
	if j.tapes.teacher, err = j.teacher.NewTape(tapeOptions); err != nil {
		return err
	}
	o := tapeOptions
	o.Outputs = j.Kind == quantizer.TuneNorms // for factors of rows
	j.tapes.student, err = j.student.NewTape(o)
	j.batches = j.text.batches(j.Steps)
	return err
}

func (j *job) heldOut() (float64, error) {
	if j.held == nil {
		var err error
		if j.held, err = eval.NewReference(j.ctx, j.teacher, j.text.HeldOut); err != nil {
			return 0, err
		}
	}
	kl, err := j.held.KL(j.ctx, j.student)
	if err != nil {
		return 0, err
	}
	return kl, finite(kl)
}

func finite(kl float64) error {
	if kl-kl != 0 {
		return fmt.Errorf("tuning: the divergence of the quantized model is %v: tune less (--tune norms), or not (--tune off)", kl)
	}
	return nil
}

func (j *job) reader(m *matrix) func(dst []float32, first, rows int) error {
	return func(dst []float32, first, rows int) error { return j.plan.ReadRows(dst, m.Matrix, first, rows) }
}

// rates are the learning rates of floats and codes of the whole model.
func (j *job) rates() (floats, codes float64) {
	switch {
	case Coarse(j.plan):
		return coarseRate, j.codesRate
	case Layered(j.Kind):
		return float64(fineScales * rate), float64(fineCodes * j.codesRate)
	}
	return rate, j.codesRate
}

// train runs the remaining steps. The working directory then has the state, even if cancelled.
func (j *job) train() error {
	if err := j.resume(); err != nil {
		return err
	}
	err := j.steps()
	if err != nil && j.ctx.Err() == nil {
		return err
	}
	return cmp.Or(j.save(), err)
}

func (j *job) steps() error {
	saved, interval := time.Now(), saveInterval
	for {
		s := j.state.Step
		due := s == 0 || s*Evaluations/j.Steps > (s-1)*Evaluations/j.Steps
		if due && !j.state.Measured {
			if err := j.evaluate(); err != nil {
				return err
			}
		}
		if j.state.Step == j.Steps {
			return nil
		}
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if time.Since(saved) > interval {
			began := time.Now()
			if err := j.save(); err != nil {
				return err
			}
			saved = time.Now()
			interval = max(saveInterval, saveShare*saved.Sub(began))
		}
		if err := j.step(); err != nil {
			return err
		}
		j.progress(1)
	}
}

// progress reports steps of the whole model.
func (j *job) progress(steps int) {
	if Layered(j.Kind) {
		steps *= len(j.student.Config().Layers)
	}
	j.Progress(int64(steps))
}

func (j *job) step() error {
	if err := j.gradients(j.batches[j.state.Step]); err != nil {
		return err
	}
	first, second := corrections(j.state.Step - j.state.Since)
	part := math.Ldexp(schedule(j.state.Step, j.Steps), -cutBits*j.state.Cuts)
	for _, t := range j.all {
		j.rows(len(t.x), 1<<14, func(from, to int) { t.update(from, to, float64(part*t.rate), first, second) })
	}
	j.state.Step++
	j.state.Measured = false
	return j.refresh()
}

func (j *job) refresh() error {
	for _, m := range j.matrices {
		j.refreshMatrix(m)
	}
	return j.setGains()
}

func (j *job) refreshMatrix(m *matrix) {
	j.rows(m.Rows, max(1, 1<<14/m.Cols), func(from, to int) {
		if m.steps != nil {
			m.confine(from*m.Cols, to*m.Cols)
		}
		m.refresh(from, to)
	})
}

// evaluate measures the student on the held-out text, and keeps its parameters if best so far.
func (j *job) evaluate() error {
	kl, err := j.heldOut()
	if err != nil {
		return err
	}
	s := &j.state
	s.Measured = true
	if s.Step == 0 {
		s.Before, s.From = kl, kl
	}
	switch {
	case s.Step == 0 || kl < s.After:
		s.After, s.BestStep = kl, s.Step
		for _, t := range j.all {
			copy(t.best, t.x)
		}
	case kl > float64(worse*s.From):
		s.Cuts, s.Since, s.From = s.Cuts+1, s.Step, s.After
		for _, t := range j.all {
			copy(t.x, t.best)
			clear(t.m)
			clear(t.v)
		}
		if err := j.refresh(); err != nil {
			return err
		}
	}
	if j.Evaluated != nil {
		j.Evaluated(Evaluation{s.Step, j.Steps, kl, s.After})
	}
	return nil
}

// rows calls f for pieces of [0, n), in several goroutines.
func (j *job) rows(n, piece int, f func(from, to int)) {
	parts := (n + piece - 1) / piece
	j.pool.Run(parts, func(_, part int) { f(part*piece, min(n, (part+1)*piece)) })
}

func (j *job) close() {
	if j.pool != nil {
		j.pool.Close()
	}
	for _, m := range []*forward.Model{j.student, j.teacher} {
		if m != nil {
			m.Close()
		}
	}
}
