// Package inspect is the command `gq inspect`: what a .gqf file or a checkpoint holds.
package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/inspect"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// Command gives `gq inspect`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "inspect",
		Usage: "show what a .gqf file, a .gguf file or a safetensors checkpoint holds",
		UsageText: `gq inspect model.gqf
# scales, a histogram of codes and the first weights
gq inspect model.gqf --tensor lm_head
# the tensors that a pattern matches
gq inspect model.gqf --tensor '*.layers.0.*_proj'
gq inspect Llama-3.2-1B --json
# which bits and group hold the weights of a model that was trained for them
gq inspect Kimi-QAT --lattice
# tensors and types; with --verbose keys and values too
gq inspect model.gguf --verbose
`,
		ArgsUsage: "FILE|DIR",
		Description: "A summary of the model comes first, then its tensors. Only directories and metadata are read,\n" +
			"but for a single --tensor and with --lattice. Nothing is checked beyond that: gq verify does. A .gguf file in\n" +
			"shards is named by its first one, NAME-00001-of-00003.gguf.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "tensor", Usage: "`PATTERN`: a name, a module, a glob (*.q_proj) or re:REGEXP. One tensor of a .gqf or .gguf file is shown in full (scales, codes, first weights), several in short"},
			&cli.IntFlag{Name: "slice", Usage: "with --tensor: `NUMBER` of an expert of a fused tensor of a .gqf file, from 0"},
			&cli.BoolFlag{Name: "verbose", Usage: "show sections, checksums, assets, config, recipe and provenance, too; of a .gguf file its metadata; of a checkpoint its files and their metadata"},
			&cli.BoolFlag{Name: "lattice", Usage: "read all weights of a checkpoint, or of the tensors that --tensor matches, and find those that are codes times scales already: their bits, group and mapping, which gq quantize keeps exactly"},
			cmdline.Settings("", "lora")[0],
			cmdline.JSON(),
			cmdline.Quiet(),
			cmdline.Threads(),
		},
		Action: cmdline.Exactly(run),
	}
}

// fileResult, ggufResult and checkpointResult are what --json prints.
type (
	fileResult struct {
		Summary gq.Summary `json:"summary"`
		*gqf.Inspection
	}
	ggufResult struct {
		Summary gq.Summary `json:"summary"`
		*inspect.GGUF
	}
	checkpointResult struct {
		Summary gq.Summary `json:"summary"`
		*inspect.Checkpoint
		Quantized  *fromquantized.Inspection `json:"quantized,omitempty"`
		Unreadable string                    `json:"unreadable,omitempty"`
		Adapters   []provenance.Adapter      `json:"adapters,omitempty"`
	}
)

func run(c *cli.Context) error {
	if c.IsSet("slice") && !c.IsSet("tensor") {
		return cmdline.Usagef("--slice belongs to --tensor")
	}
	path, w := c.Args().First(), c.App.Writer
	if c.Bool("lattice") {
		if c.IsSet("slice") || c.Bool("verbose") {
			return cmdline.Usagef("--lattice goes with --tensor, not with --slice or --verbose")
		}
		r, err := gq.InspectLattices(c.Context, path, gq.LatticeOptions{Match: c.String("tensor"), Lora: c.StringSlice("lora"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)})
		return cmdline.Show(c, r, err, printLattices)
	}
	if c.IsSet("tensor") {
		return runTensors(c, path)
	}
	r, err := gq.Inspect(c.Context, path, gq.InspectOptions{Lora: c.StringSlice("lora"), Progress: cmdline.Reporter(c)})
	switch {
	case err != nil:
		return err
	case c.Bool("json") && r.File != nil:
		return cmdline.PrintJSON(w, fileResult{r.Summary, r.File})
	case c.Bool("json") && r.GGUF != nil:
		return cmdline.PrintJSON(w, ggufResult{r.Summary, r.GGUF})
	case c.Bool("json"):
		return cmdline.PrintJSON(w, checkpointResult{r.Summary, r.Checkpoint, r.Quantized, r.Unreadable, r.Adapters})
	case r.File != nil:
		return printFile(w, r.Name, r, c.Bool("verbose"))
	case r.GGUF != nil:
		return printGGUF(w, r.Name, r, c.Bool("verbose"))
	}
	return printCheckpoint(w, r.Name, r, c.Bool("verbose"))
}

