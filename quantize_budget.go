package gq

import (
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// Budget is a target that bits, groups and mappings are chosen to meet; a mapping that the recipe
// or a rule states stays. Exactly one of the first three fields is set.
type Budget struct {
	// BitsPerWeight is the most bits of payload per quantized weight.
	BitsPerWeight float64
	// FileBytes is the greatest size of the file.
	FileBytes int64
	// MaxKL asks for the smallest file with at most this mean KL divergence from the checkpoint, in
	// nats per token on text like the text of the choice, in 19 cases of 20. The quantized model is
	// executed as on a device, on text that neither calibration nor the choice sees.
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

// spare is the number of payload bytes that the target allows beyond an allocation.
func (b *Budget) spare(a *alloc.Allocation) float64 {
	switch {
	case b.BitsPerWeight > 0:
		return float64((b.BitsPerWeight/a.BitsPerWeight - 1) * float64(a.PayloadBytes))
	case b.FileBytes > 0:
		return float64(b.FileBytes - a.OutputBytes)
	}
	return math.Inf(1)
}

// oneBitShare is the share of 2-bit payloads below which spare bytes make 1 bit an option. Measured
// over the least payload of 2 bits, with 1 bit among the options the KL divergences were .73 to .77
// times at 1.01 (books1.3M), .89 to .98 times at 1.07, .92 to 1.05 times at 1.11 (books3.7M), and
// .98 to 1.22 times at 1.17 (both); stories260K had .97, 1.26 and .99 times at 1.01, 1.11 and 1.17
// (search and good). At the bytes of 2 bits in groups of 32, good had 1.03 (books1.3M) and 1.09
// times (books3.7M), and chose no 1 bit on stories260K.
const oneBitShare = .1

// meet chooses options for a target of bytes.
func (b *Budget) meet(p *alloc.Sensitivities) (*alloc.Allocation, error) {
	if b.BitsPerWeight > 0 {
		return p.BitsPerWeight(b.BitsPerWeight)
	}
	return p.FileBytes(b.FileBytes)
}

// measuredFiles is the number of files that are made and run to choose bits, if a search for a
// divergence measures so many.
func (j *job) measuredFiles(search int) int {
	r := j.o.Recipe
	switch b := j.o.Budget; {
	case b == nil:
		return 0
	case b.MaxKL > 0:
		return search
	case j.calibration.needed() && r.Mapping == gqf.MappingNone && !r.ForGGUF() && !r.IntegerZeros():
		return compared
	}
	return 0
}

// compared is how many files are calibrated if two allocations are compared.
const compared = 2

// evaluations is how many files a search for a divergence usually measures: 1 to 4 in 9 searches of
// stories260K and books1.3M.
const evaluations = 3

// The number of tokens that bits are chosen with, and the number for the presets best and max.
const (
	probeTokens = 1280
	manyTokens  = 2560
)

// choiceTokens is the number of tokens that bits are chosen with: at most as many as calibration
// reads.
func (j *job) choiceTokens() int {
	n := probeTokens
	if q := j.o.Recipe.Quality; q == quantizer.QualityBest || q == quantizer.QualityMax {
		n = manyTokens
	}
	if j.calibration.onText {
		n = min(n, j.calibration.tokens)
	}
	return n
}

// bounds finds the limits of the choice, nil without a budget. It refuses, before any work, a
// budget that no allocation of the checkpoint meets.
func (r *run) bounds(j *job, s *subject) (*bounds, error) {
	budget := j.o.Budget
	if budget == nil {
		return nil, nil
	}
	if err := s.wholeModel("to choose bits"); err != nil {
		return nil, err
	}
	b := &bounds{minBits: 2}
	err := j.withAllocJob(s, b.minBits, func(task alloc.Job) (err error) {
		m := task.Model
		if b.gradients, err = alloc.Bytes(m, cpu.Threads(j.o.Threads), text.WindowOf(m.Config())); err != nil {
			return fmt.Errorf("choosing bits: %w", err)
		}
		b.choice = eval.KLBytes(m, j.choiceTokens(), text.WindowOf(m.Config()))
		if j.measuredFiles(evaluations) > 0 {
			b.heldOut = eval.KLBytes(m, j.heldOutTokens(), text.WindowOf(m.Config()))
		}
		if b.outline, err = task.Outline(); err != nil {
			return err
		}
		// 1 bit is for targets that 2 bits everywhere exceed or nearly exceed.
		if least := b.outline.Least; budget.spare(least) < float64(oneBitShare*float64(least.PayloadBytes)) {
			b.minBits, task.MinBits = 1, 1
			b.outline, err = task.Outline()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	switch least, most := b.outline.Least, b.outline.Most; {
	case budget.MaxKL == 0 && budget.spare(most) > 0: // every option meets the target
		warning := fmt.Sprintf("the target is more than the widest options take, %.3f bits per weight in a file of %d bytes: --bits %d needs no choice",
			most.BitsPerWeight, most.OutputBytes, b.outline.MaxBits)
		if r.warn("%s", warning) && j.writes() {
			r.logf("%s", warning)
		}
	case budget.BitsPerWeight > 0:
		return b, least.CheckBitsPerWeight(budget.BitsPerWeight)
	case budget.FileBytes > 0:
		return b, least.CheckFileBytes(budget.FileBytes)
	}
	return b, nil
}

// withAllocJob calls f with the allocation job. The model is open but runs no text.
func (j *job) withAllocJob(s *subject, minBits int, f func(alloc.Job) error) error {
	m, err := forward.OpenCheckpoint(s.ck.Dir(), forward.Options{Threads: 1})
	if err != nil {
		return fmt.Errorf("choosing bits: %w", err)
	}
	defer m.Close()
	task := j.allocJob(s, minBits)
	task.Model = m
	return f(task)
}

// allocJob is the allocation job for a checkpoint, without model and text.
func (j *job) allocJob(s *subject, minBits int) alloc.Job {
	b := j.o.Budget
	task := alloc.Job{Checkpoint: s.ck, Config: s.config, Options: s.opts, Groups: b.Groups, EmbeddingFixed: b.EmbeddingFixed, MinBits: minBits}
	if j.calibration.needed() {
		task.Calibration = longestAccount()
	}
	if j.tuning != nil {
		task.Tuning = longestTuning()
	}
	return task
}

// longestAccount is the longest description of calibration that the file of a model may have.
func longestAccount() *provenance.Calibration {
	seed := uint64(math.MaxUint64)
	return &provenance.Calibration{
		Algorithm: "gptq-ft", Parameters: map[string]any{"room": strings.Repeat("x", 256)}, Source: "imatrix", SHA256: strings.Repeat("0", 64),
		Tokens: math.MaxInt32, Sequences: math.MaxInt32, Seed: &seed, Fallbacks: math.MaxInt32,
		SequencesSHA256: strings.Repeat("0", 64), Version: math.MaxInt32,
	}
}

// longestTuning is the longest account of tuning that a file may have.
func longestTuning() *provenance.Tuning {
	c := longestAccount()
	return &provenance.Tuning{
		Mode: string(quantizer.TuneFloats), Parameters: map[string]any{"rate": .004, "layer-rate": .002, "codes-rate": .01, "step-tokens": 512},
		Source: c.Source, SHA256: c.SHA256, Tokens: c.Tokens, Sequences: c.Sequences, HeldOut: c.Tokens, Seed: c.Seed,
		Steps: c.Tokens, Step: c.Tokens, Vectors: c.Tokens,
	}
}
