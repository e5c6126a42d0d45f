package toonnx

import (
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// LayOut makes the graph, finds the places of its tensors, and prepares the files beside them.
func (o *Output) LayOut(pl *plan.Planner) error {
	g := &graph{Graph: &o.model.Graph, c: o.c, names: o.names, items: map[string]plan.Item{}, made: map[string]bool{}, context: context(o.c)}
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
	o.dtype = o.mostBits()
	o.place(g.contents)
	for _, it := range pl.Items {
		e := it.Common()
		if len(o.byItem[e.Index]) == 0 && e.Line.Action != plan.ActionOmit {
			return quantizer.Requestf("%s: tensor %q has no place in the model that config.json describes (model_type %s)", o.root, e.Name(), o.c.Architecture)
		}
	}
	if o.opts.Tile != (packing.Tile{}) {
		n := int64(0)
		for _, c := range o.contents {
			if c.part == packed {
				n += c.size
			}
		}
		pl.Warn("packed weights for the CPU take %d bytes: their codes are in the files twice", n)
	}
	return o.files()
}

// mostBits is the dtype with the bits of most weights.
func (o *Output) mostBits() dtype {
	counts, most := map[int]int64{}, 0
	for it := range o.Quantized() {
		counts[it.Scheme.Bits] += it.Weights()
	}
	for _, bits := range []int{2, 4, 8} {
		if counts[bits] > counts[most] {
			most = bits
		}
	}
	return dtypes[most]
}
