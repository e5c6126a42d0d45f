package quantizer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// DequantizeOptions of a job.
type DequantizeOptions struct {
	// Dtype of what was quantized: packing.BF16 (rounded to nearest, ties to even)
	// or packing.F32 (exact). Kept tensors have the bytes that they had. Default: BF16.
	Dtype packing.Dtype
	// MaxShardBytes bounds a file's data. Default: 5 GB, as Transformers writes.
	MaxShardBytes int64
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

// scatterRows is how many outputs are turned at a time where the checkpoint has a matrix as in x out.
const scatterRows = 512

// Dequantize writes f as a safetensors checkpoint to dir: every tensor under every
// name that the original checkpoint had for it, config.json and the tokenizer's
// files. Where block scales were folded in, config.json loses its
// quantization_config, which would no longer be true.
//
// It refuses a directory that holds a checkpoint. Weights are whole only when
// it returns without an error.
func Dequantize(ctx context.Context, f *gqf.File, dir string, opts DequantizeOptions) (*DequantizeReport, error) {
	if opts.Dtype == packing.DtypeNone {
		opts.Dtype = packing.BF16
	}
	if opts.Dtype != packing.BF16 && opts.Dtype != packing.F32 {
		return nil, fmt.Errorf("dtype %s: use BF16 or F32", opts.Dtype)
	}
	if opts.MaxShardBytes == 0 {
		opts.MaxShardBytes = 5_000_000_000
	}
	if err := refuseCheckpoint(dir); err != nil {
		return nil, err
	}
	d := &dequantizer{f: f, opts: opts, report: DequantizeReport{Output: dir}}
	specs, err := d.plan()
	if err != nil {
		return nil, err
	}
	if d.w, err = safetensors.Create(dir, specs, safetensors.WriteOptions{MaxShardBytes: opts.MaxShardBytes}); err != nil {
		return nil, err
	}
	defer d.w.Abort()
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	if err := d.assets(dir); err != nil {
		return nil, err
	}
	if err := d.w.Commit(); err != nil {
		return nil, err
	}
	return &d.report, nil
}

func refuseCheckpoint(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") || e.Name() == "config.json" {
			return fmt.Errorf("%s holds a checkpoint already (%s): choose an empty directory with -o", dir, e.Name())
		}
	}
	return nil
}

type dequantizer struct {
	f      *gqf.File
	opts   DequantizeOptions
	w      *safetensors.Writer
	units  []dequantUnit
	folded bool
	report DequantizeReport
}

// dequantUnit is rows (of a quantized slice) or bytes (of a kept tensor) for all the tensor's names.
type dequantUnit struct {
	tensor  gqf.Tensor
	payload gqf.Payload
	lb      *packing.Lowbit // nil: kept
	first   int64
	count   int64
	targets []int
}

// plan lists the tensors to write and cuts the work into units.
func (d *dequantizer) plan() ([]safetensors.TensorSpec, error) {
	names := make(map[int][]string)
	for _, n := range d.f.Names() {
		d.folded = d.folded || n.Folded
		if n.InCheckpoint && !n.Folded {
			names[n.Tensor] = append(names[n.Tensor], n.Name)
		}
	}
	var specs []safetensors.TensorSpec
	for i := range d.f.Len() {
		t := d.f.Tensor(i)
		first, ok := t.Payload(0, 0, gqf.KindWeights)
		if !ok {
			return nil, fmt.Errorf("tensor %q has no payload", t.Name)
		}
		dtype := t.Dtype
		quantized := first.Header.Layout != packing.LayoutPlain
		if quantized {
			dtype = d.opts.Dtype
		}
		var targets []int
		for _, name := range names[i] {
			targets = append(targets, len(specs))
			specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: dtype, Shape: t.Shape})
			if quantized {
				d.report.Dequantized++
			} else {
				d.report.Kept++
			}
		}
		if len(targets) == 0 {
			continue
		}
		if err := d.cut(t, quantized, targets); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

