package conversion

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/fromgqf"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/togqf"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Options of a job. The zero value is 4-bit, group 32, full-range, BF16 scales,
// embeddings at 8 bits, the default tile, every CPU.
type Options struct {
	// Context ends NewPlan with its error when it is cancelled: many rules take long to match with
	// many tensors. Default (nil): nothing ends it.
	Context context.Context
	// Recipe decides the scheme of each tensor; see Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules come before the recipe's own (the command line's --rule).
	Rules []quantizer.Rule
	// Threads is how many workers run. Default: GOMAXPROCS. The output does not depend on it.
	Threads int
	// Origin is set if the checkpoint was folded from another one. The file then names Origin as its
	// source. Default: none.
	Origin *fromcheckpoint.Origin
	// GGUF makes the output a .gguf file. The recipe's target must be gguf. Default (nil): a .gqf
	// file.
	GGUF *togguf.Options
	// Checkpoint makes the output a directory: a checkpoint in a format of another library. The
	// recipe's target must be the format's. Default (nil): a .gqf file.
	Checkpoint *tocheckpoint.Options
	// ONNX makes the output a directory for ONNX Runtime. The recipe's target must be one of ONNX
	// Runtime. Default (nil): a .gqf file.
	ONNX *toonnx.Options
	// Sources are the files that the checkpoint was made of, and that a file says it was made of, if
	// the checkpoint is temporary. Default: the checkpoint's own files.
	Sources []provenance.Source
	// Assets lets the plans of a job share the packed files of a checkpoint; copies of Options
	// share it. Default (nil): each plan reads and compresses these files.
	Assets *fromcheckpoint.AssetCache
	Trial  bool // as in fromcheckpoint.Options
}

// NewPlan lays out the job of quantizing ck. config is the raw config.json, nil if the checkpoint
// has none. Weights are read only to compare an lm_head with the embedding, and a few rows to look
// for lattices.
//
// It fails with a *RequestError for a rule that matches nothing or a tensor that it cannot apply to
// and for a layout that cannot hold the scheme; also for a tensor of unknown dtype.
func NewPlan(ck *safetensors.Checkpoint, config []byte, o Options) (*fromcheckpoint.Plan, error) {
	in := fromcheckpoint.New(ck, config, fromcheckpoint.Options{
		Context: o.Context, Recipe: o.Recipe, Rules: o.Rules, Threads: o.Threads, Origin: o.Origin, Sources: o.Sources, Cache: o.Assets, Trial: o.Trial,
	})
	var out write.Output
	switch {
	case o.Checkpoint != nil:
		out = tocheckpoint.New(in, *o.Checkpoint, packing.F32)
	case o.ONNX != nil:
		out = toonnx.New(in, *o.ONNX)
	case o.GGUF != nil:
		out := togguf.New(in, *o.GGUF)
		p, err := in.Plan(out)
		if err == nil {
			p.Whole = wholeGGUF(p.Job, out)
		}
		return p, err
	default:
		return in.Plan(togqf.New(in))
	}
	p, err := in.Plan(out)
	if err != nil {
		return nil, err
	}
	o.Checkpoint, o.ONNX = nil, nil
	p.Whole = func(path string) (*write.Job, string, error) { // a .gqf file with the codes
		one, err := NewPlan(ck, config, o)
		if err != nil {
			return nil, "", err
		}
		return one.Job, filepath.Clean(path) + ".gqf", nil // the path may end in a separator
	}
	return p, nil
}

func wholeGGUF(j *write.Job, out *togguf.Output) func(path string) (*write.Job, string, error) {
	return func(path string) (*write.Job, string, error) {
		one := *j
		one.Out, one.Whole = out.Whole(), nil
		return &one, path, nil
	}
}

// RepackOptions of a job: either Layouts or Targets.
type RepackOptions struct {
	// Layouts are the layouts that quantized tensors get, each in all of them. A
	// tensor that one cannot hold stays lowbit. Default: lowbit.
	Layouts []quantizer.LayoutRequest
	// Targets choose layouts and tiles for consumers. Default: none.
	Targets []quantizer.Target
	// Dequantize stores tensors of another program's model as unquantized float32 if a .gqf file
	// cannot hold their codes. Default: such tensors are refused.
	Dequantize bool
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
}

// recipe is a recipe of layouts alone.
func (o *RepackOptions) recipe() (quantizer.Recipe, error) {
	r := quantizer.Recipe{Layouts: o.Layouts, Targets: o.Targets}
	if err := r.Validate(); err != nil {
		return r, quantizer.Requestf("%w", err)
	}
	if name := quantizer.TargetNames(r.Targets); r.Alone() {
		return r, quantizer.Requestf("target %s chooses schemes, which a repack takes over: write such a file with gq export --target %s", name, name)
	}
	return r, nil
}

