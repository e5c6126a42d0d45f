package lattice

import (
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// TestKeptByBlocks: a type of blocks keeps a lattice if it holds every weight of the rows.
func TestKeptByBlocks(t *testing.T) {
	random := detmath.Source(1)
	ternary := make([]float32, 512)
	for i := range ternary {
		ternary[i] = float32(int(random.Next()%3)-1) * 0x1p-6
	}
	other := append([]float32{0x1p-7}, ternary[1:]...)
	for _, c := range []struct {
		bits    int
		mapping gqf.Mapping
		rows    [][]float32
		want    bool
	}{
		{1, rounding.MappingTernary, [][]float32{ternary}, true},
		{2, rounding.MappingTernary, [][]float32{ternary, ternary}, true},
		{2, rounding.MappingTernary, [][]float32{ternary, other}, false},
		{4, rounding.MappingNonlinearK, [][]float32{ternary}, false},
		{2, rounding.MappingTernary, [][]float32{ternary[:128]}, false}, // no whole block
		{2, rounding.MappingTernary, nil, false},
	} {
		kind, _ := rounding.BlockType(c.bits, c.mapping)
		s, ok := rounding.BlockScheme(kind, gqf.AlgorithmSearch)
		if !ok {
			t.Fatal(c.bits, c.mapping)
		}
		if got := new(Lattice).KeptBy(s, 0, packing.ScaleF32, c.rows); got != c.want {
			t.Errorf("%s, %d rows: %v", kind, len(c.rows), got)
		}
	}
}
