package toonnx

import (
	"fmt"
	"path"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
	"github.com/lowbit-go/gq/quantizer"
)

// alignment of tensors in files: ONNX Runtime maps a tensor that begins a page of memory. Small
// tensors, which it copies, lie closer.
const alignment, smallAlignment = 4096, 64

// folder is transformers.js' directory of graphs and weights.
const folder = "onnx"

func (o *Output) modelName() string { return "model" + o.dtype.suffix + ".onnx" }

// dataName is the name of a file with weights, as transformers.js expects it.
func (o *Output) dataName(i int) string {
	if i == 0 {
		return o.modelName() + "_data"
	}
	return fmt.Sprintf("%s_data_%d", o.modelName(), i)
}

// place finds the places of the graph's contents, with packed weights behind their codes.
func (o *Output) place(list []content) {
	o.byItem = make([][]int, len(o.Items))
	for _, c := range list {
		o.addContent(c)
		it, ok := c.item.(*plan.Quantized)
		if !ok || c.part != codes || !o.packs(it.Stored, it.Cols) {
			continue
		}
		// A table that only an embedding looks up has two dimensions.
		c.part, c.tensors = packed, slices.DeleteFunc(slices.Clone(c.tensors), func(i int) bool { return len(o.model.Graph.Initializers[i].Dims) < 3 })
		if len(c.tensors) > 0 {
			h := o.packer(it).Header()
			n, _ := h.DataSize() // of a valid header
			c.size = int64(n)
			o.addContent(c)
		}
	}
	for _, c := range o.contents {
		for _, t := range c.tensors {
			if c.part != packed {
				o.model.Graph.Initializers[t].SetPlace(o.dataName(c.file), c.off)
			}
		}
	}
	o.setHashes(make([]uint64, len(o.contents)))
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

// setHashes states the hashes of packed weights, by the contents' index.
func (o *Output) setHashes(hashes []uint64) {
	for i, c := range o.contents {
		if c.part != packed {
			continue
		}
		for _, t := range c.tensors {
			o.model.Graph.Initializers[t].SetPrepacked(hashes[i], c.off, c.size)
		}
	}
}

// packer packs the codes of an item as ONNX Runtime does on a CPU with the tile.
func (o *Output) packer(it *plan.Quantized) packing.Packer {
	s := rounding.Scheme{Bits: it.Stored.Bits, Group: int(it.Stored.Group), Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
	h, err := quantizer.LayoutRequest{Family: quantizer.FamilyKleidiAI, Tile: o.opts.Tile}.Header(s, it.Rows, it.Cols, false)
	if err != nil {
		panic(err) // packs has checked the scheme
	}
	p, err := layouts.New(h)
	if err != nil {
		panic(err)
	}
	return p
}

// modelPath is the path of the graph in the directory, with slashes.
func (o *Output) modelPath() string { return path.Join(folder, o.modelName()) }
