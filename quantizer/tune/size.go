package tune

import (
	"fmt"

	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// The largest models that the preset max tunes codes and all scales of, in quantized weights. Their
// optimizer states take 2.6 GB. With two cores of an AMD EPYC, 128M weights take hours, and 4G
// weights days.
const (
	mostCodes  = 128e6
	mostFloats = 4e9
)

// ForSize is the kind of tuning of a model with so many quantized weights, for the preset max. It
// depends on nothing else, so that the same command gives the same file on every machine.
func ForSize(weights int64) quantizer.Tune {
	switch {
	case weights <= mostCodes:
		return quantizer.TuneCodes
	case weights <= mostFloats:
		return quantizer.TuneFloats
	}
	return quantizer.TuneNorms
}

// Memory is the memory that a job on so many tokens takes: its numbers, the state of the optimizer,
// and what a layer and a step of StepTokens need.
func Memory(p *conversion.Plan, k quantizer.Tune, tokens int64) int64 {
	var codes, trained, largest, wide, scales int64
	for _, m := range p.Matrices() {
		rows, cols := int64(m.Rows), int64(m.Cols)
		n := rows * cols
		groups := rows * int64(m.Scheme.Groups(m.Cols))
		codes += n
		scales += groups
		largest = max(largest, n)
		wide = max(wide, rows, cols)
		switch {
		case k == quantizer.TuneNorms:
			trained += rows
		case k == quantizer.TuneCodes && !m.Embedded():
			trained += groups + n
		default:
			trained += groups
		}
	}
	// A block of logits of both models, and the activations of a step.
	step := int64(logitRows)*4*3*wide + StepTokens*4*16*wide
	if k == quantizer.TuneBlocks {
		trained = max(trained, blockTrained(p))
		step += blockBytes(p, tokens) + codes + 4*scales
	}
	return codes + 8*scales + StateBytes*trained + min(4*largest, 2*gradientBytes) + step
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
	return fmt.Sprintf("%s needs %.3g GB of memory, mostly %d bytes for each trained number, and %.3g GB are there (GOMEMLIMIT, or the machine's memory): %s",
		e.Kind, float64(e.Need)/1e9, StateBytes, float64(e.Have)/1e9, advice)
}

// Check refuses a plan with matrices that cannot be tuned.
func Check(p *conversion.Plan) error {
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
