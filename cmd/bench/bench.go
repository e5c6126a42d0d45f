// Package bench is the command `gq bench`, which measures the speed of gq on this machine.
package bench

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/payloads"
	"github.com/lowbit-go/gq/internal/kernels/bench"
	"github.com/lowbit-go/gq/kernels"
	"github.com/urfave/cli/v2"
)

// Command gives `gq bench`.
func Command() *cli.Command {
	return &cli.Command{
		Name:        "bench",
		Usage:       "measure gq on this machine",
		Subcommands: []*cli.Command{kernelsCommand()},
	}
}

func kernelsCommand() *cli.Command {
	return &cli.Command{
		Name:  "kernels",
		Usage: "measure products of activations with packed weights, beside float32 and BF16 and the memory's own rate",
		UsageText: `gq bench kernels --quick
gq bench kernels --layout lowbit,qsi4cxp --cpu avx2 --json
`,
		Description: "Copies of the weights that together exceed 16 times the last-level cache take turns; --cache-bytes says\n" +
			"how large that is where Linux does not. READ is the rate of reading them and nothing else, in the same\n" +
			"rounds, and SHARE the kernel's part of it. Figures are medians, of whole calls. docs/KERNELS.md has more.",
		Flags: append(payloads.Flags("lowbit", "32,128"),
			&cli.StringFlag{Name: "m", DefaultText: "1,4,16,128", Usage: "`LIST` of numbers of rows of activations"},
			&cli.StringFlag{Name: "threads", DefaultText: "1 and GOMAXPROCS", Usage: "`LIST` of numbers of threads"},
			&cli.StringFlag{Name: "shape", Value: "4096x14336", Usage: "outputs and inputs, `NxK`"},
			&cli.StringFlag{Name: "cpu", DefaultText: "GQ_CPU, or the best of this CPU", Usage: "`LIST` of instruction sets, as GQ_CPU takes them"},
			&cli.Int64Flag{Name: "cache-bytes", DefaultText: "what Linux says, or 32 MiB", Usage: "`SIZE` of the last-level cache"},
			cmdline.Positive(&cli.IntFlag{Name: "rounds", Value: 5, Usage: "`N`: rounds that a median is taken of"}),
			&cli.Float64Flag{Name: "seconds", Value: 0.5, Usage: "`S`: time of all rounds of a figure"},
			&cli.BoolFlag{Name: "quick", Usage: "4 bits, group 32, m of 1 and 128 and half the time, where flags do not say otherwise"},
			&cli.BoolFlag{Name: "verbose", Usage: "say on standard error which kernel runs first for which shape"},
			cmdline.JSON(),
		),
		Action: runKernels,
	}
}

func runKernels(c *cli.Context) error {
	o, err := kernelOptions(c)
	if err != nil {
		return err
	}
	t := table{w: c.App.Writer}
	o.Begin = func(cache, memory int64) {
		fmt.Fprintf(os.Stderr, "last-level cache %s, up to %s of memory\n", cmdline.Bytes(cache), cmdline.Bytes(memory))
		if !c.Bool("json") {
			t.line("KERNEL", "BITS", "GROUP", "THREADS", "M", "GMAC/s", "GB/s", "READ GB/s", "SHARE", "x M=1", "x F32", "x BF16")
		}
	}
	if c.Bool("verbose") {
		o.Log = func(choice kernels.Choice) { fmt.Fprintln(os.Stderr, "kernels:", choice) }
	}
	if !c.Bool("json") {
		o.Each = t.figure
	}
	r, err := gq.BenchKernels(c.Context, o)
	return cmdline.Show(c, r, err, func(io.Writer, *bench.Report) error { return t.err })
}

func kernelOptions(c *cli.Context) (o gq.BenchKernelsOptions, err error) {
	o.CacheBytes, o.Rounds, o.Quick = c.Int64("cache-bytes"), c.Int("rounds"), c.Bool("quick")
	seconds := c.Float64("seconds")
	switch {
	case c.NArg() != 0:
		return o, cmdline.Usagef("gq bench kernels takes no arguments, got %q", c.Args().First())
	case c.IsSet("cache-bytes") && o.CacheBytes < 1:
		return o, cmdline.Usagef("--cache-bytes %d: at least 1", o.CacheBytes)
	case !(seconds > 0 && seconds <= 3600):
		return o, cmdline.Usagef("--seconds %v: more than 0, at most 3600", seconds)
	case c.IsSet("seconds"):
		o.Time = time.Duration(seconds * float64(time.Second))
	}
	if o.Rows, o.Cols, err = parseShape(c.String("shape")); err != nil {
		return o, err
	}
	if o.Weights, err = payloads.Query(c); err != nil {
		return o, err
	}
	if o.M, err = payloads.Ints(c, "m", 1, 1<<16); err != nil {
		return o, err
	}
	if o.Threads, err = payloads.Ints(c, "threads", 1, 1<<10); err != nil {
		return o, err
	}
	o.CPU, err = cmdline.List(c, "cpu", func(s string) (string, error) { return s, nil })
	return o, err
}

func parseShape(s string) (rows, cols uint64, err error) {
	n, k, _ := strings.Cut(s, "x")
	rows, err1 := strconv.ParseUint(n, 10, 31)
	cols, err2 := strconv.ParseUint(k, 10, 31)
	if err1 != nil || err2 != nil || rows == 0 || cols == 0 {
		return 0, 0, cmdline.Usagef("--shape %s: outputs x inputs, as 4096x14336", cmdline.Text(s))
	}
	return rows, cols, nil
}

// table prints rows as they come in, so its columns have fixed widths. It keeps the first error.
type table struct {
	w   io.Writer
	err error
}

func (t *table) line(cells ...any) {
	const format = "%-37s %5s %8s %8s %5s %8s %8s %10s %6s %7s %7s %7s"
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.w, strings.TrimRight(fmt.Sprintf(format, cells...), " "))
	}
}

func (t *table) figure(f *bench.Figure) {
	group := ""
	switch {
	case f.Layout == "plain":
	case f.Group == 0:
		group = "channel"
	default:
		group = fmt.Sprint(f.Group)
	}
	times := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", x)
	}
	t.line(f.Kernel, fmt.Sprint(f.Bits), group, fmt.Sprint(f.Threads), fmt.Sprint(f.M), fmt.Sprintf("%.1f", f.GMACps), fmt.Sprintf("%.2f", f.GBps),
		fmt.Sprintf("%.2f", f.ReadGBps), fmt.Sprintf("%.0f %%", 100*f.Share), times(f.OverOneRow), times(f.OverFloat32), times(f.OverBF16))
}
