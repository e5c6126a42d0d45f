package tune

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/quantizer"
)

// For the preset max, the largest models, in quantized weights, that train their codes all together
// or layer by layer. In groups of 32, their optimizer states take 2.6 GB.
const (
	mostCodes  = 128e6
	mostBlocks = 4e9
)

// ForSize is the preset max's kind of tuning for so many quantized weights, on every machine.
func ForSize(weights int64) quantizer.Tune {
	switch {
	case weights <= mostCodes:
		return quantizer.TuneCodes
	case weights <= mostBlocks:
		return quantizer.TuneBlocks
	}
	return quantizer.TuneNorms
}

// mostState bounds the memory of codes, scales and optimizer for training scales and gains of the
// whole model after its layers, in bytes: as much as mostCodes takes.
const mostState = StateBytes * mostCodes

// whole reports whether a job trains the whole model: with TuneBlocks only models of moderate size,
// on every machine alike.
func whole(p *fromcheckpoint.Plan, o Options) bool {
	return o.Kind != quantizer.TuneBlocks || sumsOf(p, o.Kind).wholeState() <= cmp.Or(o.mostState, mostState)
}

// sums are numbers of a plan.
type sums struct{ codes, scales, trained int64 }

func sumsOf(p *fromcheckpoint.Plan, k quantizer.Tune) (s sums) {
	for _, m := range p.Matrices() {
		rows, n := int64(m.Rows), int64(m.Rows)*int64(m.Cols)
		groups := rows * int64(m.Scheme.Groups(m.Cols))
		s.codes += n
		s.scales += groups
		switch {
		case k == quantizer.TuneNorms:
			s.trained += rows
		case k == quantizer.TuneCodes && !m.Embedded():
			s.trained += groups + n
		default:
			s.trained += groups
		}
	}
	return s
}

// wholeState is the memory of codes, scales and optimizer while the whole model is trained.
func (s sums) wholeState() int64 { return s.codes + 8*s.scales + StateBytes*s.trained }

// Size is what a job takes at most, in bytes.
type Size struct {
	// Memory is for codes, scales, the optimizer's state, and steps and measurements on held-out text.
	Memory int64
	// Disk is for the working directory: state, twice when replaced, trained layers, and hidden states
	// of both models.
	Disk int64
	// Layers says, for plans, how training layer by layer uses memory; "" for other kinds.
	Layers string
}

// SizeOf is the size of a job with a text of so many tokens.
func SizeOf(p *fromcheckpoint.Plan, k quantizer.Tune, tokens, threads int) (s Size, err error) {
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: threads, Log: quiet})
	if err != nil {
		return s, err
	}
	defer m.Close()
	tape, err := m.NewTape(tapeOptions)
	if err != nil {
		return s, err
	}
	n, c, held := sumsOf(p, k), m.Config(), HeldOut(tokens)
	packed := int64(0)
	if packs(p) {
		packed = p.SourceBytes
	}
	if Layered(k) {
		// Sequences are windows of the text: at most StepTokens long, but for few models.
		layer, err := m.NewTape(layerTape(StepTokens))
		if err != nil {
			return s, err
		}
		fixed, most := layerSums(p)
		values := int64(m.Width()) * 4
		logits := 3*min(logitsBytes, int64(StepTokens*c.VocabSize*4)) + int64(16*threads*c.VocabSize)
		s.Disk = n.codes + 4*n.scales + values*int64(2*tokens+held)
		s.Memory = fixed + max(most, logits) + layer.LayerBytes(false) + layer.LayerBytes(true) + gradientBytes(p, k) + 3*StepTokens*values
	}
	switch all := whole(p, Options{Kind: k}); {
	case !Layered(k):
	case all:
		s.Layers = "; tuning trains one layer after another, with hidden states on disk, and then the whole model"
	default:
		s.Layers = fmt.Sprintf("; tuning trains one layer after another, with hidden states on disk, and then no more: scales of the whole model would need %.1f GB", float64(n.wholeState())/1e9)
	}
	if whole(p, Options{Kind: k}) {
		s.Disk += 2 * savedBytes * n.trained
		predictions := min(12*int64(held)*int64(c.VocabSize), eval.ReferenceBytes)
		all := n.wholeState() + 2*tape.Bytes() + gradientBytes(p, k) + predictions + 12*int64(held)*int64(m.Width())
		s.Memory = max(s.Memory, all+all/4) // a quarter for garbage, see memlimit.Lift
	}
	s.Memory += packed
	return s, nil
}

