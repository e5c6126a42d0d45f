// Package bench is the command `gq bench`, which measures the speed of gq on this machine.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// Command gives `gq bench`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure gq on this machine",
		Subcommands: []*cli.Command{kernelsCommand(), {
			Name:  "quantize",
			Usage: "time `gq quantize --bits 4 --group 32` of a checkpoint and a plain copy of the same sizes",
			UsageText: `gq bench quantize synthetic
`,
			ArgsUsage: "SRC",
			Description: "Each round copies (reads all input, writes and syncs as many bytes as the output has), then\n" +
				"quantizes. gq synth --preset llama-3.2-1b DIR makes a checkpoint to measure with.",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "rounds", Value: 5, Usage: "`N`: rounds; the first warms the page cache and is not counted"},
				cmdline.Threads(),
				&cli.StringFlag{Name: "layout", DefaultText: "lowbit", Usage: "`LAYOUT`: as of gq quantize"},
				&cli.StringFlag{Name: "target", Usage: "`NAME`: as of gq quantize"},
				&cli.StringFlag{Name: "dir", Usage: "`DIR` to write to (default: SRC's)"},
				cmdline.JSON("the figures"),
			},
			Action: run,
		}},
	}
}

// Result holds the figures of `gq bench quantize`, in seconds of wall time including sync and
// rename.
type Result struct {
	SourceBytes int64     `json:"source_bytes"`
	OutputBytes int64     `json:"output_bytes"`
	Threads     int       `json:"threads"`
	Copy        []float64 `json:"copy_seconds"`
	Quantize    []float64 `json:"quantize_seconds"`
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq bench quantize wants one checkpoint; gq synth makes one")
	}
	if c.Int("rounds") < 2 {
		return cmdline.Usagef("--rounds %d: at least 2, as the first is not counted", c.Int("rounds"))
	}
	if c.Int("threads") < 0 {
		return cmdline.Usagef("--threads %d: at least 1", c.Int("threads"))
	}
	ck, err := safetensors.Open(c.Args().First(), safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	config, err := conversion.ReadConfig(ck)
	if err != nil {
		return err
	}
	threads := cpu.Threads(c.Int("threads"))
	opts := conversion.Options{Threads: threads}
	if s := c.String("layout"); s != "" {
		if opts.Recipe.Layouts, err = quantizer.ParseLayouts(s); err != nil {
			return cmdline.Usagef("--layout: %w", err)
		}
	}
	if s := c.String("target"); s != "" {
		if opts.Recipe.Targets, err = quantizer.ParseTargets(s); err != nil {
			return cmdline.Usagef("--target: %w", err)
		}
	}
	dir := c.String("dir")
	if dir == "" {
		dir = ck.Dir()
	}
	// Work in a new directory, so that no file of the user is replaced or removed.
	if dir, err = os.MkdirTemp(dir, "gq-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	res := Result{Threads: threads}
	for i := range c.Int("rounds") {
		t0 := time.Now()
		plan, err := conversion.NewPlan(ck, config, opts)
		if err != nil {
			return err
		}
		planned := time.Since(t0)
		res.SourceBytes, res.OutputBytes = plan.SourceBytes, plan.OutputBytes
		copied, err := plainCopy(c.Context, ck, filepath.Join(dir, "copy"), plan.OutputBytes, threads)
		if err != nil {
			return err
		}
		out := filepath.Join(dir, "model.gqf")
		report, err := plan.Write(c.Context, out)
		if err != nil {
			return err
		}
		if err := os.Remove(out); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		res.Copy = append(res.Copy, copied.Seconds())
		res.Quantize = append(res.Quantize, planned.Seconds()+report.Seconds)
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, res)
	}
	return print(c.App.Writer, &res)
}

func print(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "%d threads, %s in, %s out; seconds of wall time, sync and rename included\n", r.Threads, cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.OutputBytes))
	line := func(name string, s []float64) {
		fmt.Fprintf(w, "%-12s", name)
		best := s[0]
		for _, v := range s {
			fmt.Fprintf(w, " %6.2f", v)
			best = min(best, v)
		}
		fmt.Fprintf(w, "   best %.2f s, %.2f GB/s of input\n", best, float64(r.SourceBytes)/best/1e9)
	}
	line("plain copy", r.Copy)
	line("gq quantize", r.Quantize)
	return nil
}

// plainCopy is the lower bound of a quantizer's time: it reads every byte of the checkpoint's
// files, and writes and syncs size bytes to path, with as many threads.
func plainCopy(ctx context.Context, ck *safetensors.Checkpoint, path string, size int64, threads int) (time.Duration, error) {
	start := time.Now()
	out, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer out.Close()
	var written atomic.Int64
	for _, f := range ck.Files() {
		in, _, err := files.Open(filepath.Join(ck.Dir(), f.Name))
		if err != nil {
			return 0, err
		}
		err = copyFile(ctx, in, f.Size, out, &written, size, threads)
		in.Close()
		if err != nil {
			return 0, err
		}
	}
	if err := out.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// copyFile reads the whole input and writes the first bytes of each chunk until size bytes are
// written in total.
func copyFile(ctx context.Context, in *os.File, n int64, out *os.File, written *atomic.Int64, size int64, threads int) error {
	const chunk = 1 << 20
	var next atomic.Int64
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			buf := make([]byte, chunk)
			for ctx.Err() == nil {
				off := next.Add(chunk) - chunk
				if off >= n {
					return
				}
				b := buf[:min(chunk, n-off)]
				if _, err := in.ReadAt(b, off); err != nil {
					errs[t] = err
					return
				}
				end := written.Add(int64(len(b)))
				if at := end - int64(len(b)); at < size {
					if _, err := out.WriteAt(b[:min(int64(len(b)), size-at)], at); err != nil {
						errs[t] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
