package gq

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/job/alloc"
)

// Budget is a target that bits, groups and mappings are chosen to meet; a mapping that the recipe
// or a rule states stays. Exactly one of the first three fields is set.
type Budget struct {
	// BitsPerWeight is the most bits of payload per quantized weight.
	BitsPerWeight float64
	// FileBytes is the greatest size of the file.
	FileBytes int64
	// MaxKL asks for the smallest file with at most this mean KL divergence from the checkpoint, in
	// nats per token. The quantized model is executed as on a device: with calibration on
	// held-out text (see HeldOut), else on the text that bits are chosen with.
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
// (search and good).
const oneBitShare = .1

// minBits decides the least bits of the options, given the smallest allocation of 2 bits and more:
// 1 bit is for targets that 2 bits everywhere exceed or nearly exceed.
func (b *Budget) minBits(least *alloc.Allocation) int {
	if b.spare(least) < float64(oneBitShare*float64(least.PayloadBytes)) {
		return 1
	}
	return 2
}

// meet chooses options for a target of bytes.
func (b *Budget) meet(p *alloc.Sensitivities) (*alloc.Allocation, error) {
	if b.BitsPerWeight > 0 {
		return p.BitsPerWeight(b.BitsPerWeight)
	}
	return p.FileBytes(b.FileBytes)
}