func runTensors(c *cli.Context, path string) error {
	w := c.App.Writer
	r, err := gq.InspectTensors(c.Context, path, c.String("tensor"), c.Int("slice"), gq.InspectOptions{Lora: c.StringSlice("lora"), Progress: cmdline.Reporter(c)})
	switch {
	case err != nil:
		return err
	case c.Bool("json") && r.One != nil:
		return cmdline.PrintJSON(w, r.One)
	case c.Bool("json") && r.OneGGUF != nil:
		return cmdline.PrintJSON(w, r.OneGGUF)
	case c.Bool("json"):
		return cmdline.PrintJSON(w, r)
	case r.One != nil:
		return printTensor(w, r.One)
	case r.OneGGUF != nil:
		return printGGUFTensor(w, r.OneGGUF)
	case r.Tensors != nil:
		return printTensors(w, r.Tensors)
	case r.GGUF != nil:
		return printGGUFTensors(w, r.GGUF, true)
	}
	return printSources(w, r.Sources, true)
}

func printGGUF(w io.Writer, path string, r *gq.Inspection, verbose bool) error {
	f, s := r.GGUF, &r.GGUF.Totals
	printSummary(w, path, fmt.Sprintf("gguf %d", f.Version), gguf.KeyArchitecture, &r.Summary)
	switch {
	case s.Quantized > 0:
		field(w, "bits", "%.3f per quantized weight, %.3f over all", s.QuantBitsWeight, s.BitsPerWeight)
	case s.Tensors > 0:
		field(w, "bits", "%.3f per weight", s.BitsPerWeight)
	}
	field(w, "size", "%s (%d bytes) in %s", cmdline.Bytes(s.FileBytes), s.FileBytes, countFiles(s.Files))
	if s.Tensors == 0 {
		field(w, "tensors", "none: the file has metadata only")
	} else {
		field(w, "tensors", "%d: %s", s.Tensors, types(f))
		fmt.Fprintln(w)
		if err := printGGUFTensors(w, f.Tensors, s.Files > 1); err != nil {
			return err
		}
	}
	if !verbose {
		return nil
	}
	return printPairs(w, f)
}

func types(r *inspect.GGUF) string {
	var parts []string
	for _, t := range r.Types {
		s := fmt.Sprintf("%d %s", t.Tensors, t.Type)
		if !t.Readable {
			s += " (gq cannot read the weights)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

func printGGUFTensors(w io.Writer, rows []inspect.GGUFTensor, files bool) error {
	return cmdline.Table(w, []string{"TENSOR", "TYPE", "SHAPE", "BYTES>", "BPW>", "FILE"}, func(line func(...any)) {
		for _, t := range rows {
			file := ""
			if files {
				file = cmdline.Text(t.File)
			}
			line(cmdline.Text(t.Name), t.Type, cmdline.Shape(t.Shape), t.Bytes, bpw(t.BitsPerWeight), file)
		}
	})
}

func printPairs(w io.Writer, r *inspect.GGUF) error {
	fmt.Fprintln(w)
	return cmdline.Table(w, []string{"KEY", "TYPE", "VALUE"}, func(line func(...any)) {
		for _, row := range r.Metadata {
			kind := row.Type
			if row.Count != nil {
				kind = fmt.Sprintf("%d %s", *row.Count, row.Type)
			}
			line(cmdline.Text(row.Key), kind, value(row.Value))
		}
	})
}

func value(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // tokens are often <names>
	_ = e.Encode(v)        // an Inspection has only what JSON has
	return short(b.Bytes())
}

func printGGUFTensor(w io.Writer, r *gq.GGUFTensor) error {
	t := &r.Tensor
	fmt.Fprintf(w, "%s: %s %s\n\n", cmdline.Text(t.Name), t.Type, cmdline.Shape(t.Shape))
	inner(w, "file", cmdline.Text(t.File))
	inner(w, "data at byte", t.Offset)
	inner(w, "data bytes", t.Bytes)
	if r.BlockWeights > 1 {
		inner(w, "blocks", fmt.Sprintf("%d weights in %d bytes", r.BlockWeights, r.BlockBytes))
	}
	inner(w, "bits/weight", bpw(t.BitsPerWeight))
	printScales(w, "scales", r.Scales)
	printScales(w, "minima", r.Mins)
	histogram(w, "codes", r.Codes)
	return printValues(w, r.Values)
}