// MemoryError reports a state that does not fit the memory.
type MemoryError struct {
	Kind       quantizer.Tune
	Need, Have int64 // bytes
}

func (e *MemoryError) Error() string {
	advice := "use --tune norms, or raise the limit"
	switch e.Kind {
	case quantizer.TuneCodes:
		advice = "use --tune blocks, which trains the codes of a layer at a time, or --tune floats, whose state is small"
	case quantizer.TuneBlocks:
		advice = "use --tune floats, whose state is small"
	}
	return fmt.Sprintf("%s needs %.3g GB of memory, mostly up to %d bytes for each trained number, and %.3g GB are there (GOMEMLIMIT, or the machine's memory): %s",
		e.Kind, float64(e.Need)/1e9, NumberBytes(e.Kind), float64(e.Have)/1e9, advice)
}

// Check refuses a plan with matrices that cannot be tuned.
func Check(p *fromcheckpoint.Plan) error {
	any := false
	for _, m := range p.Matrices() {
		any = true
		if m.FloatZeros {
			return fmt.Errorf("is for integer and fractional zero points, %q has floating-point ones: choose another layout, mapping or algorithm", m.Name())
		}
	}
	if !any {
		return fmt.Errorf("has nothing to train: no tensor is quantized")
	}
	return nil
}

// Layered reports whether a kind of tuning trains layers before the whole model.
func Layered(k quantizer.Tune) bool { return k == quantizer.TuneBlocks || k == quantizer.TuneCodes }

// Work is what Options.Progress counts in the end, for a model of so many layers.
func Work(p *fromcheckpoint.Plan, o Options, t *Text, layers int) int {
	n := Steps(p, o, t.TrainTokens())
	if Layered(o.Kind) {
		n = layers * (n + LayerSteps(t.TrainTokens()))
	}
	return n
}

// Steps is the number of steps with the whole model that Run makes on so many tokens of training.
func Steps(p *fromcheckpoint.Plan, o Options, tokens int) int {
	if !whole(p, o) {
		return 0
	}
	n := o.Steps
	if n == 0 {
		n = DefaultSteps(cmp.Or(o.Kind, quantizer.TuneFloats), false)
	}
	return max(1, min(n, passes*tokens/StepTokens))
}

// DefaultSteps is the number of steps on a text of DefaultTokens.
func DefaultSteps(k quantizer.Tune, coarse bool) int {
	switch {
	case k == quantizer.TuneCodes && coarse:
		return 736
	case k == quantizer.TuneCodes:
		return 480
	}
	return 160
}

// DefaultTokens is the default number of tokens. Codes overfit a text that they see repeatedly. So
// coarse codes, up to 2.5 bits, see every token of a long text once.
func DefaultTokens(k quantizer.Tune, coarse bool) int {
	switch {
	case k == quantizer.TuneCodes && coarse:
		return 736*StepTokens + mostHeldOut
	case k == quantizer.TuneCodes:
		return 196608
	case k == quantizer.TuneBlocks:
		return 65536
	}
	return 32768
}

// Coarse reports whether a plan has at most 2.5 bits for each code of its linear layers.
func Coarse(p *fromcheckpoint.Plan) bool {
	bits, weights := 0.0, 0.0
	for _, m := range p.Matrices() {
		if !m.Embedded() {
			n := float64(m.Rows) * float64(m.Cols)
			bits += float64(n * float64(m.Scheme.Bits))
			weights += n
		}
	}
	return bits < 2.5*weights
}
