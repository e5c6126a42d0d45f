package gq

import (
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// PlanReport describes a job of Quantize, Repack or Export.
type PlanReport struct {
	Tensors  []*conversion.PlanTensor `json:"tensors"`
	Warnings []string                 `json:"warnings"`
	// OutputBytes is the exact size of the file, or 0 if Choice is set. SourceBytes is the size of the
	// tensors of the checkpoint.
	OutputBytes int64 `json:"output_bytes"`
	SourceBytes int64 `json:"source_bytes"`
	// Estimate is the expected time and memory; nil for Repack.
	Estimate *Estimate `json:"estimate,omitempty"`
	// Fold says how the checkpoint is folded first; nil if it is not.
	Fold *conversion.Fold `json:"fold,omitempty"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without one, or if they are not made.
	Allocation *Allocation `json:"allocation,omitempty"`
	// Choice describes the choices for a Budget that are not made, see Plan. Their tensors are in Tensors
	// as the recipe has them without the Budget.
	Choice *PlannedChoice `json:"choice,omitempty"`
}

func newPlanReport(p *conversion.Plan) *PlanReport {
	return &PlanReport{Tensors: p.Tensors, Warnings: p.Warnings, OutputBytes: p.OutputBytes, SourceBytes: p.SourceBytes, Fold: p.Fold}
}

// QuantizeReport is the result of Quantize.
type QuantizeReport struct {
	*conversion.Report
	// Written reports whether the file was written. It is not if it does not meet its gate.
	Written bool `json:"written"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without one.
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
