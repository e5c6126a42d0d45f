// Package export is the command `gq export`: a .gqf file becomes a .gguf file, or a checkpoint in a
// format of another library, with the same codes.
package export

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
)

// Command gives `gq export`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "write the model in a .gqf file as a .gguf file or a checkpoint, without changing a code",
		UsageText: `# a file of gq quantize --target gguf, for llama.cpp
gq export model.gqf -o model.gguf
gq export model.gqf --split 2GB -o model.gguf
# a file of gq quantize --target gptq, as a directory for vLLM or Transformers
gq export model.gqf --format gptq -o model-gptq
`,
		ArgsUsage: "FILE",
		Description: "A tensor that the format does not hold exactly is an error that says what to quantize with.\n" +
			"gq quantize SRC --format NAME writes the same at once, and .gguf files with K types and minima.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, which is replaced only when the new one is complete; s3://BUCKET/KEY for a .gguf file; or a new directory, for a checkpoint"},
			&cli.StringFlag{Name: "format", Value: "gguf", Usage: "`NAME`: gguf for llama.cpp, or a checkpoint for other libraries: int-quantized and pack-quantized (compressed-tensors), gptq, torchao, mlx"},
			&cli.BoolFlag{Name: "dequantize", Usage: "write weights that the format of the checkpoint cannot hold as float32, such as an embedding, instead of refusing the file"},
		}, append(cmdline.FormatFlags(""),
			cmdline.Threads(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing"},
			cmdline.JSON("the plan or the summary"),
			cmdline.Quiet(),
		)...),
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq export wants one .gqf file, got %d", c.NArg())
	}
	if !c.Bool("dry-run") && c.String("output") == "" {
		return cmdline.Usagef("where to? name a file with -o OUT.gguf, or a directory")
	}
	opts := gq.ExportOptions{Pre: c.String("pre"), Dequantize: c.Bool("dequantize"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	var err error
	if opts.Split, err = cmdline.Split(c); err != nil {
		return err
	}
	if opts.Format, err = gq.ParseFormat(c.String("format")); err != nil {
		return cmdline.Usagef("--format: %w", err)
	}
	src := c.Args().First()
	if c.Bool("dry-run") {
		plan, err := gq.PlanExport(c.Context, src, opts)
		if err != nil {
			return err
		}
		return filereport.Plan(c, plan)
	}
	report, err := gq.Export(c.Context, src, c.String("output"), opts)
	if err != nil {
		return err
	}
	return filereport.Report(c, report)
}
