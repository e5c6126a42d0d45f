package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/formats/safetensors/synth"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/fold"
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

// outlierTokens is the length of the text on which SynthOutliers measures activations.
const outlierTokens = 1024

// OutlierOptions are the options of SynthOutliers. The zero value is ready to use.
type OutlierOptions struct {
	// Seed of the choice of channels and factors, and of the text that the model writes. Default
	// (0): 1.
	Seed uint64
	// Strength is the largest factor of a channel, a power of two from 2 to 1024; the least is an
	// eighth of it. Default (0): fold.DefaultStrength.
	Strength int
	// Calibrate names a file of text or token ids, whose hidden states give the principal directions.
	// Default ("" and quantizer.Self): the model writes a text; random tokens if it has no tokenizer.
	Calibrate string
	// Threads is how many workers run. Default (0): GOMAXPROCS. The copy does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// OutlierReport is the result of SynthOutliers.
type OutlierReport struct {
	*fold.OutlierReport
	Output  string  `json:"output"` // the directory
	Seconds float64 `json:"seconds"`
}

// SynthOutliers makes a copy of the checkpoint in the directory src. The copy computes the same
// function and has outliers in its activations, as models of billions of weights have. It serves
// measurements and tests. It creates dir, which must not exist, and checks the logits. See fold.Outliers.
func SynthOutliers(ctx context.Context, src, dir string, o OutlierOptions) (*OutlierReport, error) {
	start := time.Now()
	defer memlimit.Lift()()
	s := stages{to: o.Progress}
	seed, dir := cmp.Or(o.Seed, 1), filepath.Clean(dir)
	if o.Threads < 0 {
		return nil, optionf("threads", "%d: at least 1", o.Threads)
	}
	if err := fold.CheckNew(dir); err != nil { // the model's text takes long
		return nil, err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	job := fold.OutlierOptions{Options: fold.Options{Threads: o.Threads}, Seed: seed, Strength: o.Strength}
	if err := job.Validate(); err != nil {
		return nil, &OptionError{"strength", err}
	}
	if job.Text, err = o.text(ctx, src, seed, s); err != nil {
		return nil, err
	}
	add, end := s.begin("making outliers", "bytes", fold.OutlierWork(ck))
	defer end()
	job.Progress = add
	r, err := fold.Outliers(ctx, src, dir, job)
	if err != nil {
		return nil, err
	}
	return &OutlierReport{r, dir, time.Since(start).Seconds()}, nil
}

// text is the text to measure activations on; nil for random tokens.
func (o *OutlierOptions) text(ctx context.Context, src string, seed uint64, s stages) (*text.Text, error) {
	tok, err := tokenizer.Open(src)
	self := o.Calibrate == "" || o.Calibrate == quantizer.Self
	if errors.Is(err, fs.ErrNotExist) && self {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := model.OpenCheckpoint(src, model.Options{Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if self {
		add, end := s.begin(stageText, "tokens", outlierTokens)
		defer end()
		from, ends := text.Start(tok)
		return text.Write(ctx, m, text.WriteOptions{
			Start: from, Ends: ends, Tokens: outlierTokens, Window: text.WindowOf(m.Config()), Seed: seed, Progress: func(n int) { add(int64(n)) },
		})
	}
	t, err := readText(ctx, tok, o.Calibrate, outlierTokens, text.WindowOf(m.Config()))
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	return t, nil
}
