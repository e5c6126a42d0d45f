package gq

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/kernels/bench"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// BenchKernelsOptions are the options of BenchKernels. The zero value is ready to use.
type BenchKernelsOptions struct {
	// Weights selects kinds of weights. Default: lowbit of every width, in groups of 32 and 128.
	Weights kernels.Query
	// Rows and Cols are the outputs and inputs. Default (0): 4096 and 14336.
	Rows, Cols uint64
	// Quick measures 4 bits, group 32, 1 and 128 rows of activations, and half as long, where the
	// other options are not set. Default: false.
	Quick bool
	// Begin is called before the first measurement. Default (nil): nothing.
	Begin func(cacheBytes, memoryBytes int64)
	// Options are the options of the measurements. BenchKernels sets Headers.
	bench.Options
}

// BenchKernels measures products of activations with packed weights, beside float32 and BF16 and the
// rate of reading memory.
func BenchKernels(ctx context.Context, o BenchKernelsOptions) (*bench.Report, error) {
	usual := kernels.Query{Layouts: []kernels.LayoutTile{{Layout: packing.LayoutLowbit}}, Bits: allWidths, Groups: []uint64{32, 128}}
	if o.Quick {
		usual.Groups = usual.Groups[:1]
		if o.Weights.Layouts == nil {
			usual.Bits = []int{4}
		}
		if o.M == nil {
			o.M = []int{1, 128}
		}
		if o.Time == 0 {
			o.Time = time.Second / 4
		}
	}
	if slices.ContainsFunc(o.Weights.Layouts, func(l kernels.LayoutTile) bool { return l.Layout == packing.LayoutPlain }) {
		return nil, optionf("layout", "plain: float32 and BF16 are always measured")
	}
	for _, name := range o.CPU {
		if _, err := allowedCPU(name); err != nil {
			return nil, err
		}
	}
	if o.Rows == 0 && o.Cols == 0 {
		o.Rows, o.Cols = 4096, 14336
	}
	var err error
	if o.Headers, err = o.Weights.Headers(usual, func(uint64) (uint64, uint64) { return o.Rows, o.Cols }); err != nil {
		return nil, &OptionError{Err: err}
	}
	memory, err := o.Memory()
	if err != nil {
		return nil, &OptionError{Err: err}
	}
	defer memlimit.Lift()()
	if o.CacheBytes == 0 {
		o.CacheBytes = bench.CacheBytes()
	}
	if o.Begin != nil {
		o.Begin(o.CacheBytes, memory)
	}
	return bench.Run(ctx, o.Options)
}

// BenchQuantizeOptions are the options of BenchQuantize. The zero value is ready to use.
type BenchQuantizeOptions struct {
	// Recipe as in QuantizeOptions.
	Recipe quantizer.Recipe
	// Rounds counts the rounds; the first warms the page cache and is not counted. Default (0): 5.
	Rounds int
	// Threads is how many workers run. Default (0): GOMAXPROCS.
	Threads int
	// Dir is the directory to write to. Default (""): the checkpoint's; the working directory for a
	// remote checkpoint.
	Dir string
	// Progress is told how far the download of a remote checkpoint is. Default (nil): none.
	Progress Progress
}

// BenchQuantizeReport is the result of BenchQuantize, in seconds of wall time including sync and
// rename.
type BenchQuantizeReport struct {
	SourceBytes int64     `json:"source_bytes"`
	OutputBytes int64     `json:"output_bytes"`
	Threads     int       `json:"threads"`
	Copy        []float64 `json:"copy_seconds"`
	Quantize    []float64 `json:"quantize_seconds"`
}

// BenchQuantize times Quantize of the checkpoint src, in turn with a plain copy: reading all input,
// and writing and syncing as many bytes as the output has.
func BenchQuantize(ctx context.Context, src string, o BenchQuantizeOptions) (*BenchQuantizeReport, error) {
	switch {
	case o.Rounds == 0:
		o.Rounds = 5
	case o.Rounds < 2:
		return nil, optionf("rounds", "%d: at least 2, as the first is not counted", o.Rounds)
	}
	if o.Threads < 0 {
		return nil, optionf("threads", "%d: at least 1", o.Threads)
	}
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.release()
	src = from.Path
	if err := floatReference(src); err != nil {
		return nil, err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	config, err := conversion.ReadConfig(ck)
	if err != nil {
		return nil, err
	}
	if o.Dir == "" {
		o.Dir = ck.Dir()
		if from.isRemote() {
			o.Dir = "." // no file of a job belongs into a cache
		}
	}
	// Work in a new directory, so that no file of the user is replaced or removed.
	dir, err := os.MkdirTemp(o.Dir, "gq-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &BenchQuantizeReport{Threads: cpu.Threads(o.Threads)}
	for i := range o.Rounds {
		t0 := time.Now()
		plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: o.Recipe, Threads: r.Threads})
		if err != nil {
			return nil, err
		}
		planned := time.Since(t0)
		r.SourceBytes, r.OutputBytes = plan.SourceBytes, plan.OutputBytes
		copied, err := plainCopy(ctx, ck, filepath.Join(dir, "copy"), plan.OutputBytes, r.Threads)
		if err != nil {
			return nil, err
		}
		out := filepath.Join(dir, "model.gqf")
		written, err := plan.Write(ctx, out)
		if err != nil {
			return nil, err
		}
		if err := os.Remove(out); err != nil {
			return nil, err
		}
		if i > 0 {
			r.Copy = append(r.Copy, copied.Seconds())
			r.Quantize = append(r.Quantize, planned.Seconds()+written.Seconds)
		}
	}
	return r, nil
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