func (d *dequantizer) cut(t gqf.Tensor, quantized bool, targets []int) error {
	for s := range t.Experts {
		p, ok := t.Payload(0, s, gqf.KindWeights)
		if !ok {
			return fmt.Errorf("tensor %q has no payload for slice %d", t.Name, s)
		}
		u := dequantUnit{tensor: t, payload: p, targets: targets}
		total, step := p.Length-packing.HeaderSize, int64(4*unitBytes)
		if quantized {
			var err error
			if u.lb, err = packing.NewLowbit(p.Header); err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
			total = int64(p.Header.Rows)
			step = max(1, unitBytes/int64(p.Header.Cols))
			if t.Transposed {
				step = scatterRows
			}
		}
		for u.first = 0; u.first < total; u.first += step {
			u.count = min(step, total-u.first)
			d.units = append(d.units, u)
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
	for range (Options{Threads: d.opts.Threads}).threads() {
		wg.Go(func() {
			var b dequantBuffers
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(d.units) {
					return
				}
				n, err := d.unit(&d.units[i], &b)
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

type dequantBuffers struct {
	x   []float32
	out []byte
}

// unit writes one unit to all its targets and says how many bytes that were.
func (d *dequantizer) unit(u *dequantUnit, b *dequantBuffers) (int64, error) {
	data, err := d.f.Data(u.payload)
	if err != nil {
		return 0, err
	}
	var n int64
	err = d.f.Guard(func() error {
		if u.lb == nil {
			n, err = d.put(u, data[u.first:u.first+u.count], u.first)
			return err
		}
		k := int64(u.payload.Header.Cols)
		x := grow(&b.x, int(u.count*k))
		for i := range u.count {
			u.lb.DequantizeRow(x[i*k:(i+1)*k], data, int(u.first+i))
		}
		if u.tensor.Transposed {
			n, err = d.scatter(u, x, b)
			return err
		}
		es := int64(d.opts.Dtype.Bits() / 8)
		row := int64(u.payload.Slice)*int64(u.payload.Header.Rows) + u.first
		n, err = d.put(u, d.encode(b, x), row*k*es)
		return err
	})
	return n, err
}

// scatter writes rows x of outputs u.first.. as columns of the slice.
func (d *dequantizer) scatter(u *dequantUnit, x []float32, b *dequantBuffers) (int64, error) {
	rows, k := int64(u.payload.Header.Rows), int64(u.payload.Header.Cols)
	es := int64(d.opts.Dtype.Bits() / 8)
	line := make([]float32, u.count)
	var n int64
	for c := range k {
		for i := range line {
			line[i] = x[int64(i)*k+c]
		}
		at := (int64(u.payload.Slice)*k+c)*rows + u.first
		m, err := d.put(u, d.encode(b, line), at*es)
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (d *dequantizer) put(u *dequantUnit, p []byte, off int64) (int64, error) {
	for _, t := range u.targets {
		if err := d.w.WriteAt(t, p, off); err != nil {
			return 0, err
		}
	}
	return int64(len(p) * len(u.targets)), nil
}

// encode gives x as little-endian bytes of the output's dtype.
func (d *dequantizer) encode(b *dequantBuffers, x []float32) []byte {
	if d.opts.Dtype == packing.F32 {
		out := grow(&b.out, 4*len(x))
		for i, v := range x {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
		return out
	}
	out := grow(&b.out, 2*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint16(out[2*i:], floats.BF16FromF32(v))
	}
	return out
}

// assets writes config.json and the tokenizer's files.
func (d *dequantizer) assets(dir string) error {
	for _, a := range d.f.Assets() {
		if a.Kind != gqf.AssetConfig && a.Kind != gqf.AssetFile {
			continue
		}
		data, err := d.f.Asset(a.Name)
		if err != nil {
			return err
		}
		if a.Kind == gqf.AssetConfig && d.folded {
			if data, err = withoutQuantization(data); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(dir, a.Name), data); err != nil {
			return err
		}
		d.report.Files++
	}
	return nil
}

// withoutQuantization removes quantization_config from a config.json.
func withoutQuantization(config []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(config, &m); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	delete(m, "quantization_config")
	return json.MarshalIndent(m, "", "  ")
}

func writeFile(path string, data []byte) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Commit()
}
