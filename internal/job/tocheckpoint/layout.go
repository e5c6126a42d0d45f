package tocheckpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/quantizer"
)

// LayOut lists the tensors of the files, and prepares the files beside them.
func (o *Output) LayOut(pl *plan.Planner) error {
	o.nameGroups()
	type place struct {
		name string
		it   plan.Item
	}
	var order []place
	for _, it := range pl.Items {
		for _, name := range o.namesOf(it.Common()) {
			order = append(order, place{name, it})
		}
	}
	slices.SortFunc(order, func(a, b place) int { return strings.Compare(a.name, b.name) })
	o.tensors, o.Specs = make([][]stored, len(pl.Items)), make([]safetensors.TensorSpec, 0, len(order))
	for _, p := range order {
		if err := o.add(p.it, p.name); err != nil {
			return err
		}
	}
	if n := len(pl.Unfit); n > 0 && o.opts.Format != "" && !slices.ContainsFunc(o.Items, isQuantized) {
		return quantizer.Requestf("no weight would be quantized: %q%s: %s", pl.Unfit[0].Name, plan.AndMore(n-1), pl.Unfit[0].Reason)
	}
	if o.opts.Format != "" { // others hold unquantized weights, which all programs load
		o.warnOfUse(pl)
	}
	metadata, err := o.files()
	if err != nil {
		return err
	}
	o.Layout, err = safetensors.NewLayout(o.Specs, safetensors.WriteOptions{MaxShardBytes: o.opts.Split, Metadata: metadata})
	return err
}

// nameGroups describes rows that are one group by the group that the other weights have, if it is
// as long: config.json then needs no exception for them. The bytes are the same.
func (o *Output) nameGroups() {
	groups := map[int64]bool{}
	for it := range o.Quantized() {
		groups[it.Stored.Group] = true
	}
	for it := range o.Quantized() {
		if it.Stored.Group != 0 || !groups[it.Cols] {
			continue
		}
		s := it.Stored
		s.Group = it.Cols
		if layout, err := o.opts.Format.NewLayout(it.Name(), it.Src.Shape, s); err == nil {
			own := *it.Form
			own.Stored = s
			it.Form, it.Layout = &own, layout
		}
	}
}

func isQuantized(it plan.Item) bool { _, ok := it.(*plan.Quantized); return ok }

// warnOfUse names properties that the usual programs do not expect.
func (o *Output) warnOfUse(pl *plan.Planner) {
	var first *plan.Quantized
	n := 0
	for it := range o.Quantized() {
		if it.Role == gqf.RoleHead && !o.opts.Format.QuantizesHead() {
			pl.Warn("%q is quantized: vLLM and Transformers expect an unquantized lm_head in %s, and may not load it", it.Name(), o.opts.Format)
		}
		if !o.opts.Format.Served(it.Stored.Bits, it.Stored.Group) {
			if n++; first == nil {
				first = it
			}
		}
	}
	weights, _ := o.modelWeights()
	if o.opts.Format.MergesLayers() {
		if uneven := hfquant.UnevenLayers(weights); len(uneven) > 0 {
			pl.Warn("%q%s: vLLM merges this weight with others, which have another scheme, and cannot load the model: give q, k and v, and gate and up, the same rules", uneven[0], plan.AndMore(len(uneven)-1))
		}
	}
	var odd []string
	if o.opts.Format == hfquant.GPTQ {
		odd = hfquant.OddKernels(weights)
	}
	switch {
	case len(odd) > 0: // weights without kernels are among them
		pl.Warn("%q%s: vLLM multiplies all weights with one kernel, which does not take this scheme, and cannot load the model: use 4 and 8 bits, groups of 32, 64 or 128, or per channel", odd[0], plan.AndMore(len(odd)-1))
	case n > 0:
		pl.Warn("%q%s: vLLM has no kernels for %s in %s (docs/CHECKPOINTS.md); other programs may load it", first.Name(), plan.AndMore(n-1), first.Stored, o.opts.Format)
	}
}

// add adds the parts of an item under one of its names.
func (o *Output) add(it plan.Item, name string) error {
	s := stored{first: len(o.Specs)}
	e := it.Common()
	switch it := it.(type) {
	case *plan.Quantized:
		s.layout = it.Layout
		if name != e.Name() { // the same bytes, with other names of parts
			var err error
			if s.layout, err = o.opts.Format.NewLayout(name, e.Src.Shape, it.Stored); err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
		}
		for _, p := range s.layout.Parts {
			o.Specs = append(o.Specs, safetensors.TensorSpec{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape})
		}
	case *plan.Unquantized:
		o.Specs = append(o.Specs, safetensors.TensorSpec{Name: name, Dtype: cmp.Or(it.As, e.Src.Dtype), Shape: e.Src.Shape})
	}
	o.tensors[e.Index] = append(o.tensors[e.Index], s)
	return nil
}
