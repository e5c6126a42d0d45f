// Package togqf stores the items of a plan in a .gqf file: it decides their layouts and packs their
// codes.
package togqf

import (
	"cmp"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Output makes a .gqf file: each item's payloads, with the directory, names and assets.
type Output struct {
	*plan.Plan
	from   write.Record
	assets []gqf.PackedAsset // see Record.FileAssets
}

// New returns an output with the record of its input.
func New(from write.Record) *Output                   { return &Output{from: from} }
func (o *Output) Noun() string                        { return "the .gqf file" }
func (o *Output) Paths(path string) ([]string, error) { return []string{path}, nil }
func (o *Output) Home(path string) string             { return filepath.Dir(path) }

// Streams marks that the file can be written to a Sink.
func (o *Output) Streams() {}

func (o *Output) Begin(pl *plan.Planner, _ func() ([]llamacpp.Source, error)) error {
	o.Plan = pl.Plan
	return nil
}

// DataBytes counts all variants, companions and packed headers.
func (o *Output) DataBytes(it plan.Item) (n int64, err error) {
	slices := int64(1)
	if q, ok := it.(*plan.Quantized); ok {
		slices = int64(q.Slices)
	}
	for _, h := range it.Headers() {
		size, err := h.DataSize()
		if err != nil {
			return 0, err
		}
		n += slices * (size + packing.HeaderSize)
	}
	return n, nil
}

// LayOut gives items, names and payloads the indices that newImage adds them by.
func (o *Output) LayOut(pl *plan.Planner) (err error) {
	names, payloads := 0, 0
	for _, it := range pl.Items {
		e := it.Common()
		e.NameIndex = names
		names += 1 + len(e.Aliases)
		switch it := it.(type) {
		case *plan.Unquantized:
			it.Payload = payloads
			payloads++
		case *plan.Quantized:
			for j := range it.Variants {
				v := &it.Variants[j]
				v.Payload = payloads
				payloads += it.Slices * len(v.Headers())
			}
		}
	}
	o.assets, err = o.from.FileAssets()
	return err
}

func (o *Output) CopyUnits(list *write.Units, it *plan.Unquantized) {
	list.Cut(write.Unit{Item: it}, it.Src.Size, write.UnitBytes)
}

func (o *Output) Target(c *plan.Codes, hashes []string, _ []write.ItemResult) (write.Target, error) {
	im, err := o.newImage(c, hashes)
	return &Target{items: o.Items, Image: im}, err
}

// newImage makes the directory of the file with everything's offset. hashes are the SHA-256 of the
// source files, if they are wanted and known.
func (p *Output) newImage(c *plan.Codes, hashes []string) (*gqf.Image, error) {
	b := gqf.NewBuilder()
	payloads := len(p.Items)
	for it := range p.Quantized() {
		payloads += it.Slices*len(it.Variants) - 1
	}
	b.Grow(len(p.Items), payloads, 0)
	biases := p.biases()
	for i, it := range p.Items {
		e := it.Common()
		it.AddTo(b, gqf.TensorSpec{Name: e.Name(), Shape: e.Src.Shape, Dtype: e.Src.Dtype, Role: e.Role, Algorithm: algorithm(it, c), Bias: biases[i]})
	}
	for _, a := range p.assets {
		b.AddPacked(a)
	}
	if err := p.from.AddNames(b, c, hashes); err != nil {
		return nil, err
	}
	return b.Build()
}

// algorithm is the algorithm that chose an item's codes: search where calibration has nothing for
// the item.
func algorithm(it plan.Item, c *plan.Codes) gqf.Algorithm {
	q, ok := it.(*plan.Quantized)
	switch {
	case !ok:
		return gqf.AlgorithmNone
	case q.Scheme.Algorithm.Calibrated() && !c.Complete(q):
		return gqf.AlgorithmSearch
	}
	return q.Line.Algorithm
}

// biases gives, for each item, 1 + the index of the item with the layer's bias; 0
// where there is none. A file that is repacked says so itself, if it does.
func (p *Output) biases() []int {
	byName := map[string]int{} // few: names of all items would take 10 MB of a large model
	for i, it := range p.Items {
		if name := it.Common().Name(); strings.HasSuffix(name, "bias") {
			byName[name] = i + 1
		}
	}
	list := make([]int, len(p.Items))
	for i, it := range p.Items {
		if list[i] = int(it.Common().BiasLink); list[i] != 0 {
			continue
		}
		for _, name := range it.Common().Names() {
			if list[i] = byName[arch.BiasName(name)]; list[i] != 0 {
				break
			}
		}
	}
	for i, b := range list {
		if b != 0 && list[b-1] != 0 {
			list[i] = 0 // a link leads to a tensor without one
		}
	}
	return list
}

// Target is a .gqf file that is written.
type Target struct {
	items  []plan.Item
	Image  *gqf.Image
	stream *gqf.Stream // writes the headers of payloads; nil: Finish writes them
}

func (t *Target) Files(path string) []write.File {
	return []write.File{{Path: path, Size: t.Image.Size()}}
}
func (t *Target) Shards() (n int, dir bool) { return 1, false }

func (t *Target) Gaps() iter.Seq2[int64, int64] { return t.Image.Gaps() }

func (t *Target) Stream(w io.WriterAt) io.WriterAt {
	t.stream = t.Image.NewStream(w)
	return t.stream
}

func (t *Target) Sinks(list []write.RowSink, it *plan.Quantized) ([]write.RowSink, error) {
	for i := range it.Variants {
		p, err := newLayoutPacking(it, &it.Variants[i], t.Image)
		if err != nil {
			return list, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (t *Target) Copier() func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	var buf []byte
	return func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
		b, crc, err := w.Bytes(&it.Entry, u.First, u.Count, &buf)
		if err != nil {
			return err
		}
		r.Crc = crc
		off := t.Image.PayloadOffset(it.Payload) + packing.HeaderSize + u.First
		t.Image.AddData(off, b)
		return w.Write(0, b, off)
	}
}

// Finish records the checksums of the sources, and writes the headers of the payloads and the
// directory.
func (t *Target) Finish(files []io.WriterAt, _ *plan.Codes, found []write.ItemResult) error {
	if found != nil {
		write.EachSum(t.items, found, func(at int, _ string, crc uint32) { t.Image.SetSourceCRC(at, crc) })
	}
	headers := func() error { return t.Image.WritePayloadHeaders(files[0]) }
	if t.stream != nil {
		headers = t.stream.Finish
	}
	if err := headers(); err != nil {
		return err
	}
	return t.Image.WriteFront(files[0])
}

// Check does nothing: the file's own checksums are computed from the packed bytes.
func (o *Output) Check(write.Target, *write.Written) error { return nil }

// Extents lists the bytes of the file that the units of a share write, in ascending order.
func (t *Target) Extents(units *write.Units, s write.Share) ([]part.Extent, error) {
	var list []part.Extent
	var sinks []write.RowSink
	var of *plan.Quantized // whose sinks these are
	for _, r := range units.Runs {
		lo, hi := max(r.Before, s.First), min(r.End(), s.End)
		if lo >= hi {
			continue
		}
		u := r.Units(lo-r.Before, hi-r.Before)
		switch it := u.Item.(type) {
		case *plan.Unquantized:
			list = append(list, part.Extent{Off: t.Image.PayloadOffset(it.Payload) + packing.HeaderSize + u.First, Len: u.Count})
		case *plan.Quantized:
			if u.Sum {
				continue
			}
			var err error
			if of != it {
				if sinks, err = t.Sinks(sinks[:0], it); err != nil {
					return nil, err
				}
				of = it
			}
			for _, k := range sinks {
				if list, err = k.(*layoutPacking).extents(list, it, u); err != nil {
					return nil, err
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b part.Extent) int { return cmp.Compare(a.Off, b.Off) })
	return list, nil
}

// Store settles the layouts of a quantized tensor, its bias and the kind of its zero points.
func (o *Output) Store(pl *plan.Planner, d *plan.Draft) error {
	if !d.Quantize && d.Src.MXFP4() {
		return quantizer.Requestf("tensor %q is MXFP4 and would stay unquantized (%s), but a .gqf file has no unquantized MXFP4: quantize it, or take a BF16 checkpoint", d.Src.Name, d.Line.Reason)
	}
	if !d.Quantize {
		return nil
	}
	if t := d.Scheme.Type; t != 0 {
		return quantizer.Requestf("tensor %q: %s: a .gqf file holds neither minima nor sub-scales of GGUF's types: write the .gguf file (-o NAME.gguf), or use 1, 2, 4, 5 or 8 bits without a mapping", d.Src.Name, t)
	}
	if err := pl.ChooseLayouts(d, false); err != nil {
		return err
	}
	if d.Bias == nil {
		d.Bias = pl.FindBias(d)
	}
	if d.Bias != nil {
		d.HoldBias()
	}
	switch {
	case d.Scheme.Mapping != gqf.MappingAsymmetric:
	case d.Scheme.FloatZeroPoints() && plan.FloatZerosOnly(d.Variants):
		d.Zeros, d.Line.ZeroPoints = packing.ZeroF32, rounding.FloatZeros
	case !pl.Recipe.IntegerZeros() && d.Scheme.FractionalZeroPoints() && d.HoldFractions():
		d.Zeros, d.Line.ZeroPoints = packing.ZeroFraction, rounding.FractionalZeros
	default:
		d.Zeros, d.Line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	return nil
}

// Take settles the layouts, which hold the codes that the file has.
func (o *Output) Take(pl *plan.Planner, d *plan.Draft, from plan.FileTensor) error {
	if err := pl.ChooseLayouts(d, true); err != nil {
		return err
	}
	// A layout that has no place for the bias left it to a tensor of its own.
	if from.Header.Flags&packing.FlagBias != 0 || plan.BiasIn(from.File, from.Tensor) != nil {
		d.HoldBias()
	}
	return chooseZeros(d, from)
}

// chooseZeros settles how the zero points of a tensor with packed header h go into other layouts.
// Floating-point zero points that are no integers go only into layouts with float32 zero points.
func chooseZeros(it *plan.Draft, from plan.FileTensor) error {
	switch from.Header.ZeroKind {
	case packing.ZeroNone:
		return nil
	case packing.ZeroFraction:
		for i := range it.Variants { // layouts with integer zero points cannot hold fractions
			if h := it.Variants[i].Header(); h.ZeroKind == packing.ZeroInt8 {
				return quantizer.Requestf("%s: tensor %q has fractional zero points, which layout %s cannot hold: repack with --layout lowbit, codes or, with f32 scales, kleidiai, or quantize the checkpoint again", from.Path, from.Name, plan.LayoutName(h))
			}
		}
		it.Line.ZeroPoints, it.Zeros = rounding.FractionalZeros, packing.ZeroFraction
		return nil
	}
	it.Line.ZeroPoints, it.Zeros = rounding.IntegerZeros, packing.ZeroInt8
	if from.Header.ZeroKind != packing.ZeroF32 {
		return nil
	}
	if plan.FloatZerosOnly(it.Variants) {
		it.Zeros = packing.ZeroF32
	}
	for s := range from.Experts {
		if nonInteger, err := from.HasNonIntegerZeros(s); err != nil {
			return err
		} else if !nonInteger {
			continue
		}
		if it.Line.ZeroPoints = rounding.FloatZeros; it.Zeros == packing.ZeroF32 {
			return nil
		}
		if it.Line.Reason != "" {
			return quantizer.Requestf("%s: tensor %q has floating-point zero points, which layout %s cannot hold (%s): repack to the tiles of qai4c32p with --layout kleidiai, or quantize the checkpoint again", from.Path, from.Name, it.Line.Layouts[0], it.Line.Reason)
		}
		return quantizer.Requestf("%s: tensor %q has floating-point zero points, which no layout but qai4c32p can hold: repack with --layout kleidiai alone, or quantize the checkpoint again", from.Path, from.Name)
	}
	return nil
}
