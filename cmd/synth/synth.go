// Package synth is the command `gq synth`: a synthetic checkpoint of a model's shape, to measure
// and test with.
package synth

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/packing"
)

// dimensions are the flags that override the preset's shape.
var dimensions = []struct {
	flag, usage string
	set         func(s *synth.Spec, n int)
}{
	{"hidden", "hidden `SIZE`", func(s *synth.Spec, n int) { s.Hidden = n }},
	{"intermediate", "`SIZE` inside the MLP or an expert", func(s *synth.Spec, n int) { s.Intermediate = n }},
	{"layers", "`NUMBER` of layers", func(s *synth.Spec, n int) { s.Layers = n }},
	{"heads", "`NUMBER` of attention heads", func(s *synth.Spec, n int) { s.Heads = n }},
	{"kv-heads", "`NUMBER` of key and value heads (default: as --heads)", func(s *synth.Spec, n int) { s.KVHeads = n }},
	{"head-dim", "`SIZE` of a head (default: hidden size / heads)", func(s *synth.Spec, n int) { s.HeadDim = n }},
	{"vocab", "`NUMBER` of rows of the embedding table", func(s *synth.Spec, n int) { s.Vocab = n }},
	{"experts", "`NUMBER` of experts of a layer; 0 for a dense model", func(s *synth.Spec, n int) { s.Experts = n }},
}

var dtypes = map[string]packing.Dtype{"bf16": packing.BF16, "f16": packing.F16, "f32": packing.F32}

// Command gives `gq synth`.
func Command() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "preset", Usage: "shape of a known `MODEL`: " + strings.Join(presets(), ", ")},
	}
	for _, d := range dimensions {
		flags = append(flags, &cli.IntFlag{Name: d.flag, Usage: d.usage, DefaultText: "the preset's"})
	}
	flags = append(flags,
		&cli.BoolFlag{Name: "tied", Usage: "the embedding table is the lm_head, too", DefaultText: "the preset's"},
		&cli.StringFlag{Name: "dtype", Value: "bf16", Usage: "`DTYPE`: bf16, f16 or f32"},
		&cli.Uint64Flag{Name: "seed", Usage: "`N`: another seed gives other weights"},
		&cli.Int64Flag{Name: "max-shard-bytes", Usage: "most `BYTES` of data in one file; 0 for a single file"},
		cmdline.JSON(),
		cmdline.Quiet(),
	)
	return &cli.Command{
		Name:  "synth",
		Usage: "make a synthetic checkpoint of a Llama-like shape, for benchmarks and tests",
		UsageText: `gq synth --preset smollm2-135m synthetic
`,
		ArgsUsage: "DIR",
		Description: "The weights are random with heavy tails and do not know anything. The same flags give the same\n" +
			"bytes everywhere. DIR is created; it must not hold a checkpoint.",
		Flags:  flags,
		Action: cmdline.Exactly(run),
	}
}

func presets() []string { return slices.Sorted(maps.Keys(synth.Presets)) }

func run(c *cli.Context) error {
	spec, err := specOf(c)
	if err != nil {
		return err
	}
	r, err := gq.Synth(c.Context, c.Args().First(), spec, cmdline.Reporter(c))
	return cmdline.Show(c, r, err, func(w io.Writer, r *gq.SynthReport) error {
		_, err := fmt.Fprintf(w, "%s: %d parameters, %s of data, made in %.1f s\n", r.Output, r.Parameters, cmdline.Bytes(r.Bytes), r.Seconds)
		return err
	})
}

func specOf(c *cli.Context) (synth.Spec, error) {
	spec, ok := synth.Presets[c.String("preset")]
	if !ok && c.IsSet("preset") {
		return spec, cmdline.Usagef("unknown preset %q: there are %s", c.String("preset"), strings.Join(presets(), ", "))
	}
	if !ok && !c.IsSet("hidden") {
		return spec, cmdline.Usagef("which shape? give --preset, or --hidden and the other sizes")
	}
	for _, d := range dimensions {
		if c.IsSet(d.flag) {
			d.set(&spec, c.Int(d.flag))
		}
	}
	if c.IsSet("tied") {
		spec.Tied = c.Bool("tied")
	}
	if spec.Dtype, ok = dtypes[strings.ToLower(c.String("dtype"))]; !ok {
		return spec, cmdline.Usagef("--dtype %s: bf16, f16 and f32 are possible", c.String("dtype"))
	}
	spec.Seed = c.Uint64("seed")
	if spec.MaxShardBytes = c.Int64("max-shard-bytes"); spec.MaxShardBytes < 0 {
		return spec, cmdline.Usagef("--max-shard-bytes %d is negative", spec.MaxShardBytes)
	}
	if err := spec.Validate(); err != nil {
		return spec, cmdline.Usagef("%v", err)
	}
	return spec, nil
}
