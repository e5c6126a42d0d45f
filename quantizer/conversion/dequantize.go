package conversion

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// DequantizeOptions of a job.
type DequantizeOptions struct {
	// Dtype of what was quantized: packing.BF16 (rounded to nearest, ties to even)
	// or packing.F32 (exact). Kept tensors have the bytes that they had. Default: BF16.
	Dtype packing.Dtype
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes written since the last call. Default: none.
	Progress func(n int64)
}

// DequantizeReport is what a job did.
type DequantizeReport struct {
	Output      string `json:"output"`
	Dequantized int    `json:"dequantized"` // names of tensors
	Kept        int    `json:"kept"`
	Bytes       int64  `json:"bytes"`
	Files       int    `json:"assets"` // config and tokenizer files
}

// shardBytes bounds the data of a file, as Transformers does.
const shardBytes = 5_000_000_000

// scatterRows is how many outputs are turned at a time where the checkpoint has a matrix as in x out.
const scatterRows = 512

// Dequantize writes f as a safetensors checkpoint to dir: every tensor under every
// name that the original checkpoint had for it, config.json and the tokenizer's
// files. Where block scales were multiplied in, config.json loses its
// quantization_config, which would no longer be true.
//
// The checksums of all data that are read are checked: a damaged file ends the job with a
// *gqf.FormatError. It refuses a directory that holds weights, or another model's files. The weights
// come last: a directory that has them has everything.
func Dequantize(ctx context.Context, f *gqf.File, dir string, opts DequantizeOptions) (*DequantizeReport, error) {
	if opts.Dtype == packing.DtypeNone {
		opts.Dtype = packing.BF16
	}
	if opts.Dtype != packing.BF16 && opts.Dtype != packing.F32 {
		return nil, fmt.Errorf("dtype %s: use BF16 or F32", opts.Dtype)
	}
	f.CheckSums()
	d := &dequantizer{f: f, opts: opts, report: DequantizeReport{Output: dir}}
	specs, err := d.plan()
	if err != nil {
		return nil, err
	}
	files, beside, err := d.assets(dir)
	if err != nil {
		return nil, err
	}
	if d.w, err = safetensors.Create(dir, specs, safetensors.WriteOptions{MaxShardBytes: shardBytes, Beside: beside}); err != nil {
		return nil, err
	}
	defer d.w.Abort()
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := file.write(dir); err != nil {
			return nil, err
		}
	}
	d.report.Files = len(files)
	if err := d.w.Commit(); err != nil {
		return nil, err
	}
	return &d.report, nil
}

type dequantizer struct {
	f        *gqf.File
	opts     DequantizeOptions
	w        *safetensors.Writer
	units    []dequantUnit
	targets  [][]int32 // by tensor: the writer's indices of its names
	absorbed bool
	report   DequantizeReport
}

// dequantUnit is rows of a quantized slice, or bytes of an unquantized tensor, for all the
// tensor's names. It is small, as a large model has millions of them.
type dequantUnit struct {
	payload      int32
	first, count int64
}

// plan lists the tensors to write and cuts the work into units.
func (d *dequantizer) plan() ([]safetensors.TensorSpec, error) {
	d.targets = make([][]int32, d.f.Len())
	specs := make([]safetensors.TensorSpec, 0, d.f.Len())
	for n := range d.f.AllNames() {
		d.absorbed = d.absorbed || n.Absorbed
		if !n.InCheckpoint || n.Absorbed {
			continue
		}
		t := d.f.Tensor(n.Tensor)
		first, ok := t.Payload(0, 0, gqf.KindWeights)
		if !ok {
			return nil, t.Usable()
		}
		spec := safetensors.TensorSpec{Name: n.Name, Dtype: t.Dtype, Shape: t.Shape}
		if first.Header.Layout == packing.LayoutPlain {
			d.report.Kept++
		} else {
			spec.Dtype = d.opts.Dtype
			d.report.Dequantized++
		}
		d.targets[n.Tensor] = append(d.targets[n.Tensor], int32(len(specs)))
		specs = append(specs, spec)
	}
	for i, targets := range d.targets {
		if len(targets) == 0 {
			continue
		}
		if err := d.cut(d.f.Tensor(i)); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

func (d *dequantizer) cut(t gqf.Tensor) error {
	for s := range t.Experts {
		p, ok := t.Payload(0, s, gqf.KindWeights)
		if !ok {
			return fmt.Errorf("tensor %q has no payload for slice %d", t.Name, s)
		}
		total, step := p.Length-packing.HeaderSize, int64(4*unitBytes)
		if p.Header.Layout == packing.LayoutPlain && t.Transposed {
			return fmt.Errorf("tensor %q: plain payloads of a transposed tensor are not supported", t.Name)
		}
		if p.Header.Layout != packing.LayoutPlain {
			total, step = int64(p.Header.Rows), max(1, unitBytes/int64(p.Header.Cols))
			if t.Transposed {
				step = scatterRows
			}
		}
		for first := int64(0); first < total; first += step {
			d.units = append(d.units, dequantUnit{int32(p.Index), first, min(step, total-first)})
		}
	}
	return nil
}

// run starts the workers and waits for them.
func (d *dequantizer) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next, written atomic.Int64
	var wg sync.WaitGroup
	for range cpu.Threads(d.opts.Threads) {
		wg.Go(func() {
			var b dequantBuffers
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(d.units) {
					return
				}
				n, err := d.unit(d.units[i], &b)
				if err != nil {
					stop(err)
					return
				}
				written.Add(n)
				if d.opts.Progress != nil {
					d.opts.Progress(n)
				}
			}
		})
	}
	wg.Wait()
	d.report.Bytes = written.Load()
	return context.Cause(ctx)
}

