package gq

import (
	"context"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/kernels/bench"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
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

// BenchKernels measures products of activations with packed weights, with float32 and with BF16
// weights, and the rate of reading memory.
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
