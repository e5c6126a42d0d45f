// Package repack is the command `gq repack`: the tensors of a .gqf file in other layouts, or the
// codes of another program's file or checkpoint.
package repack

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
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
		Description: "Codes of the types Q1_0, Q2_0, Q3_K, Q4_0, Q5_0, Q6_K and Q8_0 of a .gguf file, and their scales, are\n" +
			"taken over as they are; tensors of other quantized types need --dequantize. Of a checkpoint that\n" +
			"another library quantized, codes, scales and zero points are taken over if a layout holds them\n" +
			"exactly: each weight stays (code - zero point) * scale to the bit. The default layout is lowbit, and\n" +
			"kleidiai for weights with offsets that are no multiples of the scale (MLX). docs/CHECKPOINTS.md has\n" +
			"the limits. A directory with a graph for ONNX Runtime is such a checkpoint (docs/ONNX.md).",
		Flags: append(cmdline.Settings("", "layout", "target"),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, or s3://BUCKET/KEY"},
			&cli.BoolFlag{Name: "dequantize", Usage: "store tensors whose codes or scales a .gqf file cannot hold (Q4_K, Q4_1 ...) in float32"},
			cmdline.Threads(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing"},
			cmdline.JSON(),
			cmdline.Quiet(),
		),
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	var r quantizer.Recipe
	if err := cmdline.Override(c, &r); err != nil {
		return err
	}
	opts := gq.RepackOptions{Layouts: r.Layouts, Targets: r.Targets, Dequantize: c.Bool("dequantize"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	if !c.Bool("dry-run") && c.String("output") == "" {
		return cmdline.Usagef("where to? name a file with -o OUT.gqf")
	}
	if c.Bool("dry-run") {
		plan, err := gq.PlanRepack(c.Context, c.Args().First(), opts)
		return filereport.Plan(c, plan, err)
	}
	report, err := gq.Repack(c.Context, c.Args().First(), c.String("output"), opts)
	return filereport.Report(c, report, err)
}