// dequantBuffers are what a worker reuses.
type dequantBuffers struct {
	tensor  gqf.Tensor
	payload gqf.Payload
	rows    *gqf.Rows // nil: unquantized
	x       []float32
	out     []byte
}

// fit makes b ready for a unit of payload i.
func (b *dequantBuffers) fit(f *gqf.File, i int) error {
	if b.tensor.Name != "" && b.payload.Index == i {
		return nil
	}
	b.payload = f.Payload(i)
	b.tensor = f.Tensor(b.payload.Tensor)
	b.rows = nil
	if b.payload.Header.Layout == packing.LayoutPlain {
		return nil
	}
	var err error
	b.rows, err = b.tensor.Rows(b.payload.Variant, b.payload.Slice)
	return err
}

// unit writes one unit to all its targets and says how many bytes that were.
func (d *dequantizer) unit(u dequantUnit, b *dequantBuffers) (int64, error) {
	if err := b.fit(d.f, int(u.payload)); err != nil {
		return 0, err
	}
	data, err := d.f.Data(b.payload)
	if err != nil {
		return 0, err
	}
	var n int64
	err = d.f.Guard(func() error {
		if b.rows == nil {
			n, err = d.put(b, data[u.first:u.first+u.count], int64(b.payload.Slice)*int64(len(data))+u.first)
			return err
		}
		h := b.payload.Header
		k := int64(h.Cols)
		x := buffer.Grow(&b.x, int(u.count*k))
		for i := range u.count {
			b.rows.Dequantize(x[i*k:(i+1)*k], int(u.first+i))
		}
		if b.tensor.Transposed {
			n, err = d.scatter(b, x, u)
			return err
		}
		row := int64(b.payload.Slice)*int64(h.Rows) + u.first
		n, err = d.put(b, d.encode(b, x), row*k*int64(d.opts.Dtype.Bits()/8))
		return err
	})
	return n, err
}

// scatter writes rows x of outputs u.first.. as columns of the slice.
func (d *dequantizer) scatter(b *dequantBuffers, x []float32, u dequantUnit) (int64, error) {
	rows, k := int64(b.payload.Header.Rows), int64(b.payload.Header.Cols)
	es := int64(d.opts.Dtype.Bits() / 8)
	line := make([]float32, u.count)
	var n int64
	for c := range k {
		for i := range line {
			line[i] = x[int64(i)*k+c]
		}
		at := (int64(b.payload.Slice)*k+c)*rows + u.first
		m, err := d.put(b, d.encode(b, line), at*es)
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// put writes p at offset off of the tensor's data, under each of its names.
func (d *dequantizer) put(b *dequantBuffers, p []byte, off int64) (int64, error) {
	targets := d.targets[b.payload.Tensor]
	for _, t := range targets {
		if err := d.w.WriteAt(int(t), p, off); err != nil {
			return 0, err
		}
	}
	return int64(len(p) * len(targets)), nil
}

// encode gives x as little-endian bytes of the output's dtype.
func (d *dequantizer) encode(b *dequantBuffers, x []float32) []byte {
	if d.opts.Dtype == packing.F32 {
		out := buffer.Grow(&b.out, 4*len(x))
		for i, v := range x {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
		return out
	}
	out := buffer.Grow(&b.out, 2*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint16(out[2*i:], floats.BF16FromF32(v))
	}
	return out
}

// DequantizedBytes is how many bytes Dequantize writes of f's tensors, and tells Progress of.
func DequantizedBytes(f *gqf.File, opts DequantizeOptions) int64 {
	dtype := opts.Dtype
	if dtype == packing.DtypeNone {
		dtype = packing.BF16
	}
	sizes := make([]int64, f.Len())
	for i := range sizes {
		t := f.Tensor(i)
		bits := t.Dtype.Bits()
		if p, ok := t.Payload(0, 0, gqf.KindWeights); ok && p.Header.Layout != packing.LayoutPlain {
			bits = dtype.Bits()
		}
		sizes[i] = t.Elements() * int64(bits) / 8
	}
	var total int64
	for _, n := range f.Names() {
		if n.InCheckpoint && !n.Absorbed {
			total += sizes[n.Tensor]
		}
	}
	return total
}
