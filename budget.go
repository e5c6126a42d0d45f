package gq

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer/alloc"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// Budget is a target that bits, groups and mappings are chosen to meet; a mapping that the recipe or a
// rule states stays. Exactly one of the first three fields is set.
type Budget struct {
	// BitsPerWeight is the most bits of payload per quantized weight.
	BitsPerWeight float64
	// FileBytes is the greatest size of the file.
	FileBytes int64
	// MaxKL asks for the smallest file whose mean KL divergence from the checkpoint, in nats per
	// token, is at most MaxKL. The quantized model is executed as on a device, on the calibration
	// text.
	MaxKL float64
	// Groups are the group sizes to choose from. Default: 32, 64, 128; with fractional zero points 48
	// and 96 too.
	Groups []int
	// EmbeddingFixed leaves bits and group of the embedding as the recipe has them. Default: false.
	EmbeddingFixed bool
}

// check finds invalid fields.
func (b *Budget) check() error {
	if b == nil {
		return nil
	}
	set := 0
	for _, v := range []float64{b.BitsPerWeight, float64(b.FileBytes), b.MaxKL} {
		if v != 0 {
			set++
		}
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return optionf("", "a target of %g: use a number above 0", v)
		}
	}
	if set != 1 {
		return optionf("", "one target at a time: %d are set", set)
	}
	return nil
}

// comment heads a saved recipe.
func (b *Budget) comment(a *Allocation) string {
	if b == nil {
		return "gq quantize"
	}
	what := ""
	switch {
	case b.BitsPerWeight > 0:
		what = fmt.Sprintf("target-bpw %g", b.BitsPerWeight)
	case b.FileBytes > 0:
		what = fmt.Sprintf("target-size %d", b.FileBytes)
	default:
		what = fmt.Sprintf("max-kl %g", b.MaxKL)
	}
	return fmt.Sprintf("gq quantize, %s\n%s", what, a.Summary())
}

// Allocation holds the bits, groups and mappings chosen for a Budget.
type Allocation struct {
	*alloc.Allocation
	// Source is the source of the text that bits were chosen with: "self", "text" or "tokens".
	Source string `json:"source"`
	// KL was measured on this text, with the quantized model executed as on a device. Nil if nothing
	// had to be measured.
	KL          *float64           `json:"kl,omitempty"`
	Evaluations []alloc.Evaluation `json:"evaluations,omitempty"`
}

// Summary describes the allocation in a line.
func (a *Allocation) Summary() string {
	s := fmt.Sprintf("%.4f bits per weight, a file of %d bytes, predicted KL %.5f", a.BitsPerWeight, a.OutputBytes, a.PredictedKL)
	if a.ActivationKL > 0 {
		s += fmt.Sprintf(" (%.5f of it int8 activations)", a.ActivationKL)
	}
	if a.KL != nil {
		s += fmt.Sprintf(", measured %.5f", *a.KL)
	}
	return s
}

// The number of tokens that bits are chosen with, and the number if the preset asks for many probes.
const (
	probeTokens = 1280
	manyTokens  = 2560
)

// choiceTokens is the number of tokens that bits are chosen with: at most as many as calibration reads.
func (j *quantizeJob) choiceTokens() int {
	n := probeTokens
	if j.o.Recipe.Quality.ManyProbes() {
		n = manyTokens
	}
	if j.calibration != nil && j.o.Recipe.Calibrate != "" {
		n = min(n, j.calibration.tokens())
	}
	return n
}

// chooser chooses bits for the budget of a job.
type chooser struct {
	*quantizeJob
	inputs        string // see choiceInputs
	float, probed *model.Model
	reference     *eval.Reference
	source        string          // of the text
	unseen        *eval.Reference // of text that calibration does not see, see compare; nil: not yet computed
	activationKL  *float64        // the part of int8 activations in the KL; nil: not yet measured
}

// feasible refuses, before any work, a budget that no allocation of the checkpoint meets.
func (j *quantizeJob) feasible() error {
	if err := j.wholeModel("to choose bits"); err != nil {
		return err
	}
	err := j.withAllocJob(func(job alloc.Job) (err error) {
		m := job.Model
		if j.probeBytes, err = alloc.Bytes(m, cpu.Threads(j.o.Threads), text.WindowOf(m.Config())); err != nil {
			return fmt.Errorf("choosing bits: %w", err)
		}
		j.outline, err = job.Outline()
		return err
	})
	if err != nil {
		return err
	}
	switch b := j.o.Budget; {
	case b.BitsPerWeight > 0:
		return j.outline.Least.CheckBitsPerWeight(b.BitsPerWeight)
	case b.FileBytes > 0:
		return j.outline.Least.CheckFileBytes(b.FileBytes)
	}
	return nil
}

