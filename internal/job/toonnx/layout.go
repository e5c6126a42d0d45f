package toonnx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
	"github.com/lowbit-go/gq/quantizer"
)

// LayOut makes the graph, finds the places of its tensors, and prepares the other files.
func (o *Output) LayOut(pl *plan.Planner) error {
	g := &graph{Graph: &o.model.Graph, c: o.c, names: o.names, items: map[string]plan.Item{}, made: map[string]bool{}}
	for _, it := range pl.Items {
		for _, name := range it.Common().Names() {
			g.items[name] = it
		}
	}
	if err := g.build(); err != nil {
		return quantizer.Requestf("%s: %w", o.root, err)
	}
	o.model.IR, o.model.Producer, o.model.Opsets = 10, "gq", []onnx.Opset{{Domain: "", Version: 21}, {Domain: onnx.Microsoft, Version: 1}}
	o.model.Graph.Name = o.c.Architecture
	counts := map[int]int64{}
	for it := range o.Quantized() {
		counts[it.Scheme.Bits] += it.Weights()
	}
	o.dtype = dtypes[slices.MaxFunc([]int{0, 2, 4, 8}, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })]
	if err := o.place(pl, g.contents); err != nil {
		return err
	}
	for _, it := range pl.Items {
		e := it.Common()
		if len(o.byItem[e.Index]) == 0 && e.Line.Action != plan.ActionOmit {
			return quantizer.Requestf("%s: tensor %q has no place in the model that config.json describes (model_type %s)", o.root, e.Name(), o.c.Architecture)
		}
		if u, ok := it.(*plan.Unquantized); ok && len(o.byItem[e.Index]) > 0 {
			u.As = packing.F32
		}
	}
	return o.files()
}

// alignment of tensors in files: ONNX Runtime maps a tensor that begins a page of memory. Small
// tensors, which it copies, lie closer.
const alignment, smallAlignment = 4096, 64

// place finds the places of the graph's contents, with packed weights behind their codes.
func (o *Output) place(pl *plan.Planner, list []content) (err error) {
	packedBytes := int64(0)
	o.byItem = make([][]int, len(o.Items))
	for _, c := range list {
		o.addContent(c)
		it, ok := c.item.(*plan.Quantized)
		if !ok || c.part != codes || !o.packs(it.Stored, it.Cols) {
			continue
		}
		// A table that only an embedding looks up has two dimensions.
		c.part, c.tensors = packed, slices.DeleteFunc(slices.Clone(c.tensors), func(i int) bool { return len(o.model.Graph.Initializers[i].Dims) < 3 })
		if len(c.tensors) == 0 {
			continue
		}
		if c.packer, err = o.packer(it); err != nil {
			return err
		}
		c.size = int64(c.packer.Panels() * c.packer.PanelBytes())
		packedBytes += c.size
		o.addContent(c)
	}
	if len(o.data) > mostFiles {
		return quantizer.Requestf("--split makes %d files with weights, and transformers.js reads up to %d: use a larger size", len(o.data), mostFiles)
	}
	if packedBytes > 0 {
		pl.Warn("packed weights for the CPU take %d bytes: their codes are in the files twice", packedBytes)
	}
	o.setPlaces(make([]uint64, len(o.contents)))
	return nil
}

// addContent places a content at the end of the last file. Packed weights lie in the file of their
// codes.
func (o *Output) addContent(c content) {
	align := int64(alignment)
	if c.size < alignment {
		align = smallAlignment
	}
	last := len(o.data) - 1
	if last < 0 || c.part != packed && o.opts.Split > 0 && o.data[last] > 0 && (o.data[last]+align-1)/align*align+c.size > o.opts.Split {
		o.data, last = append(o.data, 0), last+1
	}
	c.file, c.off = last, (o.data[last]+align-1)/align*align
	o.data[last] = c.off + c.size
	if c.item != nil {
		at := c.item.Common().Index
		o.byItem[at] = append(o.byItem[at], len(o.contents))
	}
	o.contents = append(o.contents, c)
}

// setPlaces states where the contents lie, and the hashes of packed weights by the contents' index.
func (o *Output) setPlaces(hashes []uint64) {
	for i, c := range o.contents {
		for _, t := range c.tensors {
			if x := &o.model.Graph.Initializers[t]; c.part == packed {
				x.SetPrepacked(hashes[i], c.off, c.size)
			} else {
				x.SetPlace(o.dataName(c.file), c.off)
			}
		}
	}
}

// packer packs the codes of an item as ONNX Runtime does on a CPU with the tile.
func (o *Output) packer(it *plan.Quantized) (packing.Packer, error) {
	s := rounding.Scheme{Bits: it.Stored.Bits, Group: int(it.Stored.Group), Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
	h, err := quantizer.LayoutRequest{Family: quantizer.FamilyKleidiAI, Tile: o.opts.Tile}.Header(s, it.Rows, it.Cols, false)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", it.Name(), err)
	}
	return layouts.New(h)
}
