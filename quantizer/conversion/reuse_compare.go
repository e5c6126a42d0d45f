package conversion

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
)

// sampleStep is the number of blocks of rows from which one is quantized again.
const sampleStep = 128

// Reuse finds the quantized tensors of the plan that an older .gqf file, called name, holds already, so
// that WriteWith copies them. The file that it writes has the bytes that it would have without. f must
// stay open until then.
//
// A tensor is copied if all of this is the same:
//
//   - its scheme, its algorithm and its layouts, from the plan of the checkpoint with the file's recipe
//     and from the file's headers. Codes of gptq and gptq-ft are taken by layers, see OlderLayers; other
//     algorithms with calibration are always run;
//   - its name, shape, dtype and size in the checkpoint, and the size and the SHA-256 of the header of
//     the checkpoint's file with it;
//   - the CRC32C of its bytes in the checkpoint, of its bias and of its block scales.
//
// A .gqf file does not say which version of gq made it. Therefore one block of 8 rows in 128, and at
// least one of each matrix, is quantized again. If one byte of them differs from the file, nothing is
// copied. The file's own checksums are checked too.
//
// begin is called when the bytes of the checkpoint that are read are known; add is told how many were
// read since the last call, and end is called after the last of them.
//
// layers are the calibrated layers that calibration took from the same file; nil: none.
func (p *Plan) Reuse(ctx context.Context, f *gqf.File, name string, layers *OlderLayers, begin func(bytes int64) (add func(n int64), end func())) (*Reuse, error) {
	if _, ok := p.out.(*gqfOutput); !ok {
		return nil, quantizer.Requestf("tensors are copied into a .gqf file, not into %s", p.out.noun())
	}
	r := &Reuse{file: f, items: make([]*oldTensor, len(p.items)), result: ReuseReport{File: name, Layers: layers.report(), Reasons: []ReuseReason{}}}
	old, nothing, err := p.openOld(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	reasons := make([]string, len(p.items))
	if nothing == "" {
		for it := range p.quantized() {
			if layers.has(it) {
				continue
			}
			t, reason := p.candidate(old, it)
			if reasons[it.index] = reason; reason == "" {
				r.items[it.index] = t
			}
		}
		if nothing, err = p.compare(ctx, r, old, reasons, begin); err != nil {
			return nil, err
		}
	}
	for it := range p.quantized() {
		if !layers.has(it) {
			if nothing != "" {
				r.items[it.index], reasons[it.index] = nil, nothing
			}
			if r.items[it.index] == nil {
				r.result.Made++
				continue
			}
		}
		r.result.Tensors++
		r.result.Bytes += it.line.Bytes
	}
	r.result.Reasons = p.reasons(reasons)
	return r, nil
}

// comparison reads the weights of candidates.
type comparison struct {
	*job
	old   *Reuse
	sums  map[string][]uint32    // of units of the checkpoint's tensors, in order
	other atomic.Pointer[string] // the tensor of a sample with other bytes
}

func (p *Plan) newComparison(r *Reuse) *comparison {
	quiet := *p // the comparison has a progress of its own
	quiet.opts.Progress = nil
	c := &comparison{old: r, sums: map[string][]uint32{}}
	c.job = &job{plan: &quiet, calibrated: &CalibratedCodes{}, target: &comparedTarget{of: c}}
	return c
}

// compare drops candidates with other weights from r. nothing says why no tensor can be copied; "": they
// can.
func (p *Plan) compare(ctx context.Context, r *Reuse, old *oldFile, reasons []string, begin func(int64) (func(int64), func())) (nothing string, err error) {
	c := p.newComparison(r)
	if err := c.sumAll(ctx, begin); err != nil {
		return "", err
	}
	for it := range p.quantized() {
		if r.of(it) != nil && !c.sameWeights(old, it) {
			r.items[it.index], reasons[it.index] = nil, reuseBytes
		}
	}
	if err := c.sample(ctx); err != nil {
		return "", err
	}
	if name := c.other.Load(); name != nil {
		return fmt.Sprintf("another version of gq made it: rows of %q are quantized otherwise now", *name), nil
	}
	return "", p.in.unchanged()
}

// candidates are the items that may be copied.
func (c *comparison) candidates() iter.Seq[*quantized] {
	return func(yield func(*quantized) bool) {
		for it := range c.plan.quantized() {
			if c.old.of(it) != nil && !yield(it) {
				return
			}
		}
	}
}

// run does the units.
func (c *comparison) run(ctx context.Context, units *unitList, done func(u unit, r unitResult)) error {
	c.units, c.share, c.done = units, share{0, units.n}, done
	return c.work(ctx)
}

// sumAll sums the bytes of the candidates, and the rest of their payloads.
func (c *comparison) sumAll(ctx context.Context, begin func(int64) (func(int64), func())) error {
	var list []*safetensors.Tensor
	for it := range c.candidates() {
		list = append(list, it.src)
		for _, o := range it.others() {
			list = append(list, o.src)
		}
	}
	return c.sumTensors(ctx, list, begin)
}

// sumTensors sums the bytes of tensors of the checkpoint.
func (c *comparison) sumTensors(ctx context.Context, list []*safetensors.Tensor, begin func(int64) (func(int64), func())) error {
	units, size := &unitList{}, int64(0)
	for _, src := range list {
		size += src.Size
		c.sums[src.Name] = make([]uint32, (src.Size+unitBytes-1)/unitBytes)
		units.cut(unit{item: &unquantized{entry: entry{src: src}}, sum: true}, src.Size, unitBytes)
	}
	progress, end := begin(size)
	defer end()
	return c.run(ctx, units, func(u unit, r unitResult) {
		c.sums[u.item.common().src.Name][u.first/unitBytes] = r.crc
		progress(u.count)
	})
}

// sum is the CRC32C of a tensor of the checkpoint.
func (c *comparison) sum(t *safetensors.Tensor) (crc uint32) {
	left := t.Size
	for _, sum := range c.sums[t.Name] {
		n := min(left, unitBytes)
		crc, left = gqf.CombineCRC32C(crc, sum, n), left-n
	}
	return crc
}

// sameWeights compares the checksums of an item's tensors in the checkpoint with the older file's.
func (c *comparison) sameWeights(old *oldFile, it *quantized) bool {
	t := c.old.of(it)
	if c.sum(it.src) != t.crc {
		return false
	}
	for _, o := range it.others() {
		name, reason := c.plan.sameSource(old, o.src)
		if reason != "" || name.SourceCRC != c.sum(o.src) {
			return false
		}
		if o.scale {
			t.scaleCRC = name.SourceCRC
		}
	}
	return true
}

// sample quantizes one block of rows in sampleStep again, and compares it with the older file.
func (c *comparison) sample(ctx context.Context) error {
	units := &unitList{}
	for it := range c.candidates() {
		blocks := (it.rows + blockRows - 1) / blockRows
		for s := range it.slices {
			for first := int64(0); first < blocks; first += sampleStep {
				// Not always the first block of the step.
				at := first + (first/sampleStep*37+int64(s)*11)%min(sampleStep, blocks-first)
				units.cut(unit{item: it, slice: s, first: at}, 1, 1)
			}
		}
	}
	return c.run(ctx, units, nil)
}

// comparedTarget compares packed bytes with the older file, instead of writing them.
type comparedTarget struct {
	gqfTarget
	of *comparison
}

// copy sums bytes of a tensor.
func (t *comparedTarget) copy(w *worker, it *unquantized, u unit, r *unitResult) error {
	var err error
	r.crc, err = w.sumBytes(it.src, u.first, u.count)
	return err
}

func (t *comparedTarget) sinks(list []sink, it *quantized) ([]sink, error) {
	for i := range it.variants {
		p, err := newLayoutPacking(it, &it.variants[i], nil)
		if err != nil {
			return list, err
		}
		list = append(list, &comparedPacking{p, t.of, i})
	}
	return list, nil
}

// comparedPacking compares the bytes of one variant.
type comparedPacking struct {
	*layoutPacking
	of      *comparison
	variant int
}

func (p *comparedPacking) write(w *worker, u unit) error {
	it := w.item
	spans, err := p.spans(it, u)
	if err != nil {
		return err
	}
	for _, s := range spans {
		data, err := p.of.old.data(p.of.old.of(it), p.variant, u.slice, s)
		if err != nil {
			return err
		}
		same := false
		if err := p.of.old.file.Guard(func() error { same = bytes.Equal(data, p.packed(s)); return nil }); err != nil {
			return err
		}
		if !same {
			if err := p.of.old.check(p.of.old.of(it), p.variant, u.slice, s); err != nil {
				return err
			}
			name := it.name()
			p.of.other.CompareAndSwap(nil, &name)
		}
	}
	return nil
}
