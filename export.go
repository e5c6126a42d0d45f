package gq

import (
	"context"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// ExportOptions are the options of Export and PlanExport. The zero value is ready to use.
type ExportOptions struct {
	// GGUF are the options of the .gguf file.
	GGUF conversion.GGUFOptions
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Export writes the model in the .gqf file src as the .gguf file dst, for llama.cpp and programs
// built on it. Every code and scale stays as it is; a tensor that no type of GGUF files holds
// exactly is an error. dst, or its shards, appear when they are complete.
func Export(ctx context.Context, src, dst string, o ExportOptions) (*conversion.Report, error) {
	var s files.Set
	s.Input("the .gqf file", src)
	s.Output("output", "the .gguf file", dst)
	if err := collisions(&s); err != nil {
		return nil, err
	}
	if err := checkEnding(dst, FormatGGUF, "write a .gqf file with gq repack"); err != nil {
		return nil, err
	}
	return inExport(src, o, func(p *conversion.Plan, progress *func(int64)) (*conversion.Report, error) {
		add, end := stages{to: o.Progress}.begin("exporting", "bytes", p.SourceBytes)
		defer end()
		*progress = add
		return p.Write(ctx, dst)
	})
}

// PlanExport describes the job of Export with the same arguments and writes nothing.
func PlanExport(src string, o ExportOptions) (*PlanReport, error) {
	return inExport(src, o, func(p *conversion.Plan, _ *func(int64)) (*PlanReport, error) { return newPlanReport(p), nil })
}

// inExport calls do with the plan of a job and the place for its progress callback.
func inExport[T any](src string, o ExportOptions, do func(p *conversion.Plan, progress *func(int64)) (T, error)) (result T, err error) {
	switch {
	case o.Threads < 0:
		return result, optionf("threads", "%d: at least 1", o.Threads)
	case o.GGUF.Split < 0:
		return result, optionf("split", "%d: at least 1", o.GGUF.Split)
	}
	f, err := gqf.Open(src, gqf.Options{})
	if err != nil {
		return result, err
	}
	defer f.Close()
	var progress func(int64)
	plan, err := conversion.NewExport(f, src, conversion.ExportOptions{
		GGUF: o.GGUF, Threads: o.Threads, Progress: func(n int64) { progress(n) },
	})
	if err != nil {
		return result, err
	}
	return do(plan, &progress)
}