// NewRepack lays out the job of putting the tensors of f into other layouts, without the checkpoint
// and without changing a code, scale, zero point or bias. Scales may be stored wider (BF16 as F32,
// exactly), never narrower. The job checks the checksums of all data that it reads: a damaged file
// ends it with a *gqf.FormatError.
func NewRepack(f *gqf.File, path string, o RepackOptions) (*write.Job, error) {
	recipe, err := o.recipe()
	if err != nil {
		return nil, err
	}
	in := fromgqf.New(f, path)
	return in.Repack(togqf.New(in), recipe, o.Threads)
}

// NewImport lays out the job of putting a model of another program into a .gqf file.
func NewImport(f imports.Foreign, o RepackOptions) (*imports.Import, error) {
	recipe, err := o.recipe()
	if err != nil {
		return nil, err
	}
	in := f.Input()
	return in.Import(togqf.New(in), recipe, o.Threads, o.Dequantize)
}

// ExportOptions are the options of NewExport.
type ExportOptions struct {
	GGUF togguf.Options
	// Checkpoint makes the output a checkpoint, ONNX a directory for ONNX Runtime. Default (nil): a
	// .gguf file.
	Checkpoint *tocheckpoint.Options
	ONNX       *toonnx.Options
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
}

// NewExport lays out the job of writing the model in f as a .gguf file, or as a checkpoint in a
// format of another library, with the same codes and scales. It fails with a
// *quantizer.RequestError for a tensor that the file or the format cannot hold exactly. The job
// checks the checksums of all data that it reads: a damaged file ends it with a *gqf.FormatError.
func NewExport(f *gqf.File, path string, o ExportOptions) (*write.Job, error) {
	in := fromgqf.New(f, path)
	if c := o.Checkpoint; c != nil {
		return in.Export(tocheckpoint.New(in, *c, packing.F32), fmt.Sprintf("a checkpoint of format %s", c.Format), false, o.Threads)
	}
	if o.ONNX != nil {
		return in.Export(toonnx.New(in, *o.ONNX), "a directory for ONNX Runtime", false, o.Threads)
	}
	out := togguf.New(in, o.GGUF)
	j, err := in.Export(out, "a .gguf file", true, o.Threads)
	if err == nil {
		j.Whole = wholeGGUF(j, out)
	}
	return j, err
}

// DequantizeOptions of a job.
type DequantizeOptions struct {
	// Dtype of the dequantized weights: packing.BF16 (rounded to nearest, ties to even)
	// or packing.F32 (exact). Unquantized tensors keep their bytes. Default: BF16.
	Dtype packing.Dtype
	// Widened reports whether an unquantized tensor was quantized in the model that the file was
	// imported from. Such a tensor gets Dtype, too. Default (nil): no tensor was.
	Widened func(name string) bool
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes done since the last call; see
	// [DequantizedBytes]. Default: none.
	Progress func(n int64)
}

// Dequantize writes f, which is open from path, as a safetensors checkpoint to dir: every tensor
// under every name that the original checkpoint had for it, config.json and the tokenizer's files.
// If block scales were multiplied into weights, config.json loses its quantization_config, which
// would no longer be true. A model card loses the section about quantization that gq wrote.
//
// Dequantize checks the checksums of all data that it reads: a damaged file ends the job with a
// *gqf.FormatError. The directory must be new or empty. It appears when it is complete.
func Dequantize(ctx context.Context, f *gqf.File, path, dir string, o DequantizeOptions) (*tocheckpoint.DequantizeReport, error) {
	if o.Dtype == packing.DtypeNone {
		o.Dtype = packing.BF16
	}
	if o.Dtype != packing.BF16 && o.Dtype != packing.F32 {
		return nil, fmt.Errorf("dtype %s: use BF16 or F32", o.Dtype)
	}
	in := fromgqf.New(f, path)
	out := tocheckpoint.New(in, tocheckpoint.Options{}, o.Dtype)
	j, err := in.Dequantize(out, o.Threads, func(name string) packing.Dtype {
		if o.Widened != nil && o.Widened(name) {
			return o.Dtype
		}
		return packing.DtypeNone
	})
	if err != nil {
		return nil, err
	}
	var r *tocheckpoint.DequantizeReport
	_, err = j.WriteWith(ctx, dir, write.Options{Progress: o.Progress, Written: func() { r = out.DequantizeReport(dir) }})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// DequantizedBytes is the number of bytes that Dequantize tells Progress of: a byte for each weight
// that is dequantized, and the bytes of other tensors.
func DequantizedBytes(f *gqf.File) (total int64) {
	for i := range f.Len() {
		t := f.Tensor(i)
		n := t.Elements()
		if p, ok := t.Payload(0, 0, gqf.KindWeights); ok && p.Header.Layout == packing.LayoutPlain {
			n *= int64(t.Dtype.Bits() / 8)
		}
		total += n
	}
	return total
}
