package gq

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// PlanReport describes a job of Quantize, Repack or Export.
type PlanReport struct {
	Tensors  []*plan.Tensor `json:"tensors"`
	Warnings []string       `json:"warnings"`
	// OutputBytes is the exact size of the file, or 0 if Choice is set. SourceBytes is the size of the
	// tensors of the checkpoint.
	OutputBytes int64 `json:"output_bytes"`
	SourceBytes int64 `json:"source_bytes"`
	// Estimate is the expected time and memory; nil for Repack.
	Estimate *Estimate `json:"estimate,omitempty"`
	// Fold says how the checkpoint is folded first; nil if it is not.
	Fold *provenance.Fold `json:"fold,omitempty"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without a Budget, or if Plan does not choose.
	Allocation *Allocation `json:"allocation,omitempty"`
	// Choice describes the choices for a Budget that are not made, see Plan. Their tensors are in
	// Tensors as the recipe has them without the Budget.
	Choice *PlannedChoice `json:"choice,omitempty"`
}

func newPlanReport(p *write.Job) *PlanReport {
	return &PlanReport{Tensors: p.Tensors, Warnings: p.Warnings, OutputBytes: p.OutputBytes, SourceBytes: p.SourceBytes, Fold: p.Fold}
}

// QuantizeReport is the result of Quantize.
type QuantizeReport struct {
	*write.Report
	// Written reports whether the file was written. A file that does not meet its gate is not.
	Written bool `json:"written"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without a Budget.
	Allocation *Allocation `json:"allocation,omitempty"`
	// Tuning says what tuning gained; nil without.
	Tuning *TuningReport `json:"tuning,omitempty"`
	// HeldOut is the loss of a file that was calibrated with text. It is nil for other files, for
	// which the report has the SQNR.
	HeldOut *HeldOut `json:"held_out,omitempty"`
	// Accuracy is the measurement; nil without QuantizeOptions.Measure.
	Accuracy *accuracy.Report `json:"accuracy,omitempty"`
	// WriteSeconds is the time to write the file, a part of the report's Seconds for the whole job.
	// The report's BytesPerSecond is 0 if the job did more than write: calibrate, fold, choose bits
	// or measure.
	WriteSeconds float64 `json:"write_seconds"`
	// NotRunnable says why gq cannot run the model in the file; "" if it can.
	NotRunnable string `json:"not_runnable,omitempty"`
}

// PlannedChoice describes a choice of bits that is not made yet.
type PlannedChoice struct {
	// Tensors get bits, each from MinBits to MaxBits, and a group of Groups; 0 is a group per channel.
	Tensors []string `json:"tensors"`
	MinBits int      `json:"min_bits"`
	MaxBits int      `json:"max_bits"`
	Groups  []int    `json:"groups"`
	// The target is between these limits, or beyond the greater limit.
	LeastBitsPerWeight float64 `json:"least_bits_per_weight"`
	MostBitsPerWeight  float64 `json:"most_bits_per_weight"`
	LeastOutputBytes   int64   `json:"least_output_bytes"`
	MostOutputBytes    int64   `json:"most_output_bytes"`
	// Tokens is the length of the text that bits are chosen on. It is read once by the checkpoint's
	// model, once forward and backward, and once for each of Probes.
	Tokens int `json:"tokens"`
	Probes int `json:"probes"`
	// Files is the greatest number of files that are made and run on a text to compare them.
	Files int `json:"files"`
}

// Estimate is the expected time and memory of a job.
type Estimate struct {
	// MemoryBytes is the private memory, Seconds the wall time on Threads threads.
	MemoryBytes int64   `json:"memory_bytes"`
	Seconds     float64 `json:"seconds"`
	// DiskBytes is the size of calibrated layers and of the state of tuning in the working directory,
	// from which an interrupted job resumes, and of a file that is measured to choose bits. 0 without
	// these.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	Threads   int   `json:"threads"`
	// How explains the basis of the estimate.
	How string `json:"how"`
}

