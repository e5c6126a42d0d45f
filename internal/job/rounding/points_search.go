package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// The search of a block of a type with points has the steps of other blocks (blocks_search.go). In
// step 3, the stored scale also becomes the least-squares scale for the block's points if that has
// less error.

func pointsGrid(t gguf.TensorType, bits, group int, m gqf.Mapping, part float32, even bool, steps ...float32) *blockGrid {
	p := newPoints(t, even, steps)
	most := int(p.values[len(p.values)-1])
	return &blockGrid{bits: bits, group: group, qmin: -most, qmax: most, subMin: 1, subMax: 31, mapping: m, points: p, part: part}
}

// pointFit has sums over weights x with codes q: w x x, w x q and w q q.
type pointFit struct{ square, product, curve float32 }

// fit rounds a group with a scale.
func (p *Points) fit(x, w []float32, scale float32) (f pointFit) {
	var codes [UnitMost]int8
	for at := 0; at < len(x); at += p.Width {
		p.Round(codes[:], x[at:], w[at:], scale)
		for i, v := range x[at:][:p.Width] {
			q := float32(codes[i])
			wq := float32(w[at+i] * q)
			f.square += float32(float32(w[at+i]*v) * v)
			f.product += float32(wq * v)
			f.curve += float32(wq * q)
		}
	}
	return f
}

// searchPoints is searchBlock for a type with points.
func (b *blockRows) searchPoints(f *blockFit, x, w []float32) {
	s := b.search
	for g := range b.groups {
		x, w, best := b.groupOf(x, g), b.groupOf(w, g), float32(0)
		s.values[g], s.curves[g] = 0, 0
		for _, step := range b.points.steps {
			one := b.points.fit(x, w, floats.Abs(x[largest(x)])/step)
			if score := float32(one.product*one.product) / one.curve; score > best {
				best, s.values[g], s.curves[g] = score, one.product/one.curve, one.curve
			}
		}
	}
	found := blockFit{d: b.commonOdd(s.values[:b.groups], s.curves[:b.groups])}
	for g := range b.groups {
		found.set(g, b.nearestSub(s.values[g], found.d), 0)
	}
	least, _ := b.refinePoints(f, x, w, 0)
	e, d := b.refinePoints(&found, x, w, 2)
	if e < least {
		least, *f = e, found
	}
	found.d = d
	for g := range b.groups {
		found.set(g, found.sub[g], 0)
	}
	if e, _ := b.refinePoints(&found, x, w, 0); e < least {
		*f = found
	}
}

// refinePoints moves each group to the sub-scale of the least error within reach, and returns the
// error of the block and the least-squares scale for its points.
func (b *blockRows) refinePoints(f *blockFit, x, w []float32, reach int32) (sum, next float32) {
	var product, curve float32
	for g := range b.groups {
		was, best, least, own := f.sub[g], f.sub[g], float32(math.Inf(1)), pointFit{}
		for sub := max(was-reach, int32(b.subMin)); sub <= min(was+reach, int32(b.subMax)); sub += 2 {
			scale := float32(f.d * float32(sub))
			fit := b.points.fit(b.groupOf(x, g), b.groupOf(w, g), scale)
			e := fit.square - 2*float32(scale*fit.product) + float32(float32(scale*scale)*fit.curve)
			if e = max(e, 0); e < least {
				best, least, own = sub, e, fit
			}
		}
		f.set(g, best, 0)
		sum += least
		product += float32(float32(best) * own.product)
		curve += float32(float32(best*best) * own.curve)
	}
	if curve > 0 {
		next, _ = b.storeScale(product / curve)
	}
	return sum, next
}

// commonOdd is commonScale for odd multiples.
func (b *blockRows) commonOdd(values, weights []float32) (d float32) {
	top := values[largest(values)]
	if top == 0 {
		return 0
	}
	best := float32(0)
	const tries = 16
	for i := range tries {
		unit := top / (float32(b.subMax-7) + float32(i)*(10./tries))
		var product, curve float32
		for g, v := range values {
			sub := float32(b.nearestSub(v, unit))
			product += float32(float32(weights[g]*v) * sub)
			curve += float32(float32(weights[g]*sub) * sub)
		}
		if score := float32(product*product) / curve; score > best {
			best, d = score, product/curve
		}
	}
	d, _ = b.storeScale(d)
	return d
}

// pointCodes chooses the codes of a row for the stored scales, see codes.
func (b *blockRows) pointCodes(x, w []float32, acc *vec.ErrorSum) {
	alike := [UnitMost]float32{1, 1, 1, 1, 1, 1, 1, 1}
	for at := 0; at < len(x); at += b.points.Width {
		weights := alike[:]
		if w != nil {
			weights = w[at:]
		}
		scale, codes := b.scales[at/b.group], b.fields.Codes[at:][:b.points.Width]
		b.points.Round(codes, x[at:], weights, scale)
		for i, q := range codes {
			e := float64(x[at+i] - float32(float32(q)*scale))
			acc.Noise[i%len(acc.Noise)] += float64(e * e)
		}
	}
}
