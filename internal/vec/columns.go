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
