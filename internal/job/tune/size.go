package tune

import (
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

// Size is what a job takes at most, in bytes.
type Size struct {
	// Memory is for codes, scales, the optimizer's state, and steps and measurements on held-out text.
	Memory int64
	// Disk is for the working directory: state, twice when replaced, and trained layers.
	Disk int64
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
	var codes, trained, scales int64
	narrowest := p.Matrices()[0].Cols // Check refuses a plan without matrices
	for _, m := range p.Matrices() {
		narrowest = min(narrowest, m.Cols)
		rows, n := int64(m.Rows), int64(m.Rows)*int64(m.Cols)
		groups := rows * int64(m.Scheme.Groups(m.Cols))
		codes += n
		scales += groups
		switch {
		case k == quantizer.TuneNorms:
			trained += rows
		case k == quantizer.TuneCodes && !m.Embedded():
			trained += groups + n
		default:
			trained += groups
		}
	}
	s.Disk = 2 * savedBytes * trained
	state := StateBytes * trained
	if Layered(k) {
		s.Disk += codes + 8*scales
		// The hidden states of both models are as wide as the narrowest matrix.
		state = max(state, layerBytes(p)+2*4*int64(tokens)*int64(narrowest)+codes+4*scales)
	}
	c := m.Config()
	held := int64(HeldOut(tokens))
	predictions := min(12*held*int64(c.VocabSize), eval.ReferenceBytes)
	s.Memory = codes + 8*scales + state + 2*tape.Bytes() + gradientBytes + predictions + 12*held*int64(m.Width())
	if p.SourceBytes <= packedBytes {
		s.Memory += p.SourceBytes
	}
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
