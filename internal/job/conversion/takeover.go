package conversion

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/fromgguf"
	"github.com/lowbit-go/gq/internal/job/fromgqf"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/togqf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// RepackOptions of a job: either Layouts or Targets.
type RepackOptions struct {
	// Layouts are the layouts that quantized tensors get, each in all of them. A
	// tensor that one cannot hold stays lowbit. Default: lowbit.
	Layouts []quantizer.LayoutRequest
	// Targets choose layouts and tiles for consumers. Default: none.
	Targets []quantizer.Target
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
}

// recipe is a recipe of layouts alone.
func (o *RepackOptions) recipe() (quantizer.Recipe, error) {
	r := quantizer.Recipe{Layouts: o.Layouts, Targets: o.Targets}
	if err := r.Validate(); err != nil {
		return r, quantizer.Requestf("%w", err)
	}
	if name := quantizer.TargetNames(r.Targets); r.ForGGUF() || r.CheckpointFormat() != "" {
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

// ImportOptions are the options of NewImport.
type ImportOptions struct {
	RepackOptions
	// Dequantize stores tensors whose codes a .gqf file cannot hold as unquantized float32. Default:
	// they are refused.
	Dequantize bool
}

// Foreign is an open model of another program: a GGUF file, or a checkpoint with quantized weights.
type Foreign struct{ imports.Foreign }

// OpenGGUF opens a GGUF file, or the shards of one model.
func OpenGGUF(path string) (*Foreign, error) {
	f, err := fromgguf.Open(path)
	if err != nil {
		return nil, err
	}
	return &Foreign{f}, nil
}

// OpenQuantized opens a checkpoint with weights that another library quantized. It returns nil if
// no weight is quantized, and if path is no checkpoint that can be read: its reader reports the
// error.
func OpenQuantized(path string) (*Foreign, error) {
	f, err := fromquantized.Open(path)
	if f == nil {
		return nil, err
	}
	return &Foreign{f}, nil
}

// NewImport lays out the job of putting a model of another program into a .gqf file.
func NewImport(f *Foreign, o ImportOptions) (*imports.Import, error) {
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
	// Checkpoint makes the output a checkpoint. Default (nil): a .gguf file.
	Checkpoint *tocheckpoint.Options
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
