// Command gq quantizes language-model checkpoints offline and packs them for Arm CPUs.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/accuracy"
	"github.com/lowbit-go/gq/cmd/bench"
	"github.com/lowbit-go/gq/cmd/dequantize"
	"github.com/lowbit-go/gq/cmd/inspect"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/kernels"
	"github.com/lowbit-go/gq/cmd/quantize"
	"github.com/lowbit-go/gq/cmd/repack"
	"github.com/lowbit-go/gq/cmd/run"
	"github.com/lowbit-go/gq/cmd/synth"
	"github.com/lowbit-go/gq/cmd/verify"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/memlimit"
)

// version is the release; CHANGELOG.md says what is in it.
const version = "0.1.0"

// memoryLimit is where the garbage collector begins to work harder, so that private
// memory stays under 256 MiB: the directory of a checkpoint of 200,000 tensors takes
// 200 MB while it is made. The pipelines make next to no garbage.
const memoryLimit = 220 << 20

func main() {
	// A reader of standard output that has enough (head) is no reason to be killed:
	// cmdline drops what it does not take.
	signal.Ignore(syscall.SIGPIPE)
	ctx := cmdline.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	memlimit.Set(memoryLimit)
	code := cmdline.Run(ctx, newApp(), os.Args)
	os.Exit(code)
}

func newApp() *cli.App {
	return &cli.App{
		Name:    "gq",
		Usage:   "offline quantization and weight packing of language models for Arm CPUs",
		Version: version + " (" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")",
		Before: func(*cli.Context) error {
			// GQ_CPU restricts which vector code runs; the results are the same bits.
			if _, err := cpu.UpTo(""); err != nil {
				return cmdline.Usagef("%v", err)
			}
			return nil
		},
		Commands: []*cli.Command{
			quantize.Command(),
			inspect.Command(),
			verify.Command(),
			dequantize.Command(),
			repack.Command(),
			accuracy.Command(),
			run.Command(),
			kernels.Command(),
			bench.Command(),
			synth.Command(),
		},
	}
}
