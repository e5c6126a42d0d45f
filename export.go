package gq

import (
	"cmp"
	"context"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// ExportOptions are the options of Export and PlanExport. The zero value is ready to use.
type ExportOptions struct {
	// Target decides the format of the output. Default (the zero value): quantizer.TargetGGUF.
	Target quantizer.Target
	// Pre is as in a quantizer.Recipe, Split as in QuantizeOptions.
	Pre   string
	Split int64
	// Dequantize writes weights that the format of a checkpoint cannot hold as float32. Default: they
	// are refused.
	Dequantize bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Export writes the model in the .gqf file src as the .gguf file dst, for llama.cpp and programs
// built on it, or as the directory dst: for ONNX Runtime, or with a checkpoint in a format of
// another library. Every code and scale stays as it is; a tensor that the format does not hold
// exactly is an error. dst, or its shards, appear when they are complete.
func Export(ctx context.Context, src, dst string, o ExportOptions) (*write.Report, error) {
	var s files.Set
	s.Input("the .gqf file", src)
	s.Output("output", o.format().noun(), dst)
	if err := collisions(&s); err != nil {
		return nil, err
	}
	instead := ""
	if o.format() == formatGGUF {
		instead = "write a .gqf file with gq repack"
	}
	if err := checkEnding(dst, o.format(), instead); err != nil {
		return nil, err
	}
	return inExport(ctx, src, o, func(p *write.Job) (*write.Report, error) {
		return writeTo(ctx, p, dst, o.format(), o.Split, stages{to: o.Progress}, "exporting")
	})
}

func (o *ExportOptions) format() format {
	return formatOf([]quantizer.Target{cmp.Or(o.Target, quantizer.TargetGGUF)}, "")
}

// PlanExport describes the job of Export with the same arguments and writes nothing.
func PlanExport(ctx context.Context, src string, o ExportOptions) (*PlanReport, error) {
	return inExport(ctx, src, o, func(p *write.Job) (*PlanReport, error) { return newPlanReport(p), nil })
}

func inExport[T any](ctx context.Context, src string, o ExportOptions, do func(p *write.Job) (T, error)) (result T, err error) {
	q, err := o.conversion()
	if err != nil {
		return result, err
	}
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return result, err
	}
	defer from.Release()
	src = from.Path
	f, err := gqf.Open(src, gqf.Options{})
	if err != nil {
		return result, err
	}
	defer f.Close()
	plan, err := conversion.NewExport(f, src, q)
	if err != nil {
		return result, err
	}
	return do(plan)
}

func (o *ExportOptions) conversion() (q conversion.ExportOptions, err error) {
	q.Threads = o.Threads
	format := o.format()
	switch {
	case o.Split < 0:
		return q, optionf("split", "%d: at least 1", o.Split)
	case format == formatONNX && !o.Dequantize:
		q.ONNX = &toonnx.Options{Tile: o.Target.PackedTile(), Split: o.Split}
	case format.checkpoint() != "":
		q.Checkpoint = &tocheckpoint.Options{Format: format.checkpoint(), Split: o.Split, Dequantize: o.Dequantize}
	case format == formatGQF:
		return q, optionf("target", "%s reads .gqf files, which gq repack writes: an export writes .gguf files and checkpoints", o.Target.Name)
	case o.Dequantize:
		return q, optionf("dequantize", "is for checkpoints: quantize again with --target gguf for a .gguf file")
	}
	q.GGUF = togguf.Options{Pre: o.Pre, Split: o.Split}
	return q, checkSettings(quantizer.Recipe{Pre: o.Pre}, map[string]bool{quantizer.With.GGUF: format == formatGGUF})
}