// withAllocJob calls f with the allocation job, whose model is open but runs no text.
func (j *quantizeJob) withAllocJob(f func(alloc.Job) error) error {
	m, err := model.OpenCheckpoint(j.ck.Dir(), model.Options{Threads: 1})
	if err != nil {
		return fmt.Errorf("choosing bits: %w", err)
	}
	defer m.Close()
	job := j.allocJob()
	job.Model = m
	return f(job)
}

// choose chooses bits, groups and mappings. inputs are the job's choiceInputs.
func (j *quantizeJob) choose(inputs string) (*Allocation, error) {
	h := &chooser{quantizeJob: j, inputs: inputs}
	defer h.close()
	defer memlimit.Lift()()
	if err := h.open(); err != nil {
		return nil, fmt.Errorf("choosing bits: %w", err)
	}
	p, err := h.probe()
	if err != nil {
		return nil, err
	}
	out := &Allocation{Source: h.source}
	switch b := j.o.Budget; {
	case b.MaxKL > 0:
		out.Allocation, out.Evaluations, err = p.MaxKL(j.ctx, b.MaxKL, h.measure)
	case j.calibration == nil: // the predictions are for the codes of the file
		out.Allocation, err = b.meet(p)
	default:
		out.Allocation, out.Evaluations, err = p.Best(j.ctx, b.meet, h.compare)
	}
	for _, e := range out.Evaluations {
		if out.Allocation != nil && e.PredictedKL == out.PredictedKL && e.BitsPerWeight == out.BitsPerWeight {
			out.KL = &e.KL
		}
	}
	return out, err
}

// meet chooses options for a target of bytes.
func (b *Budget) meet(p *alloc.Sensitivities) (*alloc.Allocation, error) {
	if b.BitsPerWeight > 0 {
		return p.BitsPerWeight(b.BitsPerWeight)
	}
	return p.FileBytes(b.FileBytes)
}

func (h *chooser) close() {
	for _, m := range []*model.Model{h.float, h.probed} {
		if m != nil {
			m.Close()
		}
	}
}

// Checkpoints up to packedBytes are repacked in memory, in the order of their kernels.
const packedBytes = 1 << 29 // there are two copies

// open opens the model and the text and runs the float model on it.
func (h *chooser) open() (err error) {
	size := int64(0)
	for _, t := range h.ck.Tensors() {
		size += t.Size
	}
	options := model.Options{Threads: h.o.Threads, Packed: size <= packedBytes, Log: func(kernels.Choice) {}}
	if h.float, err = model.OpenCheckpoint(h.ck.Dir(), options); err != nil {
		return err
	}
	// If calibration needs a text anyway, the probes use it: the model of the unfolded checkpoint
	// writes it, as long as calibration needs it.
	from, tokens := h.plan, h.choiceTokens()
	if h.calibration != nil && h.o.Recipe.Calibrate != "" {
		from, tokens = h.original, h.calibration.tokens()
	}
	own, err := h.text(from, tokens)
	if err != nil {
		return err
	}
	h.source = own.Source
	if h.reference, err = eval.NewReference(h.ctx, h.float, text.WindowsOf(own.First(h.choiceTokens()))); err != nil {
		return err
	}
	h.probed, err = model.OpenCheckpoint(h.ck.Dir(), options)
	return err
}

// allocJob is the allocation job for the present checkpoint, without model and text.
func (j *quantizeJob) allocJob() alloc.Job {
	b := j.o.Budget
	job := alloc.Job{Checkpoint: j.ck, Config: j.config, Options: j.opts, Groups: b.Groups, EmbeddingFixed: b.EmbeddingFixed}
	if b.BitsPerWeight > 0 && b.BitsPerWeight < 2.5 { // the user asked for it
		job.MinBits = 1
	}
	if j.o.Recipe.Quality.ManyProbes() {
		job.Widths, job.Single = []int{2, 3, 4, 5}, true
	}
	if j.calibration != nil {
		job.Calibration = longestAccount(j.config)
	}
	if j.tuning != nil {
		job.Tuning = longestTuning()
	}
	return job
}

