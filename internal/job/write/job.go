package write

import (
	"context"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// Job is a plan with its input and its output. It may be written several times.
type Job struct {
	*plan.Plan
	In  Input
	Out Output
	// Whole returns a job that writes a divided output, or a directory, as one file, and the path of
	// this file for an output at path. Default (nil): the output is one file.
	Whole func(path string) (*Job, string, error)
	// Hash returns the SHA-256 of the source files of a part; "" for the others. nil: the output has
	// none.
	Hash func(ctx context.Context, t Part) ([]string, error)
	// Samples is a digest of weights, which tells parts of equal plans apart. nil: the input has none.
	Samples func() ([32]byte, error)
	// Ahead begins to fetch what n units read from elsewhere. nil: the input's files are local.
	Ahead func(ctx context.Context, n int, at func(i int) Unit) *safetensors.ReadAhead
	// Need begins to read what a unit reads from local files. nil: nothing is read ahead.
	Need func(u Unit)
	// Release takes what a unit has read from local files out of memory. nil: nothing is taken.
	Release func(u Unit)
}

// New completes a plan with the size of its output.
func New(p *plan.Plan, in Input, out Output) (j *Job, err error) {
	j = &Job{Plan: p, In: in, Out: out}
	p.OutputBytes, err = j.SizeWith(nil, nil)
	return j, err
}

// SizeWith is the exact size of the output with accounts of calibration and tuning; nil: none.
func (j *Job) SizeWith(c *provenance.Calibration, t *provenance.Tuning) (int64, error) {
	target, err := j.Out.Target(&plan.Codes{Calibration: c, Tuned: &plan.Tuned{Tuning: t}}, nil, nil)
	if err != nil {
		return 0, err
	}
	return total(target), nil
}

func total(t Target) (n int64) {
	for _, f := range t.Files("") {
		n += f.Size
	}
	return n
}

// CanStream reports whether WriteTo can write the output: a .gqf file. Other outputs are read back
// before they appear.
func (j *Job) CanStream() bool {
	_, ok := j.Out.(interface{ Streams() })
	return ok
}

// Streams reports whether the output can be written while weights come from elsewhere: each byte of
// the checkpoint is read once, in about the order of the output. most is the memory for bytes of
// the checkpoint.
func (j *Job) Streams() (most int64, ok bool) {
	if !j.CanStream() || j.Hash != nil {
		return 0, false
	}
	most = safetensors.ReadAheadBytes
	for it := range j.Quantized() {
		if it.Transposed {
			most = max(most, it.Src.Size/int64(it.Slices))
		}
	}
	return most, true
}

// Units cuts the plan into pieces that depend on shapes only.
func (j *Job) Units() *Units {
	list := &Units{Runs: make([]unitRun, 0, len(j.Items))}
	weights := j.In.Facts().Weights
	for _, it := range j.Items {
		switch it := it.(type) {
		case *plan.Quantized:
			list.addBlocks(it, weights && it.Transposed)
		case *plan.Unquantized:
			j.Out.CopyUnits(list, it)
		}
	}
	return list
}

// fileOf is the name of the file with an item in messages.
func (j *Job) fileOf(e *plan.Entry) string { return j.In.Facts().Files[e.Src.File] }

// Options are the options of a writing.
type Options struct {
	// Codes were chosen elsewhere. Default: none; all are chosen while the output is written.
	Codes *plan.Codes
	// Check is called, before the output appears at its path, with the path of a complete temporary
	// file and with the report. If it fails, the file is removed and its path holds what it held
	// before. Default: none.
	Check func(temp string, r *Report) error
	// Written is called when all data are written, before the output is compared with the input.
	// Default: none.
	Written func()
	// Progress is called, from any worker, with bytes of the source that were done since the last
	// call. Default: none.
	Progress func(n int64)
}
