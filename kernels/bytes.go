package kernels

import "github.com/lowbit-go/gq/kernels/internal/floatmm"

// ForwardBytes is the memory that Forward of [Rows] operators of these shapes takes in a Workspace of
// this many threads.
func ForwardBytes(threads int, shapes []Shape) int64 {
	set := defaultFloats()
	input, own := 0, 0
	for _, s := range shapes {
		input = max(input, set.XLen(min(s.M, floatPassRows(set, s.Cols)), s.Cols))
		own = max(own, (set.NR+readRows)*s.Cols)
	}
	return 4 * (int64(input) + int64(threads)*int64(own))
}

// AddBytes is the memory that a Transposed takes for Add and AddGram of large matrices, in a Workspace
// of this many threads.
func AddBytes(threads int) int64 {
	set := defaultFloats()
	return 4 * int64(set.XLen(addRows, addDepth)+threads*set.NR*addDepth)
}

// defaultFloats are the kernels that an operator without Options.CPU runs. It panics where no operator can
// be made: if GQ_CPU names an instruction set that this CPU lacks.
func defaultFloats() *floatmm.Set {
	features, err := Options{}.features()
	if err != nil {
		panic(err)
	}
	return floatmm.Sets.For(features).Code
}
