package conversion

import (
	"fmt"
	"iter"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// layOut fixes the place of every byte and completes the plan's lines.
func (pl *planner) layOut() error {
	for _, it := range pl.items {
		if err := measure(it); err != nil {
			return err
		}
		line := it.common().line
		pl.Tensors = append(pl.Tensors, line)
		if line == pl.untied {
			pl.warn("%q is not the embedding any more, because rotations changed both and the last norm's gains went into the lm_head alone: stored twice, which costs %d bytes", line.Name, line.Bytes)
		}
		if line == pl.broken {
			pl.warn("%q is equal to the embedding, but rules give the two names different schemes or layouts: stored twice, which costs %d bytes", line.Name, line.Bytes)
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
	for i, it := range pl.items {
		e := it.common()
		e.index, e.nameIndex = i, names
		names += 1 + len(e.aliases)
		switch it := it.(type) {
		case *unquantized:
			it.payload = payloads
			payloads++
		case *quantized:
			for j := range it.variants {
				v := &it.variants[j]
				v.payload = payloads
				payloads += it.slices * len(v.headers())
			}
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
	for it := range pl.quantized() {
		if r := it.line.Reason; r != "" {
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

// measure sets the bytes of an item's line: of all variants, companions and packed headers.
func measure(it item) error {
	slices := int64(1)
	if q, ok := it.(*quantized); ok {
		slices = int64(q.slices)
	}
	line := it.common().line
	for _, h := range it.headers() {
		size, err := h.DataSize()
		if err != nil {
			return fmt.Errorf("tensor %q: %w", line.Name, err)
		}
		line.Bytes += slices * (size + packing.HeaderSize)
	}
	line.BitsPerWeight = packing.BitsPerWeight(line.Bytes, it.weights())
	return nil
}

// quantized are the quantized items.
func (p *Plan) quantized() iter.Seq[*quantized] {
	return func(yield func(*quantized) bool) {
		for _, it := range p.items {
			if q, ok := it.(*quantized); ok && !yield(q) {
				return
			}
		}
	}
}

// newImage makes the directory of the file with everything's offset. hashes are the SHA-256 of the source files, if they
// are wanted and known.
func (p *Plan) newImage(c *CalibratedCodes, hashes []string) (*gqf.Image, error) {
	b := gqf.NewBuilder()
	payloads := len(p.items)
	for it := range p.quantized() {
		payloads += it.slices*len(it.variants) - 1
	}
	b.Grow(len(p.items), payloads, 0)
	biases := p.biases()
	for i, it := range p.items {
		e := it.common()
		it.addTo(b, gqf.TensorSpec{Name: e.name(), Shape: e.src.Shape, Dtype: e.src.Dtype, Role: e.role, Algorithm: p.in.algorithm(it, c), Bias: biases[i]})
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
		byName[it.common().name()] = i + 1
	}
	list := make([]int, len(p.items))
	for i, it := range p.items {
		if list[i] = p.in.bias(it.common()); list[i] != 0 {
			continue
		}
		for _, name := range p.in.names(it.common()) {
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
