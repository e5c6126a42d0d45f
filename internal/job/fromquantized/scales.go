package fromquantized

import (
	"context"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/packing"
)

// scaleFacts are what decides which layouts hold a weight: the range of its scales, and the kind of
// its zero points.
type scaleFacts struct {
	notFinite error // a scale or an offset that is no number; the rest is not known then
	// The scale of the smallest magnitude above 0, the first that is 0, and the first negative one.
	least, zero, negative scalePlace
	zeros                 zeroFacts
	// long tells that a scale has more than 16 significant bits, so that its product with a code or
	// a zero point, of 8 bits, may be rounded.
	long bool
}

// scalePlace is a scale and where it is; row -1: nowhere.
type scalePlace struct {
	row   int64
	group int
	scale float32
}

// zeroFacts is the least that a layout has to hold beside scales.
type zeroFacts uint8

const (
	noZeros zeroFacts = iota // all zero points are 0
	integerZeros
	floatZeros // offsets that are no multiples of the scales
)

func (f *scaleFacts) positive() bool { return f.negative.row < 0 && f.zero.row < 0 }

// unfit is the first scale that a layout of these scales cannot hold, with what to do; nil if it
// holds all of them.
func (f *scaleFacts) unfit(d packing.ScaleDtype, smallest float32, holdsZero bool) error {
	var p scalePlace
	switch {
	case f.zero.row >= 0 && !holdsZero:
		p = f.zero
	case f.least.row >= 0 && floats.Abs(f.least.scale) < smallest:
		p = f.least
	default:
		return nil
	}
	return fmt.Errorf("row %d, group %d has the scale %g, outside the range of %s scales here (%g to %g)", p.row, p.group, p.scale, d, smallest, d.Max())
}

// scanAll reads the scales and zero points of all weights, by index. They are a small part of the
// checkpoint.
func (in *input) scanAll(weights map[string]*weight) ([]*scaleFacts, error) {
	list := in.from.quantized.Weights
	facts := make([]*scaleFacts, len(list))
	err := cpu.Parallel(context.Background(), cpu.Threads(in.Pl.Threads), len(list), func() func(i int) error {
		return func(i int) error {
			err := in.Guard(func() (err error) {
				facts[i], err = scanScales(&list[i])
				return err
			})
			if err != nil {
				err = fmt.Errorf("%s: %w", in.ck.Files()[weights[list[i].Name].file].Name, err)
			}
			return err
		}
	})
	return facts, err
}

func scanScales(w *hfquant.Weight) (*scaleFacts, error) {
	nowhere := scalePlace{row: -1}
	f := &scaleFacts{least: nowhere, zero: nowhere, negative: nowhere}
	var row hfquant.Row
	for n := range w.Shape[0] {
		if err := w.ReadGroups(&row, n); err != nil {
			return nil, err
		}
		for g, s := range row.Scales {
			if !floats.Finite(s) {
				f.notFinite = fmt.Errorf("row %d, group %d has the scale %v: want a finite number", n, g, s)
				return f, nil
			}
			f.addScale(scalePlace{n, g, s})
		}
		for g, z := range row.Offsets {
			if !floats.Finite(z) {
				f.notFinite = fmt.Errorf("row %d, group %d has the offset %v: want a finite number", n, g, z)
				return f, nil
			}
			f.zeros = floatZeros
		}
		for _, z := range row.Zeros {
			if z != 0 {
				f.zeros = max(f.zeros, integerZeros)
			}
		}
	}
	return f, nil
}

func (f *scaleFacts) addScale(p scalePlace) {
	f.long = f.long || math.Float32bits(p.scale)&0xff != 0
	if p.scale < 0 && f.negative.row < 0 {
		f.negative = p
	}
	switch size := floats.Abs(p.scale); {
	case size == 0:
		if f.zero.row < 0 {
			f.zero = p
		}
	case f.least.row < 0 || size < floats.Abs(f.least.scale):
		f.least = p
	}
}