func (h *chooser) probe() (*alloc.Sensitivities, error) {
	job := h.allocJob()
	job.Model, job.Reference, job.Work = h.probed, h.reference, h.work
	job.Resumed = func(probes, of int) { h.resumed(h.work, fmt.Sprintf("%d of %d probes", probes, of)) }
	add, end := func(int64) {}, func() {}
	job.Start = func(steps int) { add, end = h.begin(stageProbe, "steps", int64(steps)) }
	job.Progress = func(n int) { add(int64(n)) }
	defer func() { end() }()
	return job.Probe(h.ctx)
}

// longestAccount is the longest description of calibration that the file of a model may have.
func longestAccount(config []byte) *conversion.Calibration {
	seed := uint64(math.MaxUint64)
	var fallbacks []int
	if model, err := arch.ParseForward(config); err == nil { // else calibration does not run it
		fallbacks = slices.Repeat([]int{math.MaxInt32}, len(model.Layers)+1)
	}
	return &conversion.Calibration{
		Algorithm: "gptq-ft", Parameters: map[string]any{"room": strings.Repeat("x", 256)}, Source: "imatrix", SHA256: strings.Repeat("0", 64),
		Tokens: math.MaxInt32, Sequences: math.MaxInt32, Seed: &seed, Fallbacks: math.MaxInt32,
		LayerFallbacks: fallbacks, SequencesSHA256: strings.Repeat("0", 64), Version: math.MaxInt32,
	}
}

// compare measures an allocation on text that calibration does not see, if calibration has a text: on
// this text it fits schemes with more parameters better than on others.
func (h *chooser) compare(ctx context.Context, a *alloc.Allocation) (m alloc.Measured, err error) {
	if h.unseen == nil {
		h.unseen = h.reference
		if h.o.Recipe.Calibrate != "" {
			windows, _, err := h.calibration.heldOutWindows()
			if err != nil {
				return m, err
			}
			if h.unseen, err = eval.NewReference(ctx, h.float, windows); err != nil {
				return m, err
			}
		}
	}
	return h.measureOn(ctx, a, h.unseen)
}

// measure measures an allocation on the text that bits are chosen with.
func (h *chooser) measure(ctx context.Context, a *alloc.Allocation) (m alloc.Measured, err error) {
	return h.measureOn(ctx, a, h.reference)
}

// measuredName is the entry of the working directory with the measured allocations.
const measuredName = "measured"

// measureOn finds the measurement of an allocation that an earlier job made, or measures it: each
// measurement may need a calibration.
func (h *chooser) measureOn(ctx context.Context, a *alloc.Allocation, reference *eval.Reference) (m alloc.Measured, err error) {
	key, err := workdir.Key(measuredName, 1, h.inputs, reference.Sequences())
	if err != nil {
		return m, err
	}
	name, err := workdir.Key(a.Rows)
	if err != nil {
		return m, err
	}
	known := map[string]alloc.Measured{}
	if h.work != nil {
		h.work.GetJSON(measuredName, key, &known)
	}
	if m, ok := known[name]; ok {
		h.activationKL = &m.ActivationKL
		return m, nil
	}
	if m, err = h.execute(ctx, a, reference); err != nil || h.work == nil {
		return m, err
	}
	known[name] = m
	return m, h.work.PutJSON(measuredName, key, known)
}

// execute writes an allocation's file beside the output, runs it as a device would, and removes it.
// The first file is run with float32 activations too.
func (h *chooser) execute(ctx context.Context, a *alloc.Allocation, reference *eval.Reference) (m alloc.Measured, err error) {
	opts := h.opts
	opts.Rules = append(slices.Clone(a.Rules), opts.Rules...)
	plan, err := conversion.NewPlan(h.ck, h.config, opts) // a.Plan is for the final file
	if err != nil {
		return m, err
	}
	var codes *conversion.CalibratedCodes
	if h.calibration != nil {
		var done func()
		if codes, done, err = h.calibration.run(plan); err != nil {
			return m, err
		}
		defer done() // its layers stay: if no allocation is better, the final file reuses them
	}
	err = plan.WriteTemporary(ctx, h.dst, codes, func(temp string) error {
		if m.KL, err = h.klOf(temp, reference, model.Int8); err != nil || h.activationKL != nil {
			return err
		}
		weights, err := h.klOf(temp, reference, model.Float32)
		part := max(m.KL-weights, 0)
		h.activationKL = &part
		return err
	})
	if err != nil {
		return m, err
	}
	m.ActivationKL = *h.activationKL
	h.logf("%.3f bits per weight: KL %.5f", a.BitsPerWeight, m.KL)
	return m, nil
}
