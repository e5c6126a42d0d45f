package gq

import (
	"context"
	"time"

	"github.com/lowbit-go/gq/internal/job/synth"
)

// SynthReport is the result of Synth.
type SynthReport struct {
	Output     string  `json:"output"` // the directory
	Parameters int64   `json:"parameters"`
	Bytes      int64   `json:"bytes"` // of the tensors
	Seconds    float64 `json:"seconds"`
}

// Synth makes a checkpoint of random weights with the shape of spec in the directory dir, for
// measurements and tests. It creates dir and refuses a directory that holds a checkpoint. p, unless
// nil, is told how far the job is.
func Synth(ctx context.Context, dir string, spec synth.Spec, p Progress) (*SynthReport, error) {
	start := time.Now()
	add, end := stages{to: p}.begin("making weights", "bytes", spec.Bytes())
	defer end()
	if err := synth.Write(ctx, dir, spec, add); err != nil {
		return nil, err
	}
	return &SynthReport{dir, spec.Parameters(), spec.Bytes(), time.Since(start).Seconds()}, nil
}
