package conversion

import (
	"context"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/togqf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Options of a job. The zero value is 4-bit, group 32, full-range, BF16 scales,
// embeddings at 8 bits, the default tile, every CPU.
type Options struct {
	// Context ends NewPlan with its error when it is cancelled: many rules take long to match with
	// many tensors. Default (nil): nothing ends it.
	Context context.Context
	// Recipe decides the scheme of each tensor; see Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules come before the recipe's own (the command line's --rule).
	Rules []quantizer.Rule
	// Threads is how many workers run. Default: GOMAXPROCS. The output does not depend on it.
	Threads int
	// Origin is set if the checkpoint was folded from another one. The file then names Origin as its
	// source. Default: none.
	Origin *fromcheckpoint.Origin
	// GGUF makes the output a .gguf file. The recipe's target must be gguf. Default (nil): a .gqf
	// file.
	GGUF *togguf.Options
	// Checkpoint makes the output a directory: a checkpoint in a format of another library. The
	// recipe's target must be the format's. Default (nil): a .gqf file.
	Checkpoint *tocheckpoint.Options
	// Sources are the files that the checkpoint was made of, and that a file says it was made of, if
	// the checkpoint is temporary. Default: the checkpoint's own files.
	Sources []provenance.Source
	// Assets lets the plans of a job share the packed files of a checkpoint; copies of Options
	// share it. Default (nil): each plan reads and compresses these files.
	Assets *fromcheckpoint.AssetCache
}

// NewPlan lays out the job of quantizing ck. config is the raw config.json, nil if the checkpoint
// has none. Weights are read only to compare an lm_head with the embedding, and a few rows to look
// for lattices.
//
// It fails with a *RequestError for a rule that matches nothing or a tensor that it cannot apply to
// and for a layout that cannot hold the scheme; also for a tensor of unknown dtype.
func NewPlan(ck *safetensors.Checkpoint, config []byte, o Options) (*fromcheckpoint.Plan, error) {
	in := fromcheckpoint.New(ck, config, fromcheckpoint.Options{
		Context: o.Context, Recipe: o.Recipe, Rules: o.Rules, Threads: o.Threads, Origin: o.Origin, Sources: o.Sources, Cache: o.Assets,
	})
	switch {
	case o.Checkpoint != nil:
		format := o.Checkpoint.Format
		if config != nil && o.Recipe.CheckpointFormat() != format {
			return nil, quantizer.Requestf("a checkpoint of format %s holds schemes of its own target only: state the target", format)
		}
		p, err := in.Plan(tocheckpoint.New(in, *o.Checkpoint, packing.F32))
		if err != nil {
			return nil, err
		}
		o.Checkpoint = nil
		p.Whole = func(path string) (*write.Job, string, error) {
			one, err := NewPlan(ck, config, o)
			if err != nil {
				return nil, "", err
			}
			return one.Job, filepath.Clean(path) + ".gqf", nil // the path may end in a separator
		}
		return p, nil
	case o.GGUF != nil:
		if config != nil && !o.Recipe.ForGGUF() {
			return nil, quantizer.Requestf("a .gguf file holds schemes of target gguf only: state the target")
		}
		out := togguf.New(in, *o.GGUF)
		p, err := in.Plan(out)
		if err == nil {
			p.Whole = wholeGGUF(p.Job, out)
		}
		return p, err
	}
	return in.Plan(togqf.New(in))
}

// wholeGGUF is Job.Whole of a .gguf file.
func wholeGGUF(j *write.Job, out *togguf.Output) func(path string) (*write.Job, string, error) {
	return func(path string) (*write.Job, string, error) {
		one := *j
		one.Out, one.Whole = out.Whole(), nil
		return &one, path, nil
	}
}
