// Command gq quantizes language-model checkpoints offline and packs them for Arm CPUs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/about"
	"github.com/lowbit-go/gq/cmd/accuracy"
	"github.com/lowbit-go/gq/cmd/bench"
	"github.com/lowbit-go/gq/cmd/dequantize"
	"github.com/lowbit-go/gq/cmd/diff"
	"github.com/lowbit-go/gq/cmd/export"
	"github.com/lowbit-go/gq/cmd/inspect"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/kernels"
	"github.com/lowbit-go/gq/cmd/merge"
	"github.com/lowbit-go/gq/cmd/pull"
	"github.com/lowbit-go/gq/cmd/quantize"
	"github.com/lowbit-go/gq/cmd/repack"
	"github.com/lowbit-go/gq/cmd/run"
	"github.com/lowbit-go/gq/cmd/serve"
	"github.com/lowbit-go/gq/cmd/sweep"
	"github.com/lowbit-go/gq/cmd/synth"
	"github.com/lowbit-go/gq/cmd/verify"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/memlimit"
)

// memoryLimit makes the garbage collector work harder, so that private memory stays under 256 MiB:
// the directory of a checkpoint of 200,000 tensors takes 200 MB while it is made. The pipelines
// make almost no garbage.
const memoryLimit = 212 << 20

func main() {
	// If the reader of standard output closes it (head), gq must not be killed: cmdline drops the
	// rest.
	signal.Ignore(syscall.SIGPIPE)
	ctx := cmdline.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	memlimit.Set(memoryLimit)
	code := cmdline.Run(ctx, newApp(), os.Args)
	os.Exit(code)
}

func newApp() *cli.App {
	return &cli.App{
		Name:    "gq",
		Usage:   "offline quantization and weight packing of language models for CPUs",
		Version: gq.Version().String(),
		UsageText: `gq quantize Llama-3.2-1B --bits 4 --group 32 -o model.gqf
gq inspect model.gqf
gq accuracy Llama-3.2-1B model.gqf --text sample.txt --gate default
`,
		Description: `gq reads a safetensors checkpoint and writes one memory-mappable file of low-bit weights, which CPU
kernels multiply with as they stand. Exit status: 0 done, 1 failed, 2 used wrongly, 3 an accuracy
gate was not met, 130 ended by Ctrl-C.

Wherever a command takes a checkpoint or a file, it takes a path or a remote name: hf://org/model,
https://HOST/DIRECTORY, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. gq pull and docs/REMOTE.md say more.

GQ_CPU=generic (or neon, dotprod, i8mm, avx2, avxvnni, avx512vnni) restricts which vector code runs;
results are the same bits. GQ_LOG=kernels says on standard error which kernel runs for which shape.`,
		Before: func(*cli.Context) error {
			// GQ_CPU restricts which vector code runs; the results are the same bits.
			if _, err := cpu.UpTo(""); err != nil {
				return cmdline.Usagef("%v", err)
			}
			return nil
		},
		Commands: []*cli.Command{
			quantize.Command(),
			merge.Command(),
			pull.Command(),
			inspect.Command(),
			diff.Command(),
			verify.Command(),
			dequantize.Command(),
			repack.Command(),
			export.Command(),
			accuracy.Command(),
			sweep.Command(),
			run.Command(),
			serve.Command(),
			kernels.Command(),
			bench.Command(),
			synth.Command(),
			about.Completion(),
			about.Man(),
			about.Version(),
		},
	}
}
