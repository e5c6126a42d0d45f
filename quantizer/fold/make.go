package fold

import (
	"context"
	"fmt"
	"os"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// Job says how a checkpoint is to be folded. Its steps are taken in this order.
type Job struct {
	// Rotate turns hidden states and values by matrices of Seed.
	Rotate bool
	Seed   uint64
	// Equalize divides and multiplies by factors that follow from the weights.
	Equalize bool
	// AWQ does by factors that follow from Text, for matrices that are to be quantized as it says with the algorithm awq.
	// Default: none.
	AWQ *conversion.Options
	// Text is what the result is checked on, and what AWQ needs. Default: random tokens.
	Text *text.Text
	Options
}

// Work is about how many bytes Progress is told of.
func (j *Job) Work(ck *safetensors.Checkpoint) (n int64) {
	for _, t := range ck.Tensors() {
		n += t.Size
	}
	steps := int64(0) // to choose factors is one too
	if j.Rotate {
		steps++
	}
	if j.Equalize {
		steps += 2
	}
	if j.AWQ != nil {
		steps += 2
	}
	return n * max(steps, 1)
}

// layerDone tells Progress of one of so many layers whose factors were chosen.
func (o Options) layerDone(ck *safetensors.Checkpoint, layers int) {
	if o.Progress == nil {
		return
	}
	n := int64(0)
	for _, t := range ck.Tensors() {
		n += t.Size
	}
	o.Progress(n / int64(layers))
}

// Make folds the checkpoint in the directory src into dst, which must not exist and appears when it is complete and has
// been found to be the same model: logits may differ by what rounding to float32 leaves, else it is an *ExactnessError.
// The record makes the same checkpoint again.
func Make(ctx context.Context, src, dst string, j Job) (*Record, error) {
	r := &Record{Version: recordVersion}
	from := src
	var parts []string
	defer func() {
		for _, p := range parts {
			os.RemoveAll(p)
		}
	}()
	take := func(s Step) error {
		to := fmt.Sprintf("%s.part%d", dst, len(r.Steps))
		parts = append(parts, to)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := applyStep(ctx, from, to, &s, j.Options); err != nil {
			return err
		}
		r.Steps = append(r.Steps, s)
		if from != src {
			if err := os.RemoveAll(from); err != nil {
				return err
			}
		}
		from = to
		return nil
	}
	if j.Rotate {
		if err := take(Rotate(j.Seed)); err != nil {
			return nil, err
		}
	}
	if j.Equalize {
		s, err := Equalize(ctx, from, j.Options)
		if err == nil {
			err = take(s)
		}
		if err != nil {
			return nil, err
		}
	}
	if j.AWQ != nil {
		s, err := AWQ(ctx, from, *j.AWQ, j.Text, j.Options)
		if err == nil {
			err = take(s)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(r.Steps) == 0 {
		return nil, fmt.Errorf("fold: nothing to do")
	}
	var sequences [][]int32
	source := ""
	if j.Text != nil {
		sequences, source = j.Text.Sequences, j.Text.Source
	}
	var err error
	if r.Check, err = compareLogits(ctx, src, from, sequences, source, j.Options); err != nil {
		return nil, err
	}
	return r, os.Rename(from, dst)
}

// Summary is what a file's provenance says of the record.
func (r *Record) Summary() conversion.Fold {
	f := conversion.Fold{Steps: []string{}}
	for i := range r.Steps {
		one := Record{Steps: r.Steps[i : i+1]}
		f.Steps = append(f.Steps, one.String())
	}
	if r.Check != nil {
		f.Tokens, f.Source, f.Difference, f.Rerouted = r.Check.Tokens, r.Check.Source, r.Check.Difference, r.Check.Rerouted
	}
	return f
}
