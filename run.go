package gq

import (
	"context"
	"runtime/debug"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model/generate"
)

// RunOptions are the options of Run.
type RunOptions struct {
	generate.Options
	// Activations is the type of the inputs of quantized layers. Default (forward.Int8): as on the
	// device. A checkpoint runs in float32.
	Activations forward.Activations
	// Threads is how many workers run. Default (0): GOMAXPROCS. The text does not depend on it.
	Threads int
	// Progress is told how far the download of a remote model is. Default (nil): none.
	Progress Progress
	// Verify checks the checksums of all weights of a .gqf that the model uses before it runs.
	// Default: no weight is read in advance.
	Verify bool
}

// Run continues a prompt with the model at path: a .gqf file, a GGUF file, a checkpoint directory,
// or a remote name (see [Pull]): the model is downloaded first. Quantized tensors of a GGUF file or
// a checkpoint run through gq's kernels if a .gqf file holds their codes, and in float32 otherwise;
// it takes a temporary .gqf file. If ctx is cancelled or a callback fails, Run returns the error
// and the result so far.
func Run(ctx context.Context, path string, o RunOptions) (r *generate.Result, err error) {
	err = o.open(ctx, path, func(g *generate.Generator) error {
		r, err = g.Run(ctx, o.Options)
		return err
	})
	return r, err
}

// open opens the model at path, calls use, and closes the model.
func (o *RunOptions) open(ctx context.Context, path string, use func(g *generate.Generator) error) error {
	if o.Verify && IsGGUF(path) {
		return optionf("verify", "needs a .gqf file: a .gguf file has no checksums")
	}
	from, err := resolveSource(ctx, path, true, stages{to: o.Progress})
	if err != nil {
		return err
	}
	defer from.Release()
	return withGQF(ctx, from.Path, o.Threads, stages{}, func(file string, _ *measure.Imported) error {
		defer memlimit.Lift()()
		g, err := generate.Open(file, generate.OpenOptions{Threads: o.Threads, Activations: o.Activations, Verify: o.Verify, Name: from.Name})
		if err != nil {
			return err
		}
		defer g.Close()
		debug.FreeOSMemory() // memory that reading the tokenizer took
		return use(g)
	})
}
