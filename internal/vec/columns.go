package vec

import "fmt"

// ColumnLanes is the number of sums of ColumnSums.
const ColumnLanes = 32

// ColumnSums multiplies a row by a matrix of ColumnLanes columns: sum[c] is the sum of v[i] *
// e[ColumnLanes*i+c], in order of i from 0 on. Products and sums are rounded to float32 each.
// len(e) is ColumnLanes*len(v). The values must be finite, else which NaN results is undefined.
func ColumnSums(sum *[ColumnLanes]float32, e, v []float32) {
	if len(e) != ColumnLanes*len(v) {
		panic(fmt.Sprintf("vec: %d values in rows of %d for %d factors", len(e), ColumnLanes, len(v)))
	}
	columnSums(sum, e, v)
}

func columnSumsGeneric(sum *[ColumnLanes]float32, e, v []float32) {
	clear(sum[:])
	for i, f := range v {
		for c, x := range e[ColumnLanes*i:][:ColumnLanes] {
			sum[c] += float32(x * f)
		}
	}
}

// ColumnGrids are the grids of ColumnLanes rows: code q of row c stands for (q - Zero[c] + Half) *
// Scale[c] + Offset[c]. Inverse is 1/Scale, and Whole the integer next to Zero.
type ColumnGrids struct {
	Scale, Inverse, Zero, Whole, Offset [ColumnLanes]float32
	Half, Least, Most                   float32 // Least and Most bound the codes; magnitudes are below 2^20
}

// ColumnCodes chooses the codes of a column for targets values + (shifts + sums), rounds them to
// nearest, ties to even, and sets values to values minus the codes' weights, shifts to the targets
// minus these weights, and codes. Every operation is rounded to float32. The values must be finite.
func ColumnCodes(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	columnCodes(g, values, shifts, codes, sums)
}

func columnCodesGeneric(g *ColumnGrids, values, shifts, codes, sums *[ColumnLanes]float32) {
	for c, x := range values {
		zero, whole := g.Zero[c], g.Whole[c]
		to := x + (shifts[c] + sums[c])
		t := float32((to-g.Offset[c])*g.Inverse[c]) - g.Half + (zero - whole)
		t = min(max(t, g.Least-whole), g.Most-whole)
		q := float32(t+roundMagic) - roundMagic + whole
		weight := float32((q-zero+g.Half)*g.Scale[c]) + g.Offset[c]
		codes[c], values[c], shifts[c] = q, x-weight, to-weight
	}
}
