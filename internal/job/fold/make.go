package fold

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// Job says how to fold a checkpoint.
type Job struct {
	// Rotate rotates hidden states and values by matrices that depend on Seed.
	Rotate bool
	Seed   uint64
	// Equalize applies factors that follow from the weights. With Rotate, this happens before and
	// after the rotation, because rotations spread outliers of values over their heads for good.
	Equalize bool
	// AWQ applies factors from Text for the matrices with the algorithm awq here. Default: none.
	AWQ *conversion.Options
	// Text is the text for the check of the result, and for AWQ. Default: random tokens.
	Text *text.Text
	Options
}

// Work is approximately the total of Progress.
func (j *Job) Work(ck *safetensors.Checkpoint) int64 {
	steps := int64(0) // choosing factors is a step too
	if j.Rotate {
		steps++
	}
	if j.Equalize {
		steps += 2
	}
	if j.Rotate && j.Equalize {
		steps += 2
	}
	if j.AWQ != nil {
		steps += 2
	}
	return ck.DataBytes() * max(steps, 1)
}

// layerDone reports the factors of a layer, out of so many, to Progress.
func (o Options) layerDone(ck *safetensors.Checkpoint, layers int) {
	if o.Progress != nil {
		o.Progress(ck.DataBytes() / int64(layers))
	}
}

// Make folds the checkpoint in the directory src into dst. dst must not exist; it appears when
// complete and checked. If logits differ by more than float32 rounding, the error is an
// *ExactnessError. The record makes the same checkpoint again.
func Make(ctx context.Context, src, dst string, j Job) (*Record, error) {
	r := &Record{Version: recordVersion}
	c := newChain(ctx, src, dst, j.Options)
	defer c.close()
	equalize := func() (Step, error) { return Equalize(ctx, c.from, j.Options) }
	var steps []func() (Step, error)
	if j.Equalize {
		steps = append(steps, equalize)
	}
	if j.Rotate {
		steps = append(steps, func() (Step, error) { return Rotate(j.Seed), nil })
		if j.Equalize {
			steps = append(steps, equalize)
		}
	}
	if j.AWQ != nil {
		steps = append(steps, func() (Step, error) { return AWQ(ctx, c.from, *j.AWQ, j.Text, j.Options) })
	}
	for _, choose := range steps {
		s, err := choose()
		if err != nil {
			return nil, err
		}
		r.Steps = append(r.Steps, s)
		if err := c.take(s.edits); err != nil {
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
	if r.Check, err = Compare(ctx, src, c.from, sequences, source, j.Options); err != nil {
		return nil, err
	}
	return r, os.Rename(c.from, dst)
}

// chain makes each checkpoint from the previous, in temporary directories next to a path.
type chain struct {
	Options
	ctx       context.Context
	src, from string // the first and the last checkpoint
	base      string // the path
	parts     []string
}

func newChain(ctx context.Context, src, base string, o Options) *chain {
	return &chain{ctx: ctx, src: src, from: src, base: base, Options: o}
}

func (c *chain) take(prepare func(*source) (*edits, error)) error {
	to := fmt.Sprintf("%s.part%d", c.base, len(c.parts))
	c.parts = append(c.parts, to)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := change(c.ctx, c.from, to, prepare, c.Options); err != nil {
		return err
	}
	if c.from != c.src {
		if err := os.RemoveAll(c.from); err != nil {
			return err
		}
	}
	c.from = to
	return nil
}

func (c *chain) close() {
	for _, p := range c.parts {
		os.RemoveAll(p)
	}
}

// Summary describes the record in a file's provenance.
func (r *Record) Summary() provenance.Fold {
	f := provenance.Fold{Steps: []string{}}
	for i := range r.Steps {
		one := Record{Steps: r.Steps[i : i+1]}
		f.Steps = append(f.Steps, one.String())
	}
	if r.Check != nil {
		f.Tokens, f.Source, f.Difference, f.Rerouted = r.Check.Tokens, r.Check.Source, r.Check.Difference, r.Check.Rerouted
	}
	return f
}

// source is an open checkpoint with its config.
type source struct {
	*safetensors.Checkpoint
	config []byte // nil without config.json
	block  [2]int // of FP8 weights with a scale
	tied   bool   // config.json ties lm_head to the embedding
}

func openSource(dir string) (*source, error) {
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	s := &source{Checkpoint: ck}
	if s.config, err = assets.ReadConfig(ck); err == nil && s.config != nil {
		var facts *arch.Config
		if facts, err = arch.ParseConfig(s.config); err == nil {
			s.block, s.tied = facts.WeightBlockSize, facts.TieWordEmbeddings
		} else {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
		}
	}
	if err != nil {
		ck.Close()
		return nil, err
	}
	return s, nil
}

func (s *source) weights(name string) (*safetensors.Weights, error) {
	t, ok := s.Lookup(name)
	if !ok {
		return nil, &MismatchError{s.Dir(), fmt.Sprintf("tensor %q is missing", name)}
	}
	return s.Weights(t, safetensors.WeightsOptions{Block: s.block})
}

// Names in the tree of a stored checkpoint.
const (
	treeName       = "fold"
	checkpointName = "checkpoint"
	recordName     = "record.json"
)

// Stored returns the folded checkpoint that a working directory stores for a key. If there is none,
// make creates the directory dst with the folded checkpoint, and Stored stores it. key hashes
// everything that the result depends on. found reports whether the checkpoint was stored already.
func Stored(ctx context.Context, work *workdir.Dir, key string, make func(dst string) (*Record, error)) (checkpoint string, r *Record, found bool, err error) {
	tree, found, err := work.Tree(ctx, treeName, key, func(dir string) error {
		r, err := make(filepath.Join(dir, checkpointName))
		if err != nil {
			return err
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, recordName), raw, 0o666)
	})
	if err != nil {
		return "", nil, false, err
	}
	raw, err := files.Read(filepath.Join(tree, recordName), files.MaxFold)
	if err != nil {
		return "", nil, false, err
	}
	if r, err = ParseRecord(raw); err != nil {
		return "", nil, false, err
	}
	return filepath.Join(tree, checkpointName), r, found, nil
}
