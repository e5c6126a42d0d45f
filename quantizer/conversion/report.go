package conversion

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Report describes a finished job. Apart from times it is the same for any CPU and thread count.
type Report struct {
	Output       string   `json:"output"`           // the file, the first of several shards, or the directory
	Shards       int      `json:"shards,omitempty"` // of a .gguf file or a checkpoint that is divided
	Quantized    int      `json:"quantized"`        // tensors
	Algorithm    string   `json:"algorithm"`        // that chose their codes; several: all names, with commas
	FloatZeros   int      `json:"real_zeros"`       // tensors with floating-point zero points
	Fractions    int      `json:"fractional_zeros"` // tensors with fractional zero points
	IntegerZeros int      `json:"whole_zeros"`      // tensors with integer zero points
	RoundedHQQ   int      `json:"rounded_hqq"`      // of these, tensors of hqq, which rounds zero points and fits scales to them
	Unquantized  int      `json:"kept"`
	Shared       int      `json:"shared"`
	Absorbed     int      `json:"absorbed"`
	Warnings     []string `json:"warnings"` // JSON: [] if there are none, not null
	// Fold says how the checkpoint was folded before it was quantized, if it was.
	Fold *Fold `json:"fold,omitempty"`
	// Reuse says which tensors were copied from an older file; nil: the job had none.
	Reuse *ReuseReport `json:"reuse,omitempty"`
	// ReadBack says how a .gguf file was compared with its source.
	ReadBack *ReadBack `json:"read_back,omitempty"`

	SourceBytes int64 `json:"source_bytes"` // of the checkpoint's tensors; of the file that is repacked
	OutputBytes int64 `json:"output_bytes"`
	// Bits of payload, scales and all, per weight: of the quantized tensors, and of all that are stored.
	BitsPerWeight    float64 `json:"bits_per_weight"`
	AllBitsPerWeight float64 `json:"all_bits_per_weight"`

	// Signal-to-quantization-noise ratios of the weights, 10 log10(sum w^2 / sum (w-w')^2):
	// mean over the quantized tensors and the worst of them. Zero if none was quantized with a loss.
	// Tensors that were copied from an older file do not count.
	MeanSQNR  float64 `json:"mean_sqnr_db"`
	WorstSQNR float64 `json:"worst_sqnr_db"`
	Worst     string  `json:"worst_tensor,omitempty"`

	// SmallScales counts groups of weights, not all zero, whose scale is below the normal range of its dtype, or would be
	// and is raised to the smallest that can be stored.
	SmallScales int64 `json:"small_scales"`

	// Recovered counts the groups whose weights were codes and scales already, and came back exactly. It is nil if there are
	// none.
	Recovered *Recovered `json:"recovered,omitempty"`

	Seconds        float64      `json:"seconds"`          // wall time of the job
	SyncSeconds    float64      `json:"sync_seconds"`     // of it, spent on sync and rename
	BytesPerSecond float64      `json:"bytes_per_second"` // of the checkpoint
	Tensors        []TensorSQNR `json:"tensors"`
}

// Recovered says how many groups of a tensor, or of all quantized tensors, were on a lattice of the scheme: their weights are
// codes times scales, rounded to the checkpoint's dtype. The codes are taken over, see rounding.RowQuantizer.Recover.
type Recovered struct {
	Exact  int64 `json:"groups"`
	Groups int64 `json:"of"` // all groups that are not all zero
}

func (r *Recovered) add(o Recovered) { r.Exact, r.Groups = r.Exact+o.Exact, r.Groups+o.Groups }

// some is r, or nil if no group was recovered.
func (r Recovered) some() *Recovered {
	if r.Exact == 0 {
		return nil
	}
	return &r
}

// TensorSQNR is the loss of one quantized tensor.
type TensorSQNR struct {
	Name string `json:"name"`
	// SQNR in dB; null where there is no noise at all, and of copied tensors.
	SQNR        *float64      `json:"sqnr_db"`
	Algorithm   gqf.Algorithm `json:"algorithm"`
	SmallScales int64         `json:"small_scales,omitempty"` // see Report
	Recovered   *Recovered    `json:"recovered,omitempty"`    // see Report
	Reused      bool          `json:"reused,omitempty"`       // copied from an older file
}

// report is the report of a job that took so long; the time after j.seconds was spent on sync and rename.
func (j *job) report(path string, total time.Duration) *Report {
	r, p := j.outline(), j.plan
	r.Output, r.Shards = j.target.output(path)
	if r.Shards == 1 {
		r.Shards = 0
	}
	r.Seconds, r.SyncSeconds, r.BytesPerSecond = total.Seconds(), (total - j.seconds).Seconds(), float64(p.in.size())/total.Seconds()
	var found []itemResult
	if j.found != nil {
		found = make([]itemResult, 0, len(r.Tensors))
		for _, it := range p.items {
			if e := it.common(); e.line.Action == ActionQuantize {
				found = append(found, j.found[e.index])
			}
		}
	}
	r.addFound(found)
	return r
}

// outline is the report without times and without the units' findings.
func (j *job) outline() *Report {
	p := j.plan
	r := &Report{
		Warnings: append([]string{}, slices.Concat(p.Warnings, j.calibrated.Warnings, j.notes)...), Fold: p.Fold, Reuse: j.reuse.report(), ReadBack: j.readBack,
		SourceBytes: p.in.size(), OutputBytes: j.size, Tensors: make([]TensorSQNR, 0, len(p.items)),
	}
	for _, t := range p.Tensors {
		switch t.Action {
		case ActionQuantize:
			r.Quantized++
			switch t.ZeroPoints {
			case rounding.FloatZeros:
				r.FloatZeros++
			case rounding.FractionalZeros:
				r.Fractions++
			case rounding.IntegerZeros:
				r.IntegerZeros++
				if t.Algorithm == gqf.AlgorithmHQQ {
					r.RoundedHQQ++
				}
			}
		case ActionUnquantized:
			r.Unquantized++
		case ActionShare:
			r.Shared++
		case ActionAbsorb:
			r.Absorbed++
		}
	}
	var bytes, weights, allBytes, allWeights int64
	var used []gqf.Algorithm
	for _, it := range p.items {
		e, w := it.common(), it.weights()
		allBytes, allWeights = allBytes+e.line.Bytes, allWeights+w
		if e.line.Action != ActionQuantize {
			continue
		}
		bytes, weights = bytes+e.line.Bytes, weights+w
		ts := TensorSQNR{Name: e.name(), Algorithm: e.line.Algorithm, Reused: j.reuse.of(it) != nil}
		if !slices.Contains(used, ts.Algorithm) {
			used = append(used, ts.Algorithm)
		}
		r.Tensors = append(r.Tensors, ts)
	}
	slices.Sort(used)
	names := make([]string, len(used))
	for i, a := range used {
		names[i] = a.String()
	}
	r.Algorithm = strings.Join(names, ", ")
	r.BitsPerWeight, r.AllBitsPerWeight = packing.BitsPerWeight(bytes, weights), packing.BitsPerWeight(allBytes, allWeights)
	return r
}

// addFound completes an outline with the findings for each tensor of the report; nil: there are none.
func (r *Report) addFound(found []itemResult) {
	var sum float64
	n := 0
	var recovered Recovered
	for i, f := range found {
		ts := &r.Tensors[i]
		ts.SmallScales, ts.Recovered = f.smallScales, f.recovered.some()
		r.SmallScales += f.smallScales
		recovered.add(f.recovered)
		if f.noise > 0 && f.signal > 0 {
			db := SQNR(f.signal, f.noise)
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
