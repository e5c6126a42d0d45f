package gq

import (
	"context"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// RepackOptions are the options of Repack and PlanRepack. Layouts or Targets must be set, except for a
// GGUF file: its layout is lowbit then.
type RepackOptions struct {
	// Layouts are the layouts, Tile the tile of layouts that state none. Targets are consumers,
	// which choose the layouts instead. As in a quantizer.Recipe. Default: none.
	Layouts []quantizer.LayoutRequest
	Tile    packing.Tile
	Targets []quantizer.Target
	// Dequantize stores tensors of a GGUF file as unquantized float32 if a .gqf file cannot hold their
	// codes. Default: such tensors are refused.
	Dequantize bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Repack stores the codes of src in other layouts, in the new file dst. src is a .gqf file, or a GGUF
// file whose quantized tensors have types that a .gqf file holds exactly: Q1_0, Q2_0, Q4_0, Q5_0 and
// Q8_0. dst appears when it is complete.
func Repack(ctx context.Context, src, dst string, o RepackOptions) (*conversion.Report, error) {
	var s files.Set
	s.Input("the file", src)
	s.Output("output", "the new .gqf file", dst)
	if err := collisions(&s); err != nil {
		return nil, err
	}
	if err := checkEnding(dst, FormatGQF, "write a .gguf file with gq export"); err != nil {
		return nil, err
	}
	return inRepack(src, o, func(p *conversion.Plan, progress *func(int64)) (*conversion.Report, error) {
		add, end := stages{to: o.Progress}.begin("repacking", "bytes", p.SourceBytes)
		defer end()
		*progress = add
		return p.Write(ctx, dst)
	})
}

// PlanRepack describes the job of Repack with the same arguments and writes nothing.
func PlanRepack(src string, o RepackOptions) (*PlanReport, error) {
	return inRepack(src, o, func(p *conversion.Plan, _ *func(int64)) (*PlanReport, error) { return newPlanReport(p), nil })
}

// inRepack calls do with the plan of a job and the place for its progress callback.
func inRepack[T any](src string, o RepackOptions, do func(p *conversion.Plan, progress *func(int64)) (T, error)) (result T, err error) {
	switch {
	case o.Layouts == nil && o.Targets == nil && !IsGGUF(src):
		return result, optionf("", "into which layout? state a layout or a target")
	case o.Dequantize && !IsGGUF(src):
		return result, optionf("dequantize", "goes with a .gguf file: every tensor of a .gqf file can be repacked")
	case o.Threads < 0:
		return result, optionf("threads", "%d: at least 1", o.Threads)
	}
	var progress func(int64)
	options := conversion.RepackOptions{
		Layouts: o.Layouts, Tile: o.Tile, Targets: o.Targets, Threads: o.Threads,
		Progress: func(n int64) { progress(n) },
	}
	var plan *conversion.Plan
	if IsGGUF(src) {
		f, err := gguf.Open(src)
		if err != nil {
			return result, err
		}
		defer f.Close()
		if plan, err = conversion.NewImport(f, src, conversion.ImportOptions{RepackOptions: options, Dequantize: o.Dequantize}); err != nil {
			return result, err
		}
	} else {
		f, err := gqf.Open(src, gqf.Options{})
		if err != nil {
			return result, err
		}
		defer f.Close()
		if plan, err = conversion.NewRepack(f, src, options); err != nil {
			return result, err
		}
	}
	return do(plan, &progress)
}
