package quantize

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/calib"
)

// Categories of the flags, in the order of help.
const (
	basics  = "Basics"
	quality = "Quality"
	size    = "Size to meet"
	layout  = "Layout"
	gate    = "Gate"
)

// flags lists the flags of gq quantize. Only --help-all shows the flags of the category Advanced.
func flags() []cli.Flag {
	list := []cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: basics, DefaultText: "model.gqf; model.gguf and model-gptq with these formats", Usage: "`FILE` to write, which is replaced only when the new one is complete; s3://BUCKET/KEY, to which a .gqf file streams, and others and measured ones go from a file in the cache; or a new directory, for a checkpoint"},
		&cli.IntFlag{Name: "bits", Category: basics, Value: 4, Usage: "`BITS`: 1-8, per code of projections, experts and an untied lm_head"},
		&cli.StringFlag{Name: "group", Category: basics, Value: "32", Usage: "`SIZE`: weights along K that share a scale, a multiple of 16, or channel"},
		&cli.IntFlag{Name: "embedding-bits", Category: basics, Value: 8, Usage: "`BITS`: of the embedding, and of an lm_head that is tied to it"},
		&cli.StringSliceFlag{Name: "rule", Category: basics, Usage: "`RULE`: NAME=bits[,group][,mapping]... or NAME=skip; NAME is a tensor, a module, a glob (*.q_proj) or re:REGEXP (repeatable)"},
		&cli.StringFlag{Name: "recipe", Category: basics, Usage: "YAML `FILE` with settings and rules; flags given beside it win"},
		&cli.StringFlag{Name: "save-recipe", Category: basics, Usage: "`FILE` to write the whole recipe to; --recipe reads it"},
		&cli.StringFlag{Name: "part", Category: basics, Usage: "`I/N`: make only part I, from 0, of N, as one of several workers; /N or auto take it from a Kubernetes or Slurm array. gq merge joins the parts"},
		&cli.BoolFlag{Name: "dry-run", Category: basics, Usage: "print the plan, the exact size, and an estimate of time and memory; write nothing. Bits for a target are not chosen, unless --save-recipe is given or an interrupted job has chosen them"},
		inCategory(cmdline.JSON("the plan or the summary"), basics),
		inCategory(cmdline.Quiet(), basics),

		&cli.StringFlag{Name: "quality", Category: quality, Usage: "`PRESET`: fast (search, no data), good (gptq-ft, on text that the model writes), best (good with --refine, four times the text and more probes), or max (best with --tune, as the model's size allows)"},
		&cli.StringFlag{Name: "algorithm", Category: quality, DefaultText: "search; rtn with symmetric and symmetric-no-clip", Usage: "`NAME` of how scales and codes are chosen. Without data: search, rtn, hqq. With calibration: imatrix, awq, gptq, gptq-ft"},
		&cli.StringFlag{Name: "calibrate", Category: quality, Usage: "`FILE` of text or token ids that the model is run on to calibrate; or self: the model writes its own text, which serves as well"},
		&cli.StringFlag{Name: "tune", Category: quality, DefaultText: "off; by the model's size with max", Usage: "`WHAT` to train afterwards against the checkpoint, on text that the model writes: off, norms (gains of norms and a factor for each row of scales), floats (all scales and gains), codes (these and codes), or blocks (codes layer by layer, in the memory of one layer, then floats)"},
		&cli.StringFlag{Name: "fold", Category: quality, Value: "none", Usage: "`HOW`: equalize folds factors into the weights that balance the columns of matrices with a common input; rotate folds in rotations of hidden states and values, which untie the lm_head; both; auto measures which loses least; none. Adds nothing at run time"},

		&cli.StringFlag{Name: "target-bpw", Category: size, Usage: "choose bits, group and, without --mapping, the mapping of each tensor for at most `N` bits per quantized weight"},
		&cli.StringFlag{Name: "target-size", Category: size, Usage: "choose them for a file of at most `SIZE`: bytes, or with a unit (700MB, 650MiB)"},
		&cli.StringFlag{Name: "max-kl", Category: size, Usage: "choose them for the smallest file whose KL divergence from the checkpoint is at most `NATS` per token on the calibration text, as executed"},

		&cli.StringFlag{Name: "target", Category: layout, Usage: "`NAME` of a consumer, which chooses layout, tile, scales and the embedding's scheme: " + strings.ReplaceAll(quantizer.TargetNames(quantizer.Targets), ",", ", ")},
		&cli.StringFlag{Name: "format", Category: layout, DefaultText: "gguf if the output's name ends in .gguf, else gqf", Usage: "`NAME`: gqf; gguf for llama.cpp; or a checkpoint for other libraries: int-quantized and pack-quantized (compressed-tensors), gptq, torchao, mlx"},
		&cli.StringFlag{Name: "layout", Category: layout, DefaultText: "lowbit", Usage: "`LAYOUT`: lowbit, kleidiai, torchao or codes, alone or with a tile (kleidiai:4x16x2); a list stores each tensor in each"},

		&cli.StringFlag{Name: "mapping", Category: cmdline.Advanced, DefaultText: "full-range; half-step at 1 bit", Usage: "`NAME`: full-range, symmetric, symmetric-no-clip, asymmetric, or half-step at 1 and 2 bits"},
		&cli.StringFlag{Name: "scale-dtype", Category: cmdline.Advanced, Value: "bf16", Usage: "`DTYPE` of the stored scales: bf16, f16 or f32"},
		&cli.BoolFlag{Name: "positive-scales", Category: cmdline.Advanced, Usage: "never store a negative scale (XNNPACK refuses them); costs accuracy"},
		&cli.StringFlag{Name: "embedding-group", Category: cmdline.Advanced, DefaultText: "as --group", Usage: "`SIZE`: the embedding's group"},
		&cli.StringFlag{Name: "tile", Category: cmdline.Advanced, DefaultText: "the layout's own", Usage: "`TILE`: nr x kr x sr of layouts that state none: 4x8x2, 4x16x2, 8x8x2, 8x16x2, 4x4x1 or 4x8x1"},
		&cli.IntFlag{Name: "calibrate-tokens", Category: cmdline.Advanced, Value: calib.DefaultTokens, Usage: "`N`: tokens of calibration"},
		&cli.Uint64Flag{Name: "seed", Category: cmdline.Advanced, Value: 1, Usage: "`N`: of the text that the model writes, and of rotations"},
		&cli.IntFlag{Name: "tune-tokens", Category: cmdline.Advanced, DefaultText: "32768; 131072 for codes", Usage: "`N`: tokens of the text that --tune trains on; an eighth of it is held out"},
		&cli.StringFlag{Name: "tune-text", Category: cmdline.Advanced, Value: quantizer.Self, Usage: "`FILE` of text or token ids that --tune trains on, instead of text that the model writes"},
		&cli.BoolFlag{Name: "refine", Category: cmdline.Advanced, Usage: "coordinate descent and a refit of scales after gptq and gptq-ft"},
		&cli.StringSliceFlag{Name: "imatrix", Category: cmdline.Advanced, Usage: "`FILE` with an importance matrix for --algorithm imatrix, of --imatrix-out or of llama.cpp (GGUF or imatrix.dat); several are merged (repeatable)"},
		&cli.StringFlag{Name: "imatrix-out", Category: cmdline.Advanced, Usage: "`FILE` to write the importance matrix to"},
		&cli.StringFlag{Name: "calibrate-out", Category: cmdline.Advanced, Usage: "`FILE` to write the text of calibration to: plain text, or token ids if the name ends in .ids"},
		&cli.BoolFlag{Name: "rotate", Category: cmdline.Advanced, Usage: "as --fold rotate; with --equalize as --fold both"},
		&cli.BoolFlag{Name: "equalize", Category: cmdline.Advanced, Usage: "as --fold equalize"},
		&cli.StringFlag{Name: "hash", Category: cmdline.Advanced, Value: "headers", Usage: "`WHAT`: headers, or sha256 to record the hash of every whole source file too"},
		&cli.StringFlag{Name: "reuse", Category: cmdline.Advanced, Usage: "`OLD` .gqf file of the same checkpoint: tensors that would be the same are copied, the others made; the new file has the same bytes without"},
		&cli.BoolFlag{Name: "requantize", Category: cmdline.Advanced, Usage: "accept a .gguf file or a checkpoint that is quantized already, and quantize its weights once more"},
		&cli.BoolFlag{Name: "shared", Category: cmdline.Advanced, Usage: "with --part: write the data to one file that all workers see, so that gq merge need not copy them"},
		&cli.BoolFlag{Name: "keep", Category: cmdline.Advanced, Usage: "leave the file although the --gate is not met"},
		cmdline.Threads(),
	}
	list = append(list, cmdline.FormatFlags(cmdline.Advanced)...)
	return append(list, measure.TextFlags(gate)...)
}

// inCategory sets the category of a flag that takes no value.
func inCategory(f cli.Flag, category string) cli.Flag {
	f.(*cli.BoolFlag).Category = category
	return f
}
