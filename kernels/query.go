package kernels

import (
	"errors"
	"slices"

	"github.com/lowbit-go/gq/packing"
)

// Query asks for kinds of packed weights. A nil list asks for every value that fits the others.
type Query struct {
	Layouts []LayoutTile
	Bits    []int    // of a code
	Groups  []uint64 // group sizes; 0 is a scale per row
	// Zeros asks for weights with zero points. Default: without, where a layout has such weights.
	Zeros bool
	// Fractions asks only for weights with fractional zero points. Default: Zeros decides.
	Fractions bool
}

// LayoutTile is a layout and the requested tile. Default (zero tile): the tile for i8mm.
type LayoutTile struct {
	Layout packing.Layout
	Tile   packing.Tile
}

// Floats reports whether q asks for unquantized weights: LayoutPlain, and no width or group.
func (q *Query) Floats() bool {
	return q.AnyTile(packing.LayoutPlain) && q.Bits == nil && q.Groups == nil && !q.Zeros && !q.Fractions
}

// AnyTile reports whether q asks for a layout without a tile.
func (q *Query) AnyTile(l packing.Layout) bool {
	return q.Layouts == nil || slices.Contains(q.Layouts, LayoutTile{Layout: l})
}

// Headers returns a header for each combination of layout, width and group that kernels read, for
// weights of shape(group). usual has the values to combine where q has none. A value of q that fits
// no combination is an error that says why, and so is a layout that no kernel reads. LayoutPlain
// has no bits and groups and is left out.
func (q *Query) Headers(usual Query, shape func(group uint64) (rows, cols uint64)) ([]packing.Header, error) {
	var headers []packing.Header
	layouts, bits, groups := uses[LayoutTile]{}, uses[int]{}, uses[uint64]{}
	for _, l := range or(q.Layouts, usual.Layouts) {
		if l.Layout == packing.LayoutPlain {
			continue
		}
		for _, b := range or(q.Bits, usual.Bits) {
			list := or(q.Groups, usual.Groups)
			if q.Groups == nil && !slices.ContainsFunc(list, func(g uint64) bool { _, err := q.header(l, b, g, shape); return err == nil }) {
				list = []uint64{0} // a layout with a scale per row
			}
			for _, g := range list {
				h, err := q.header(l, b, g, shape)
				if err == nil {
					headers = append(headers, h)
				} else if q.Bits == nil && field(err) == "bits" {
					continue
				}
				layouts.note(l, err)
				bits.note(b, err)
				groups.note(g, err)
			}
		}
	}
	for _, err := range []error{layouts.unused(q.Layouts == nil), bits.unused(q.Bits == nil), groups.unused(q.Groups == nil)} {
		if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
			return nil, errors.New(bad.Msg) // no header exists, so nothing else can be wrong
		} else if err != nil {
			return nil, err
		}
	}
	return headers, nil
}

func or[T any](list, usual []T) []T {
	if list == nil {
		return usual
	}
	return list
}

// header is the header with the first dtype of scales and kind of zero points that the layout has.
func (q *Query) header(l LayoutTile, bits int, group uint64, shape func(group uint64) (rows, cols uint64)) (packing.Header, error) {
	h := packing.Header{Layout: l.Layout, Bits: uint8(bits), Tile: l.Tile, Group: group}
	h.Rows, h.Cols = shape(group)
	if tiles := l.Layout.Tiles(); l.Tile == (packing.Tile{}) && len(tiles) > 0 {
		h.Tile = tiles[len(tiles)-1] // the tile for i8mm, and lowbit's default
	}
	zeros := []packing.ZeroKind{packing.ZeroNone, packing.ZeroF32} // qai4c32p has no other
	switch {
	case q.Fractions:
		zeros = []packing.ZeroKind{packing.ZeroFraction}
	case q.Zeros:
		zeros[0] = packing.ZeroInt8
	}
	var most error
	for _, h.ZeroKind = range zeros {
		for _, h.ScaleDtype = range []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32} {
			h := h.Canonical()
			_, err := KernelFor(h, 1, Options{CPU: "generic"})
			if err == nil {
				return h, nil
			}
			if most == nil || weight(err) > weight(most) {
				most = err
			}
		}
	}
	return packing.Header{}, most
}

// weight ranks errors by how informative they are. Errors about choices of header itself rank last.
func weight(err error) int {
	switch field(err) {
	case "scale dtype":
		return 0
	case "zero kind":
		return 1
	}
	return 2
}

func field(err error) string {
	if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
		return bad.Field
	}
	return ""
}

// uses records the error of each value of a list, in order: nil once a combination has fit.
type uses[T comparable] struct {
	values []T
	errs   []error
}

func (u *uses[T]) note(x T, err error) {
	i := slices.Index(u.values, x)
	switch {
	case i < 0:
		u.values, u.errs = append(u.values, x), append(u.errs, err)
	case u.errs[i] != nil:
		u.errs[i] = err
	}
}

// unused returns the error of the first value that fits no combination. With any, a single fitting
// value suffices.
func (u *uses[T]) unused(any bool) error {
	if any && slices.Contains(u.errs, nil) {
		return nil
	}
	for _, err := range u.errs {
		if err != nil {
			return err
		}
	}
	return nil
}
