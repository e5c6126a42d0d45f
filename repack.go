package gq

import (
	"context"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
)

// RepackOptions are the options of Repack and PlanRepack. Layouts or Targets must be set if the
// source is a .gqf file. The default for other sources is layout lowbit.
type RepackOptions struct {
	// Layouts are the layouts. Targets are consumers, which choose the layouts instead. As in a
	// quantizer.Recipe. Default: none.
	Layouts []quantizer.LayoutRequest
	Targets []quantizer.Target
	// Dequantize stores tensors of another source than a .gqf file as unquantized float32 if a .gqf
	// file cannot hold their codes. Default: such tensors are refused.
	Dequantize bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Repack stores the codes of src in other layouts, in the new file dst. src is a .gqf file, a GGUF
// file whose quantized tensors have types that a .gqf file holds exactly (Q1_0, Q2_0, Q3_K, Q4_0,
// Q5_0, Q6_K and Q8_0), or a checkpoint that compressed-tensors, GPTQ, AWQ, MLX or torchao
// quantized, or a directory with a graph for ONNX Runtime. dst appears when it is complete.
func Repack(ctx context.Context, src, dst string, o RepackOptions) (*write.Report, error) {
	return inRepack(ctx, src, dst, o, func(p *write.Job, stage string) (*write.Report, error) {
		return writeTo(ctx, p, dst, formatGQF, 0, stages{to: o.Progress}, stage)
	})
}

// PlanRepack describes the job of Repack with the same arguments and writes nothing.
func PlanRepack(ctx context.Context, src string, o RepackOptions) (*PlanReport, error) {
	return inRepack(ctx, src, "", o, func(p *write.Job, _ string) (*PlanReport, error) { return newPlanReport(p), nil })
}

// inRepack calls do with the plan of a job and the name of its stage. dst is "" if nothing is
// written.
func inRepack[T any](ctx context.Context, src, dst string, o RepackOptions, do func(p *write.Job, stage string) (T, error)) (result T, err error) {
	from, err := resolveSource(ctx, src, true, stages{to: o.Progress})
	if err != nil {
		return result, err
	}
	defer from.Release()
	src = from.Path
	foreign, err := openForeign(src)
	if err != nil {
		return result, err
	}
	if foreign != nil {
		defer foreign.Close()
	}
	if err := o.check(from, dst, foreign); err != nil {
		return result, err
	}
	options := conversion.RepackOptions{Layouts: o.Layouts, Targets: o.Targets, Threads: o.Threads, Dequantize: o.Dequantize}
	if foreign != nil {
		p, err := conversion.NewImport(foreign, options)
		if err != nil {
			return result, err
		}
		if !foreign.IsGGUF() { // NewImport refuses a GGUF file with more tokens than rows
			warnMisfit(&p.Warnings, p.Config, func() (*tokenizer.Tokenizer, error) { return tokenizer.Open(filepath.Dir(foreign.Paths()[0])) })
		}
		return do(p.Job, stageImport)
	}
	f, err := gqf.Open(src, gqf.Options{})
	if err != nil {
		return result, err
	}
	defer f.Close()
	plan, err := conversion.NewRepack(f, src, options)
	if err != nil {
		return result, err
	}
	config, _ := f.Asset(assets.ConfigName) // misfit returns nil without a config.json
	warnMisfit(&plan.Warnings, config, func() (*tokenizer.Tokenizer, error) { return tokenizer.Read(f.Asset) })
	return do(plan, "repacking")
}

// check finds invalid options. foreign is nil if src is a .gqf file.
func (o *RepackOptions) check(from *location.Source, dst string, foreign imports.Foreign) error {
	src := from.Path
	var s files.Set
	list := []string{src}
	if foreign != nil {
		list = append(list, foreignFiles(src, foreign)...)
	}
	s.Input("the file", append(list, from.RemoteNames(list)...)...)
	s.Output("output", "the new .gqf file", dst)
	if err := collisions(&s); err != nil {
		return err
	}
	if err := checkEnding(dst, formatGQF, "write a .gguf file with gq export"); err != nil {
		return err
	}
	st, err := os.Stat(src)
	switch {
	case err != nil:
		return err
	case foreign == nil && st.IsDir():
		ck, err := safetensors.Open(src, safetensors.Options{})
		if err != nil {
			return err
		}
		ck.Close()
		return optionf("", "%s is a checkpoint whose weights are not quantized: quantize it with gq quantize", from.Name)
	case o.Layouts == nil && o.Targets == nil && foreign == nil:
		return optionf("layout", "is needed, or a target: it says how the codes are to lie in memory")
	case o.Dequantize && foreign == nil:
		return optionf("dequantize", "goes with a .gguf file or a quantized checkpoint: every tensor of a .gqf file can be repacked")
	}
	return nil
}
