package conversion

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// layOut fixes the place of every byte and completes the plan's lines.
func (pl *planner) layOut() error {
	for _, it := range pl.Plan.items {
		if err := it.measure(); err != nil {
			return err
		}
		pl.Tensors = append(pl.Tensors, it.line)
		if it == pl.untied {
			pl.warn("%q is not the embedding table any more, as rotations turned both and the last norm's gains went into the head alone: stored twice, which costs %d bytes", it.name(), it.line.Bytes)
		}
		if it == pl.broken {
			pl.warn("%q is the embedding table, but rules give the two names different schemes or layouts: stored twice, which costs %d bytes", it.name(), it.line.Bytes)
		}
	}
	pl.warnFallbacks()
	slices.SortStableFunc(pl.Tensors, func(a, b *PlanTensor) int { return compareNatural(a.Name, b.Name) })
	pl.number()
	var err error
	if pl.assets, err = pl.in.assets(pl); err != nil {
		return err
	}
	pl.OutputBytes, err = pl.SizeWith(nil)
	return err
}

// number gives items, names and payloads the indices that newImage adds them by.
func (pl *planner) number() {
	names, payloads := 0, 0
	for i, it := range pl.Plan.items {
		it.index, it.nameIndex = i, names
		names += 1 + len(it.aliases())
		for j := range it.variants {
			v := &it.variants[j]
			v.payload = payloads
			payloads += it.slices * len(v.headers())
		}
	}
}

// SizeWith is the exact size of the file with an account of calibration; nil: none.
func (p *Plan) SizeWith(c *Calibration) (int64, error) {
	im, err := p.newImage(&CalibratedCodes{Calibration: c}, nil)
	if err != nil {
		return 0, err
	}
	return im.Size(), nil
}

// warnFallbacks says which tensors are not in the layout asked for, a line for each reason.
func (pl *planner) warnFallbacks() {
	var reasons []string
	names := map[string][]string{}
	for _, it := range pl.Plan.items {
		if r := it.line.Reason; it.quantize && r != "" {
			if names[r] == nil {
				reasons = append(reasons, r)
			}
			names[r] = append(names[r], it.name())
		}
	}
	for _, r := range reasons {
		list := names[r]
		more := ""
		if len(list) > 1 {
			more = fmt.Sprintf(" and %d more tensors", len(list)-1)
		}
		pl.warn("%q%s: %s", list[0], more, r)
	}
}

// measure sets the line's bytes: of all variants, companions and packed headers.
func (it *item) measure() error {
	for _, v := range it.variants {
		for _, h := range v.headers() {
			size, err := h.DataSize()
			if err != nil {
				return fmt.Errorf("tensor %q: %w", it.name(), err)
			}
			it.line.Bytes += int64(it.slices) * (size + packing.HeaderSize)
		}
	}
	it.line.BitsPerWeight = packing.BitsPerWeight(it.line.Bytes, it.weights())
	return nil
}

// headers are those of one slice's payloads.
func (v variant) headers() []packing.Header {
	list := []packing.Header{v.header()}
	for _, c := range companions(v.header()) {
		list = append(list, c.header)
	}
	return list
}

// newImage makes the directory of the file with everything's offset. hashes are the SHA-256 of the source files, if they
// are wanted and known.
func (p *Plan) newImage(c *CalibratedCodes, hashes []string) (*gqf.Image, error) {
	b := gqf.NewBuilder()
	payloads := 0
	for _, it := range p.items {
		payloads += it.slices * len(it.variants)
	}
	b.Grow(len(p.items), payloads, 0)
	biases := p.biases()
	for i, it := range p.items {
		spec := gqf.TensorSpec{Name: it.name(), Shape: it.src.Shape, Dtype: it.src.Dtype, Role: it.role, Transposed: it.transposed, Experts: it.slices, Bias: biases[i]}
		if it.quantize {
			spec.Mapping = it.scheme.Mapping
		}
		spec.Algorithm = p.in.algorithm(it, c)
		ti := b.AddTensor(spec)
		for i := range it.variants {
			it.addPayloads(b, ti, i)
		}
	}
	for _, a := range p.assets {
		b.AddPacked(a)
	}
	if err := p.in.addOrigin(b, c, hashes); err != nil {
		return nil, err
	}
	return b.Build()
}

// biases gives, for each item, 1 + the index of the item with the layer's bias; 0
// where there is none. A file that is repacked says so itself, if it does.
func (p *Plan) biases() []int {
	byName := make(map[string]int, len(p.items))
	for i, it := range p.items {
		byName[it.name()] = i + 1
	}
	list := make([]int, len(p.items))
	for i, it := range p.items {
		if list[i] = p.in.bias(it); list[i] != 0 {
			continue
		}
		for _, name := range p.in.names(it) {
			if list[i] = byName[biasName(name)]; list[i] != 0 {
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

// addPayloads adds variant i of the item: slice by slice, each with its companions.
func (it *item) addPayloads(b *gqf.Builder, tensor, i int) {
	v := &it.variants[i]
	for s := range it.slices {
		b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, CPU: v.cpu, Header: v.header()})
		for _, c := range companions(v.header()) {
			b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, Kind: c.kind, CPU: v.cpu, Header: c.header})
		}
	}
}

// name is the canonical name in the file.
func (it *item) name() string {
	if it.names != nil && it.names.as != "" {
		return it.names.as
	}
	return it.src.Name
}
