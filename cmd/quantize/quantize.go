// Package quantize is the command `gq quantize`: a checkpoint becomes a .gqf file.
package quantize

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
)

// Command gives `gq quantize`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "quantize",
		Usage:     "turn a safetensors checkpoint into a .gqf file of packed low-bit weights",
		ArgsUsage: "[SRC]",
		Description: "SRC is a .safetensors file or a directory that holds a checkpoint, sharded or not\n" +
			"(default: the current directory). With --gate the result is measured as gq accuracy does it, and\n" +
			"if the gate is not met, no file is left and the exit status is 3.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "model.gqf", Usage: "`FILE` to write; it is replaced only when the new one is complete"},
			&cli.IntFlag{Name: "bits", Value: 4, Usage: "bits per code of projections, experts and an untied lm_head, 1-8"},
			&cli.StringFlag{Name: "group", Value: "32", Usage: "weights along K that share a scale: a multiple of 16, or channel"},
			&cli.StringFlag{Name: "mapping", DefaultText: "full-range; half-step at 1 bit", Usage: "full-range, symmetric, symmetric-no-clip, asymmetric, or half-step at 1 and 2 bits"},
			&cli.StringFlag{Name: "algorithm", DefaultText: "search; rtn with symmetric and symmetric-no-clip", Usage: "how scales and codes are chosen: search (for the least weighted error), rtn (the mapping's formula), hqq or mse; with calibration imatrix, awq, gptq or gptq-ft"},
			&cli.StringFlag{Name: "scale-dtype", Value: "bf16", Usage: "dtype of the stored scales: bf16, f16 or f32"},
			&cli.BoolFlag{Name: "positive-scales", Usage: "never store a negative scale (XNNPACK refuses them); costs accuracy"},
			&cli.IntFlag{Name: "embedding-bits", Value: 8, Usage: "bits of the embedding table and of a lm_head tied to it"},
			&cli.StringFlag{Name: "embedding-group", DefaultText: "as --group", Usage: "group of the embedding table"},
			&cli.StringFlag{Name: "layout", DefaultText: "lowbit", Usage: "lowbit, kleidiai, torchao or plain, alone or with a tile (kleidiai:4x16x2); several, separated by commas, store each tensor in each"},
			&cli.StringFlag{Name: "tile", DefaultText: "the layout's own", Usage: "nr x kr x sr of layouts that state none: 4x8x2, 4x16x2, 8x8x2, 8x16x2, 4x4x1 or 4x8x1"},
			&cli.StringFlag{Name: "target", Usage: "`NAME` of a consumer, which chooses layout, tile, scales and the table's scheme: " + quantizer.TargetNames(quantizer.Targets)},
			&cli.StringSliceFlag{Name: "rule", Usage: "`RULE` is NAME=bits[,group][,mapping]... or NAME=skip; NAME is a tensor, a module or re:REGEXP (repeatable)"},
			&cli.StringFlag{Name: "recipe", Usage: "YAML `FILE` with settings and rules; flags given beside it win"},
			&cli.StringFlag{Name: "hash", Value: "headers", Usage: "headers, or sha256 to record the hash of every whole source file too"},
			&cli.IntFlag{Name: "threads", DefaultText: "every CPU", Usage: "workers; the output does not depend on it"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing (but a folded checkpoint, until it ends)"},
			&cli.BoolFlag{Name: "json", Usage: "print the plan or the summary as JSON"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the file although the --gate is not met"},
		}, slices.Concat(targetFlags(), calibrationFlags(), foldFlags(), measure.TextFlags())...),
		Action: run,
	}
}

func run(c *cli.Context) (err error) {
	if err := setQuality(c); err != nil {
		return err
	}
	opts, err := options(c)
	if err != nil {
		return err
	}
	src, err := source(c)
	if err != nil {
		return err
	}
	job, err := gateJob(c, src)
	if err != nil {
		return err
	}
	goal, err := goalOf(c)
	if err != nil {
		return err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	config, err := quantizer.ReadConfig(ck)
	if err != nil {
		return err
	}
	var bar *cmdline.Progress // while Write runs
	opts.Progress = func(n int64) {
		if bar != nil {
			bar.Add(n)
		}
	}
	plan, err := quantizer.NewPlan(ck, config, opts)
	if err != nil {
		return cmdline.Requested(err)
	}
	data, err := calibrationOf(c, plan, goal != nil, opts.Recipe.Rotate)
	if err != nil {
		return err
	}
	if data != nil || goal != nil {
		defer func() { err = leaveWork(c, err) }()
	}
	dir := src
	folding, err := foldingOf(c, ck, config, plan, opts, data)
	if err != nil {
		return err
	}
	if folding != nil {
		defer func() {
			if e := folding.close(); err == nil {
				err = e
			}
		}()
		if err := folding.run(); err != nil {
			return cmdline.Requested(err)
		}
		ck, config, opts, dir = folding.ck, folding.config, folding.opts, folding.ck.Dir()
		if plan, err = quantizer.NewPlan(ck, config, opts); err != nil {
			return cmdline.Requested(err)
		}
		if job != nil {
			job.Folded = dir
		}
	}
	var chosen *allocation
	if goal != nil {
		if chosen, err = goal.choose(c, dir, ck, config, opts, data); err != nil {
			return cmdline.Requested(err)
		}
		plan, opts.Rules = chosen.Plan, append(chosen.Rules, opts.Rules...)
	}
	if err := saveRecipe(c, opts, chosen); err != nil {
		return err
	}
	if chosen != nil && !c.Bool("json") {
		if err := chosen.print(c.App.Writer); err != nil {
			return err
		}
	}
	if c.Bool("dry-run") {
		return printChosenPlan(c, plan, chosen)
	}
	if data != nil {
		var done func()
		if done, err = data.run(c, plan); err != nil {
			return cmdline.Requested(err)
		}
		defer done()
		if goal != nil && goal.bytes > 0 && plan.OutputBytes > goal.bytes {
			return fmt.Errorf("the file would have %d bytes with what it says of calibration, more than --target-size %d", plan.OutputBytes, goal.bytes)
		}
	}
	bar = cmdline.NewProgress(os.Stderr, plan.WorkBytes(), "quantizing", c.Bool("quiet"))
	if job != nil {
		return writeGated(c, plan, job, bar)
	}
	report, err := plan.Write(c.Context, c.String("output"))
	bar.Finish()
	if err != nil {
		return cmdline.Requested(err)
	}
	return printChosenReport(c, report, chosen)
}

// source gives the checkpoint's path: the one positional, or the current directory.
func source(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 0:
		if !safetensors.IsCheckpoint(".") {
			return "", cmdline.Usagef("the current directory holds no checkpoint (*.safetensors): name one, gq quantize SRC")
		}
		return ".", nil
	case 1:
		return c.Args().First(), nil
	}
	return "", cmdline.Usagef("one checkpoint at a time: %s are %d", strings.Join(c.Args().Slice(), " "), c.NArg())
}
