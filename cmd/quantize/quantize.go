// Package quantize is the command `gq quantize`: a checkpoint becomes a .gqf file.
package quantize

import (
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/calib"
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
			&cli.StringFlag{Name: "algorithm", DefaultText: "search; rtn with symmetric and symmetric-no-clip", Usage: "how scales and codes are chosen: search (for the least weighted error), rtn (the mapping's formula) or hqq; with calibration imatrix, awq, gptq or gptq-ft"},
			&cli.StringFlag{Name: "scale-dtype", Value: "bf16", Usage: "dtype of the stored scales: bf16, f16 or f32"},
			&cli.BoolFlag{Name: "positive-scales", Usage: "never store a negative scale (XNNPACK refuses them); costs accuracy"},
			&cli.IntFlag{Name: "embedding-bits", Value: 8, Usage: "bits of the embedding table and of a lm_head tied to it"},
			&cli.StringFlag{Name: "embedding-group", DefaultText: "as --group", Usage: "group of the embedding table"},
			&cli.StringFlag{Name: "layout", DefaultText: "lowbit", Usage: "lowbit, kleidiai, torchao or codes, alone or with a tile (kleidiai:4x16x2); several, separated by commas, store each tensor in each"},
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
			&cli.StringFlag{Name: "target-bpw", Usage: "choose bits and group of each tensor for at most `N` bits of payload per quantized weight"},
			&cli.StringFlag{Name: "target-size", Usage: "choose them for a file of at most `SIZE`: bytes, or with a unit (700MB, 650MiB)"},
			&cli.StringFlag{Name: "max-kl", Usage: "choose them for the smallest file whose KL divergence from the checkpoint is at most `NATS` per token, as executed, on the calibration text"},
			&cli.StringFlag{Name: "quality", Usage: "`PRESET` for what is not stated: fast (search, no data), good (gptq-ft, on text that the model writes) or best (the same with --refine, four times the text and more probes for targets)"},
			&cli.StringFlag{Name: "save-recipe", Usage: "write the recipe, with a rule for each tensor where bits were chosen, to `FILE`; --recipe reads it"},
			&cli.StringFlag{Name: "calibrate", Usage: "`FILE` of text or token ids to run the model on, for gptq, gptq-ft, imatrix and awq and to choose bits with; or self: the model writes its own, which serves as well"},
			&cli.IntFlag{Name: "calibrate-tokens", Value: calib.DefaultTokens, Usage: "tokens of calibration"},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "of the text that the model writes, and of the matrices of --rotate"},
			&cli.BoolFlag{Name: "refine", Usage: "coordinate descent and a refit of scales behind gptq and gptq-ft"},
			&cli.StringSliceFlag{Name: "imatrix", Usage: "`FILE` of moments for --algorithm imatrix, of --imatrix-out or of llama.cpp (GGUF or imatrix.dat); several are merged (repeatable)"},
			&cli.StringFlag{Name: "imatrix-out", Usage: "`FILE` to write the moments to that --algorithm imatrix used"},
			&cli.BoolFlag{Name: "rotate", Usage: "turn hidden states and values by orthogonal matrices of --seed, folded into the weights: nothing is added at run time, but a head that was the embedding table is stored apart"},
			&cli.BoolFlag{Name: "equalize", Usage: "balance the columns of weights that share an input, the norm or linear before them doing the opposite"},
		}, measure.TextFlags()...),
		Action: run,
	}
}

func run(c *cli.Context) error {
	opts, err := options(c)
	if err != nil {
		return err
	}
	src, err := source(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		if opts.Measure != nil {
			return cmdline.Usagef("--dry-run writes nothing that a --gate could be for")
		}
		plan, err := gq.Plan(c.Context, src, c.String("output"), opts)
		if err != nil {
			return err
		}
		return PrintPlan(c, plan)
	}
	r, err := gq.Quantize(c.Context, src, c.String("output"), opts)
	if r == nil {
		return err
	}
	return errors.Join(printResult(c, r), err)
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
