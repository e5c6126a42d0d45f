// Package export is the command `gq export`: a .gqf file becomes a .gguf file, a directory for ONNX
// Runtime, or a checkpoint in a format of another library, with the same codes.
package export

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/quantizer"
)

// Command gives `gq export`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "write the model in a .gqf file for another program, with the same codes",
		UsageText: `# a file of gq quantize --target gguf, for llama.cpp
gq export model.gqf -o model.gguf
gq export model.gqf --split 2GB -o model.gguf
# a file of gq quantize --target gptq, as a directory for vLLM or Transformers
gq export model.gqf --target gptq -o model-gptq
`,
		ArgsUsage: "FILE",
		Description: "A tensor that the format does not hold exactly is an error that says what to quantize with.\n" +
			"gq quantize SRC --target NAME writes the same at once, and .gguf files with K types and minima.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, or s3://BUCKET/KEY; or a new directory, for a checkpoint"},
			&cli.StringFlag{Name: "target", Value: quantizer.TargetGGUF.Name, Usage: "`NAME`: gguf for llama.cpp; or int-quantized, pack-quantized (compressed-tensors), gptq, mlx or torchao-safetensors, for a checkpoint; or onnx"},
			&cli.BoolFlag{Name: "dequantize", Usage: "write weights that a checkpoint cannot hold in float32"},
		}, append(cmdline.Settings("", "pre"),
			cmdline.Split(""),
			cmdline.Threads(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing"},
			cmdline.JSON(),
			cmdline.Quiet(),
		)...),
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	if !c.Bool("dry-run") && c.String("output") == "" {
		return cmdline.Usagef("where to? name a file with -o OUT.gguf, or a directory")
	}
	var r quantizer.Recipe
	if err := cmdline.Override(c, &r); err != nil {
		return err
	}
	opts := gq.ExportOptions{Pre: r.Pre, Dequantize: c.Bool("dequantize"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	if len(r.Targets) > 1 {
		return cmdline.Usagef("--target %s: one target at a time", c.String("target"))
	} else if len(r.Targets) == 1 {
		opts.Target = r.Targets[0]
	}
	var err error
	if opts.Split, err = cmdline.Size(c, "split"); err != nil {
		return err
	}
	src := c.Args().First()
	if c.Bool("dry-run") {
		plan, err := gq.PlanExport(c.Context, src, opts)
		return filereport.Plan(c, plan, err)
	}
	report, err := gq.Export(c.Context, src, c.String("output"), opts)
	return filereport.Report(c, report, err)
}
