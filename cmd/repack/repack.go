// Package repack is the command `gq repack`: the tensors of a .gqf file in other layouts, or the codes of
// another program's file or checkpoint.
package repack

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Command gives `gq repack`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "repack",
		Usage: "put codes that are there into other layouts without changing one: of a .gqf or .gguf file, or of a quantized checkpoint",
		UsageText: `# the same codes for PyTorch on Arm
gq repack model.gqf --target pytorch-aarch64 -o torch.gqf
gq repack model.gqf --layout lowbit:4x8x2 -o small-tiles.gqf
# a file of llama.cpp, for gq's kernels
gq repack model-Q4_0.gguf -o model.gqf
# a checkpoint of GPTQ, AWQ, compressed-tensors, MLX or torchao
gq repack Qwen3-8B-AWQ -o model.gqf
`,
		ArgsUsage: "FILE|DIR",
		Description: "Codes of the types Q1_0, Q2_0, Q4_0, Q5_0 and Q8_0 of a .gguf file, and their F16 scales, are taken\n" +
			"over as they are; tensors of other quantized types need --dequantize. Of a checkpoint that another\n" +
			"library quantized, codes, scales and zero points are taken over if a layout holds them exactly: each\n" +
			"weight stays (code - zero point) * scale to the bit. The default layout is lowbit, and kleidiai for\n" +
			"weights with offsets that are no multiples of the scale (MLX). docs/CHECKPOINTS.md has the limits.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write; it is replaced only when the new one is complete; or s3://BUCKET/KEY"},
			&cli.StringFlag{Name: "layout", Usage: "`LAYOUT`: lowbit, kleidiai, torchao or codes, alone or with a tile (kleidiai:4x16x2); a list stores each tensor in each"},
			&cli.StringFlag{Name: "tile", DefaultText: "the layout's own", Usage: "`TILE`: nr x kr x sr of layouts that state none"},
			&cli.StringFlag{Name: "target", Usage: "`NAME` of a consumer, which chooses layout and tile: " + strings.ReplaceAll(quantizer.TargetNames(quantizer.Targets), ",", ", ")},
			&cli.BoolFlag{Name: "dequantize", Usage: "store tensors whose codes or scales a .gqf file cannot hold (Q4_K, Q6_K ...) in float32"},
			cmdline.Threads(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing"},
			cmdline.JSON("the plan or the summary"),
			cmdline.Quiet(),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	opts, err := options(c)
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return cmdline.Usagef("gq repack wants one .gqf or .gguf file or directory, got %d", c.NArg())
	}
	if !c.Bool("dry-run") && c.String("output") == "" {
		return cmdline.Usagef("where to? name a file with -o OUT.gqf")
	}
	if c.Bool("dry-run") {
		plan, err := gq.PlanRepack(c.Context, c.Args().First(), opts)
		if err != nil {
			return err
		}
		return filereport.Plan(c, plan)
	}
	report, err := gq.Repack(c.Context, c.Args().First(), c.String("output"), opts)
	if err != nil {
		return err
	}
	return filereport.Report(c, report)
}

func options(c *cli.Context) (opts gq.RepackOptions, err error) {
	usage := func(name string, err error) error { return cmdline.Usagef("--%s: %w", name, err) }
	if s := c.String("layout"); s != "" {
		if opts.Layouts, err = quantizer.ParseLayouts(s); err != nil {
			return opts, usage("layout", err)
		}
	}
	if s := c.String("tile"); s != "" {
		if opts.Tile, err = packing.ParseTile(s); err != nil {
			return opts, usage("tile", err)
		}
	}
	if s := c.String("target"); s != "" {
		if opts.Targets, err = quantizer.ParseTargets(s); err != nil {
			return opts, usage("target", err)
		}
	}
	opts.Dequantize, opts.Threads, opts.Progress = c.Bool("dequantize"), c.Int("threads"), cmdline.Reporter(c)
	return opts, nil
}