// String describes the estimate in a line.
func (e *Estimate) String() string {
	threads := "1 thread"
	if e.Threads != 1 {
		threads = fmt.Sprintf("%d threads", e.Threads)
	}
	megabytes := func(n int64) int64 { return max(1, (n+500_000)/1_000_000) }
	s := fmt.Sprintf("about %s on %s, %d MB of private memory", roughly(e.Seconds), threads, megabytes(e.MemoryBytes))
	if e.DiskBytes > 0 {
		s += fmt.Sprintf(", up to %d MB on disk until the job ends", megabytes(e.DiskBytes))
	}
	return s
}

// roughly formats a time with as many digits as an estimate deserves.
func roughly(seconds float64) string {
	switch {
	case seconds < 1.5:
		return "a second"
	case seconds < 90:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 90*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// FoldChoice says how a recipe's fold auto was resolved: by the KL divergence of the model that is
// folded in each way, then quantized without data at the recipe's bits.
type FoldChoice struct {
	// Fold is the choice: "none", "equalize", "rotate" or "rotate,equalize".
	Fold       string          `json:"fold"`
	Candidates []FoldCandidate `json:"candidates"`
	// Tokens counts the scored tokens of the text, Source is as in HeldOut.
	Tokens int    `json:"tokens"`
	Source string `json:"source"`
	// Activations are "int8" as a device executes a .gqf file, "float32" for files of other formats:
	// their runtimes have activations of their own.
	Activations string `json:"activations"`
}

// FoldCandidate is a way to fold.
type FoldCandidate struct {
	Fold string `json:"fold"`
	// KL is the mean KL divergence from the checkpoint, in nats per token.
	KL float64 `json:"kl"`
	// Impossible says why the checkpoint cannot be folded so; "" if it can.
	Impossible string `json:"impossible,omitempty"`
}

// String has the choice and the figures of all candidates.
func (c *FoldChoice) String() string {
	var parts []string
	for _, k := range c.Candidates {
		if k.Impossible == "" {
			parts = append(parts, fmt.Sprintf("%s %.4g", k.Fold, k.KL))
		} else {
			parts = append(parts, k.Fold+" impossible")
		}
	}
	return fmt.Sprintf("%s; KL %s (%d tokens, %s, %s activations)", c.Fold, strings.Join(parts, ", "), c.Tokens, c.Source, c.Activations)
}

// TuningReport says what tuning gained on text that was held out from it. All divergences are mean
// KL divergences from the checkpoint in nats per token.
type TuningReport struct {
	Kind quantizer.Tune `json:"kind"`
	// Used reports whether the file has the tuned numbers. If they are no better as executed, the file
	// has the untuned numbers.
	Used  bool `json:"used"`
	Steps int  `json:"steps"`
	Step  int  `json:"step"` // with the least divergence; 0: the start
	// WeightsBefore and WeightsAfter are measured with dequantized weights and activations in
	// float32.
	WeightsBefore float64 `json:"weights_before"`
	WeightsAfter  float64 `json:"weights_after"`
	// Before and After are measured as a device executes the files; nil if gq has no kernels for
	// the files. WeightsBefore and WeightsAfter decide then.
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
	// Tokens counts the tokens of the text, HeldOut the scored tokens of the held-out part. Source is
	// "self", "text" or "tokens".
	Tokens  int    `json:"tokens"`
	HeldOut int    `json:"held_out_tokens"`
	Source  string `json:"source"`
}

// HeldOut compares a calibrated file with its checkpoint on text that calibration did not see.
type HeldOut struct {
	// KL is the mean KL divergence from the checkpoint, in nats per token, with the quantized model
	// executed as on a device.
	KL float64 `json:"kl"`
	// Tokens counts the scored tokens.
	Tokens int `json:"tokens"`
	// Source is "text" or "tokens" for the text after the calibration text in its file, "self" for
	// text that the model wrote.
	Source string `json:"source"`
}
