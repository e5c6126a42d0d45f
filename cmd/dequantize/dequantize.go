// Package dequantize is the command `gq dequantize`: a .gqf file becomes a safetensors checkpoint
// again, for tools that read nothing else.
package dequantize

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/packing"
)

// Command gives `gq dequantize`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "dequantize",
		Usage: "write the weights of a .gqf or .gguf file, or of a quantized checkpoint, as an unquantized checkpoint",
		UsageText: `# a safetensors checkpoint for other tools
gq dequantize model.gqf -o restored
gq dequantize model.gqf -o restored --dtype f32
`,
		ArgsUsage: "FILE|DIR",
		Description: "DIR gets the weights, config.json and the tokenizer's files. Tensors that were not quantized\n" +
			"have the bytes that they had.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` to write to; a new directory or an empty one"},
			&cli.StringFlag{Name: "dtype", Value: "bf16", Usage: "`DTYPE` of what was quantized: bf16, or f32, which is exact"},
			cmdline.Threads(),
			cmdline.JSON(),
			cmdline.Quiet(),
		},
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	dir := c.String("output")
	if dir == "" {
		return cmdline.Usagef("where to? name a directory with -o DIR")
	}
	opts := gq.DequantizeOptions{Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	switch c.String("dtype") {
	case "bf16":
		opts.Dtype = packing.BF16
	case "f32":
		opts.Dtype = packing.F32
	default:
		return cmdline.Usagef("--dtype %s: bf16 or f32", c.String("dtype"))
	}
	r, err := gq.Dequantize(c.Context, c.Args().First(), dir, opts)
	return cmdline.Show(c, r, err, func(w io.Writer, r *tocheckpoint.DequantizeReport) error {
		_, err := fmt.Fprintf(w, "wrote    %s\ntensors  %d dequantized to %s, %d as they were\nsize     %s of weights, %d files beside them\n",
			r.Output, r.Dequantized, opts.Dtype, r.Unquantized, cmdline.Bytes(r.Bytes), r.Files)
		return err
	})
}
