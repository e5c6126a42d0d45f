package conversion

import (
	"fmt"
	"iter"
	"slices"

	"github.com/lowbit-go/gq/packing"
)

// layOut fixes the place of every byte and completes the plan's lines.
func (pl *planner) layOut() error {
	for i, it := range pl.items {
		it.common().index = i
	}
	if err := pl.out.layOut(pl); err != nil {
		return err
	}
	for _, it := range pl.items {
		line := it.common().line
		var err error
		if line.Bytes, err = pl.out.dataBytes(it); err != nil {
			return fmt.Errorf("tensor %q: %w", line.Name, err)
		}
		line.BitsPerWeight = packing.BitsPerWeight(line.Bytes, it.weights())
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
	var err error
	pl.OutputBytes, err = pl.SizeWith(nil, nil)
	return err
}

// SizeWith is the exact size of the file with accounts of calibration and tuning; nil: none.
func (p *Plan) SizeWith(c *Calibration, t *Tuning) (int64, error) {
	return p.sizeWith(&CalibratedCodes{Calibration: c, Tuned: &Tuned{Tuning: t}})
}

func (p *Plan) sizeWith(c *CalibratedCodes) (int64, error) {
	t, err := p.out.target(c, nil)
	if err != nil {
		return 0, err
	}
	return total(t), nil
}

// warnFallbacks says which tensors are not in the layout asked for, a line for each reason.
func (pl *planner) warnFallbacks() {
	var reasons []string
	names := map[string][]string{}
	lines := pl.unfit
	for it := range pl.quantized() {
		lines = append(lines, it.line)
	}
	for _, l := range lines {
		if r := l.Reason; r != "" {
			if names[r] == nil {
				reasons = append(reasons, r)
			}
			names[r] = append(names[r], l.Name)
		}
	}
	for _, r := range reasons {
		list := names[r]
		pl.warn("%q%s: %s", list[0], andMore(len(list)-1), r)
	}
}

// total is the size of a target's files together.
func total(t target) (n int64) {
	for _, size := range t.sizes() {
		n += size
	}
	return n
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
