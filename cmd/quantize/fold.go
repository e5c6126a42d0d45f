package quantize

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/fold"
)

// foldFlags have the checkpoint folded before it is quantized.
func foldFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "rotate", Usage: "turn hidden states and values by orthogonal matrices of --seed, folded into the weights: nothing is added at run time, but a head that was the embedding table is stored apart"},
		&cli.BoolFlag{Name: "equalize", Usage: "balance the columns of weights that share an input, the norm or linear before them doing the opposite"},
	}
}

// folding is a checkpoint that is folded before it is quantized.
type folding struct {
	c    *cli.Context
	opts quantizer.Options
	plan *quantizer.Plan // of the checkpoint as it is
	data *calibration    // nil: none
	awq  bool
	work fold.Work

	original *safetensors.Checkpoint
	ck       *safetensors.Checkpoint
	config   []byte
}

// foldingOf tells how the flags and the recipe want the checkpoint folded; nil: not at all.
func foldingOf(c *cli.Context, ck *safetensors.Checkpoint, config []byte, p *quantizer.Plan, opts quantizer.Options, data *calibration) (*folding, error) {
	// A dry run has no text to choose AWQ's factors with, as it has none for other algorithms.
	f := &folding{c: c, opts: opts, plan: p, data: data, original: ck, awq: data != nil && data.awq && !c.Bool("dry-run"), work: fold.Work{Dir: c.String("output") + ".fold"}}
	r := opts.Recipe
	if !r.Rotate && !r.Equalize && !f.awq {
		return nil, nil
	}
	what := "--rotate"
	switch {
	case !r.Rotate && r.Equalize:
		what = "--equalize"
	case !r.Rotate:
		what = "--algorithm awq"
	}
	if config == nil {
		return nil, cmdline.Usagef("%s has no config.json: for %s the model has to run", ck.Dir(), what)
	}
	// The model is that of the directory: a single file has to be all of it.
	whole, err := safetensors.Open(ck.Dir(), safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	if !slices.EqualFunc(whole.Files(), ck.Files(), func(a, b safetensors.SourceFile) bool { return a.Name == b.Name }) {
		return nil, cmdline.Usagef("%s is only a part of what is in %s: for %s name the directory of the whole model", ck.Files()[0].Name, ck.Dir(), what)
	}
	for _, name := range []string{"imatrix", "imatrix-out"} {
		if c.IsSet(name) {
			return nil, cmdline.Usagef("--%s beside %s: moments are those of one checkpoint's activations, and folding changes these; use --calibrate", name, what)
		}
	}
	return f, nil
}

// run folds the checkpoint, or finds it folded by a job that was ended, and opens the result. close has to be called.
func (f *folding) run() error {
	cmdline.LiftMemoryLimit()
	if !f.c.Bool("dry-run") {
		if err := f.plan.CheckOutput(f.c.String("output")); err != nil {
			return err
		}
	}
	job := fold.Job{Rotate: f.opts.Recipe.Rotate, Seed: f.c.Uint64("seed"), Equalize: f.opts.Recipe.Equalize, Options: fold.Options{Threads: f.opts.Threads}}
	if f.data != nil && !f.c.Bool("dry-run") {
		var err error
		if job.Text, err = f.data.text(f.c); err != nil {
			return err
		}
	}
	if f.awq {
		opts := f.opts
		opts.Progress = nil
		job.AWQ = &opts
	}
	key, err := f.key(job)
	if err != nil {
		return err
	}
	var bar *cmdline.Progress
	record, err := f.work.Get(key, func(dst string) (*fold.Record, error) {
		bar = cmdline.NewProgress(os.Stderr, job.Work(f.original), "folding", f.c.Bool("quiet"))
		defer bar.Finish()
		job.Progress = bar.Add
		return fold.Make(f.c.Context, f.original.Dir(), dst, job)
	})
	if err != nil {
		return err
	}
	if f.ck, err = safetensors.Open(f.work.Checkpoint(), safetensors.Options{}); err != nil {
		return err
	}
	if f.config, err = quantizer.ReadConfig(f.ck); err != nil {
		return err
	}
	origin := &quantizer.Origin{Checkpoint: f.original, Fold: record.Summary()}
	if origin.Record, err = record.JSON(); err != nil {
		return err
	}
	origin.Untied = record.Rotated() && slices.ContainsFunc(f.plan.Tensors, func(t *quantizer.PlanTensor) bool { return t.Action == quantizer.ActionShare })
	f.opts.Origin = origin
	return nil
}

// key is the hash of all that the folded checkpoint depends on. The original's files are known by size and time.
func (f *folding) key(job fold.Job) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, 1, job.Rotate, job.Equalize) // 1: the version of what is made
	if job.Rotate {
		fmt.Fprintln(h, job.Seed)
	}
	if job.AWQ != nil {
		recipe, err := job.AWQ.Recipe.JSON(job.AWQ.Rules)
		if err != nil {
			return "", err
		}
		h.Write(recipe)
	}
	if job.Text != nil {
		fmt.Fprintln(h, job.Text.Source, job.Text.SHA256, job.Text.Tokens())
	}
	fmt.Fprintln(h, f.plan.SourceStamps())
	if st, err := os.Stat(filepath.Join(f.plan.SourceDir(), "config.json")); err == nil {
		fmt.Fprintln(h, st.Size(), st.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// close ends the reading. What was made stays only for a job that was interrupted, to go on from there.
func (f *folding) close() error {
	var err error
	if f.ck != nil {
		err = f.ck.Close()
		if f.c.Context.Err() != nil {
			fmt.Fprintf(f.c.App.ErrWriter, "gq: the folded checkpoint is in %s: the same command goes on from there\n", cmdline.Text(f.work.Dir))
			return err
		}
	}
	return errors.Join(err, f.work.Remove())
}
