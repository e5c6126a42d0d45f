package conversion

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// DequantizeOptions of a job.
type DequantizeOptions struct {
	// Dtype of the dequantized weights: packing.BF16 (rounded to nearest, ties to even)
	// or packing.F32 (exact). Unquantized tensors keep their bytes. Default: BF16.
	Dtype packing.Dtype
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes done since the last call; see
	// [DequantizedBytes]. Default: none.
	Progress func(n int64)
}

// DequantizeReport describes a finished job.
type DequantizeReport struct {
	Output      string `json:"output"`
	Dequantized int    `json:"dequantized"` // names of tensors
	Kept        int    `json:"kept"`
	Bytes       int64  `json:"bytes"`
	Files       int    `json:"assets"` // config and tokenizer files
}

// Dequantize writes f, which is open from path, as a safetensors checkpoint to dir: every tensor under
// every name that the original checkpoint had for it, config.json and the tokenizer's files. If block
// scales were multiplied into weights, config.json loses its quantization_config, which would no longer
// be true. A model card loses the section about quantization that gq wrote.
//
// Dequantize checks the checksums of all data that it reads: a damaged file ends the job with a
// *gqf.FormatError. It refuses a directory that holds weights, or another model's files. config.json
// and the index appear last: a directory that has them is complete.
func Dequantize(ctx context.Context, f *gqf.File, path, dir string, opts DequantizeOptions) (*DequantizeReport, error) {
	if opts.Dtype == packing.DtypeNone {
		opts.Dtype = packing.BF16
	}
	if opts.Dtype != packing.BF16 && opts.Dtype != packing.F32 {
		return nil, fmt.Errorf("dtype %s: use BF16 or F32", opts.Dtype)
	}
	f.CheckSums()
	in := &fileInput{gqf: f, path: path}
	p := &Plan{in: in, opts: Options{Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	if f.HasAsset(configName) {
		var err error
		if p.config, err = f.Asset(configName); err != nil {
			return nil, err
		}
	}
	o := newCheckpointOutput(p, in, CheckpointOptions{})
	o.dtype, p.out = opts.Dtype, o
	pl := &planner{Plan: p}
	if err := pl.takeAll(in); err != nil {
		return nil, err
	}
	if err := pl.layOut(); err != nil {
		return nil, err
	}
	if _, err := p.Write(ctx, dir); err != nil {
		return nil, err
	}
	return o.dequantizeReport(dir), nil
}

func (o *checkpointOutput) dequantizeReport(dir string) *DequantizeReport {
	r := &DequantizeReport{Output: dir, Files: len(o.beside)}
	for i, it := range o.items {
		if it.(*unquantized).as == packing.DtypeNone {
			r.Kept += len(o.tensors[i])
		} else {
			r.Dequantized += len(o.tensors[i])
		}
	}
	for _, p := range o.layout.Places {
		r.Bytes += p.Size
	}
	return r
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
