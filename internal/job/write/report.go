package write

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// Report describes a finished job. Apart from times it is the same for any CPU and thread count.
type Report struct {
	// the file, the first of several shards, or the directory
	Output string `json:"output"`
	// of a .gguf file or a checkpoint that is divided
	Shards    int `json:"shards,omitempty"`
	Quantized int `json:"quantized"` // tensors
	// that chose their codes; several: all names, with commas
	Algorithm    string   `json:"algorithm"`
	FloatZeros   int      `json:"floating_point_zeros"` // tensors with floating-point zero points
	Fractions    int      `json:"fractional_zeros"`     // tensors with fractional zero points
	IntegerZeros int      `json:"integer_zeros"`        // tensors with integer zero points
	Unquantized  int      `json:"unquantized"`
	Shared       int      `json:"shared"`
	Absorbed     int      `json:"absorbed"`
	Warnings     []string `json:"warnings"` // JSON: [] if there are none, not null
	// Fold says how the checkpoint was folded before it was quantized, if it was.
	Fold *provenance.Fold `json:"fold,omitempty"`
	// ReadBack says how a .gguf file was compared with its source.
	ReadBack *ReadBack `json:"read_back,omitempty"`

	// of the checkpoint's tensors; of the file that is repacked
	SourceBytes int64 `json:"source_bytes"`
	OutputBytes int64 `json:"output_bytes"`
	// Bits of payload, scales and all, per weight: of the quantized tensors, and of all that are
	// stored.
	BitsPerWeight    float64 `json:"bits_per_weight"`
	AllBitsPerWeight float64 `json:"all_bits_per_weight"`

	// Signal-to-quantization-noise ratios of the weights, 10 log10(sum w^2 / sum (w-w')^2):
	// mean over the quantized tensors and the worst of them. Zero if none was quantized with a loss.
	MeanSQNR  float64 `json:"mean_sqnr_db"`
	WorstSQNR float64 `json:"worst_sqnr_db"`
	Worst     string  `json:"worst_tensor,omitempty"`

	// SmallScales counts groups of weights, not all zero, whose scale is below the normal range of its
	// dtype, or would be and is raised to the smallest that can be stored.
	SmallScales int64 `json:"small_scales"`

	// Recovered counts the groups whose weights were codes and scales already, and came back exactly.
	// It is nil if there are none.
	Recovered *Recovered `json:"recovered,omitempty"`

	Seconds        float64      `json:"seconds"`          // wall time of the job
	SyncSeconds    float64      `json:"sync_seconds"`     // of it, spent on sync and rename
	BytesPerSecond float64      `json:"bytes_per_second"` // of the checkpoint
	Tensors        []TensorSQNR `json:"tensors"`
}

// TensorSQNR is the loss of one quantized tensor.
type TensorSQNR struct {
	Name string `json:"name"`
	// SQNR in dB; null where there is no noise at all, and of copied tensors.
	SQNR        *float64      `json:"sqnr_db"`
	Algorithm   gqf.Algorithm `json:"algorithm"`
	SmallScales int64         `json:"small_scales,omitempty"` // see Report
	Recovered   *Recovered    `json:"recovered,omitempty"`    // see Report
}

// AddFound completes an outline with the findings for each tensor of the report; nil: there are
// none.
func (r *Report) AddFound(found []ItemResult) {
	var sum float64
	n := 0
	var recovered Recovered
	for i, f := range found {
		ts := &r.Tensors[i]
		ts.SmallScales, ts.Recovered = f.SmallScales, f.Recovered.some()
		r.SmallScales += f.SmallScales
		recovered.Add(f.Recovered)
		if f.Noise > 0 && f.Signal > 0 {
			db := SQNR(f.Signal, f.Noise)
			ts.SQNR = &db
			sum, n = sum+db, n+1
			if n == 1 || db < r.WorstSQNR {
				r.WorstSQNR, r.Worst = db, ts.Name
			}
		}
	}
	if n > 0 {
		r.MeanSQNR = sum / float64(n)
	}
	r.Recovered = recovered.some()
}

// SQNR gives 10 log10(signal/noise) in dB for sums of squares; +Inf without noise.
func SQNR(signal, noise float64) float64 {
	if noise == 0 {
		return math.Inf(1)
	}
	return float64(10 * detmath.Log10(signal/noise))
}

// ReadBack says how a .gguf file was compared with its source before it appeared.
type ReadBack struct {
	Tokens int `json:"tokens"`
	// Difference is the largest difference between logits of the source and of the file, as
	// llama.cpp computes them, as a part of the position's largest logit. It leaves out positions that
	// Rerouted counts.
	Difference float64 `json:"logits_difference"`
	// Rerouted counts the positions whose logits differ by more, because a router of a mixture of
	// experts chose between two that are equal but for rounding, there or at an earlier position.
	Rerouted int `json:"rerouted,omitempty"`
}
