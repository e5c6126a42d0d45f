package rounding

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
)

// The mappings of types that only .gguf files have, besides gqf.MappingKQuant.
const (
	MappingNonlinear  gqf.Mapping = 7  // IQ4_NL
	MappingNonlinearK gqf.Mapping = 8  // IQ4_XS
	MappingTernary    gqf.Mapping = 9  // TQ1_0 and TQ2_0
	MappingMXFP4      gqf.Mapping = 10 // MXFP4
	MappingLattice    gqf.Mapping = 11 // IQ2_S and IQ3_S
	MappingLatticeXS  gqf.Mapping = 12 // IQ2_XS
	MappingLatticeXXS gqf.Mapping = 13 // IQ2_XXS and IQ3_XXS
)

var (
	iq4NL  = typeNamed("IQ4_NL")
	iq4XS  = typeNamed("IQ4_XS")
	tq1    = typeNamed("TQ1_0")
	tq2    = typeNamed("TQ2_0")
	mxfp4  = typeNamed("MXFP4")
	iq2XXS = typeNamed("IQ2_XXS")
	iq2XS  = typeNamed("IQ2_XS")
	iq2S   = typeNamed("IQ2_S")
	iq3XXS = typeNamed("IQ3_XXS")
	iq3S   = typeNamed("IQ3_S")
)

// typeNamed is a type that package gguf does not export.
func typeNamed(name string) gguf.TensorType {
	t, ok := gguf.ParseType(name)
	if !ok {
		panic("rounding: no type " + name)
	}
	return t
}

// Table has the codes of a type that are no range of integers: a weight is a code times the scale.
type Table struct {
	// nearest[i] is the code nearest to all numbers from (i-512)/2 to (i-511)/2: the middle between
	// two codes is a multiple of 1/2.
	nearest [1024]int8
	// steps are the numbers that the search of a scale tries for the weight of largest size.
	steps [tableSteps]float32
}

// tableSteps is how many steps are tried: half of vec.SearchLanes leaves .3 % of the squared error
// of normally distributed weights.
const tableSteps = 16

// newTable makes a table. The search tries steps from negative[0] to negative[1] and from
// positive[0] to positive[1], where these are not 0.
func newTable(negative, positive [2]float32, values ...int8) *Table {
	t := new(Table)
	for i := range t.nearest {
		middle := float64(i-512)/2 + .25
		t.nearest[i] = slices.MinFunc(values, func(a, b int8) int {
			if math.Abs(float64(a)-middle) < math.Abs(float64(b)-middle) {
				return -1
			}
			return 1
		})
	}
	steps := t.steps[:]
	if positive[0] == 0 {
		return t
	}
	if negative[0] != 0 {
		spread(steps[:tableSteps/2], negative[0], negative[1])
		steps = steps[tableSteps/2:]
	}
	spread(steps, positive[0], positive[1])
	return t
}

// Code returns the code nearest to a number.
func (t *Table) Code(v float32) int8 {
	return t.bounded(min(max(v, -255), 255))
}

// bounded is Code for numbers from -255 to 255.
func (t *Table) bounded(v float32) int8 { return t.nearest[int32(float32(v*2)+512)&1023] }

// Table returns the codes of a type where they are no range of integers, else nil.
func (s Scheme) Table() *Table {
	if g := blockGrids[s.Type]; g != nil {
		return g.table
	}
	return nil
}

// search is vec.SearchScales with the table's codes, of four candidates at a time. No product of a
// candidate's inverse and a value is beyond the steps.
func (t *Table) search(s *vec.Search, unit float32, x, w []float32) {
	for c := 0; c < tableSteps; c += 4 {
		var inv, a, b [4]float32
		for i := range inv {
			inv[i] = float32(s.Inv[c+i] * unit)
		}
		for i, v := range x {
			w := w[i]
			q0, q1 := float32(t.bounded(float32(v*inv[0]))), float32(t.bounded(float32(v*inv[1])))
			q2, q3 := float32(t.bounded(float32(v*inv[2]))), float32(t.bounded(float32(v*inv[3])))
			p0, p1, p2, p3 := float32(w*q0), float32(w*q1), float32(w*q2), float32(w*q3)
			a[0], b[0] = a[0]+float32(p0*v), b[0]+float32(p0*q0)
			a[1], b[1] = a[1]+float32(p1*v), b[1]+float32(p1*q1)
			a[2], b[2] = a[2]+float32(p2*v), b[2]+float32(p2*q2)
			a[3], b[3] = a[3]+float32(p3*v), b[3]+float32(p3*q3)
		}
		for i, sum := range a {
			score := float32(sum*sum) / b[i]
			if score != score {
				score = 0
			}
			s.Product[c+i], s.Score[c+i] = sum, score
		}
	}
}

// errors is vec.GridErrors with the table's codes, without offsets, for the first n scales.
func (t *Table) errors(f *vec.Grids, n int, x, w []float32) {
	for c, scale := range f.Scale[:n] {
		inv := 1 / scale
		var sum float32
		for i, v := range x {
			e := v - float32(float32(t.Code(float32(v*inv)))*scale)
			sum += float32(float32(w[i]*e) * e)
		}
		f.Error[c] = sum
	}
}

// quantize chooses the codes of a row for scales with their inverses, and adds the squared errors
// to acc.
func (t *Table) quantize(codes []int8, x, scales, inverses []float32, group int, acc *vec.ErrorSum) {
	for g, scale := range scales {
		inv, codes := inverses[g], codes[g*group:][:group]
		for i, v := range x[g*group:][:group] {
			q := t.Code(float32(v * inv))
			codes[i] = q
			e := float64(v - float32(float32(q)*scale))
			acc.Noise[i%len(acc.Noise)] += float64(e * e)
		}
	}
}
