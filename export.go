package gq

import (
	"cmp"
	"context"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// ExportOptions are the options of Export and PlanExport. The zero value is ready to use.
type ExportOptions struct {
	// Format is the format of the output. Default (FormatByName): FormatGGUF.
	Format Format
	// Pre and Split are as in QuantizeOptions.
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
// built on it, or as the directory dst with a checkpoint in a format of another library. Every code
// and scale stays as it is; a tensor that the format does not hold exactly is an error. dst, or its
// shards, appear when they are complete.
func Export(ctx context.Context, src, dst string, o ExportOptions) (*conversion.Report, error) {
	var s files.Set
	s.Input("the .gqf file", src)
	s.Output("output", o.format().noun(), dst)
	if err := collisions(&s); err != nil {
		return nil, err
	}
	instead := ""
	if o.format() == FormatGGUF {
		instead = "write a .gqf file with gq repack"
	}
	if err := checkEnding(dst, o.format(), instead); err != nil {
		return nil, err
	}
	return inExport(ctx, src, o, func(p *conversion.Plan, progress *func(int64)) (*conversion.Report, error) {
		to, err := newDestination(dst, o.format(), o.Split)
		if err != nil {
			return nil, err
		}
		if err := to.open(ctx, false); err != nil {
			return nil, err
		}
		defer to.close()
		s := stages{to: o.Progress}
		add, end := s.begin("exporting", "bytes", p.SourceBytes)
		defer end()
		*progress = add
		return to.write(ctx, p, conversion.WriteOptions{}, s, end)
	})
}

func (o *ExportOptions) format() Format { return cmp.Or(o.Format, FormatGGUF) }

// PlanExport describes the job of Export with the same arguments and writes nothing.
func PlanExport(ctx context.Context, src string, o ExportOptions) (*PlanReport, error) {
	return inExport(ctx, src, o, func(p *conversion.Plan, _ *func(int64)) (*PlanReport, error) { return newPlanReport(p), nil })
}

// inExport calls do with the plan of a job and the place for its progress callback.
func inExport[T any](ctx context.Context, src string, o ExportOptions, do func(p *conversion.Plan, progress *func(int64)) (T, error)) (result T, err error) {
	q, err := o.conversion()
	if err != nil {
		return result, err
	}
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return result, err
	}
	defer from.release()
	src = from.Path
	f, err := gqf.Open(src, gqf.Options{})
	if err != nil {
		return result, err
	}
	defer f.Close()
	var progress func(int64)
	q.Progress = func(n int64) { progress(n) }
	plan, err := conversion.NewExport(f, src, q)
	if err != nil {
		return result, err
	}
	return do(plan, &progress)
}

// conversion checks the options.
func (o *ExportOptions) conversion() (q conversion.ExportOptions, err error) {
	q.Threads = o.Threads
	format, checkpoint := o.format().checkpoint()
	switch {
	case o.Threads < 0:
		return q, optionf("threads", "%d: at least 1", o.Threads)
	case o.Split < 0:
		return q, optionf("split", "%d: at least 1", o.Split)
	case checkpoint && o.Pre != "":
		return q, optionf("pre", "is for .gguf files, not for %s", o.Format.noun())
	case checkpoint:
		q.Checkpoint = &conversion.CheckpointOptions{Format: format, Split: o.Split, Dequantize: o.Dequantize}
	case o.format() != FormatGGUF:
		return q, optionf("format", "%s: an export writes .gguf files and checkpoints: write a .gqf file with gq repack", o.Format)
	case o.Dequantize:
		return q, optionf("dequantize", "is for checkpoints: quantize again with --target gguf for a .gguf file")
	}
	q.GGUF = conversion.GGUFOptions{Pre: o.Pre, Split: o.Split}
	return q, nil
}
