package vec

import (
	"testing"
)

func TestErrorSum(t *testing.T) {
	var a, b ErrorSum
	for i := range Lanes {
		a.Noise[i], a.Signal[i] = 1, float64(i)
	}
	b.Noise[3] = 0x1p60
	b.Signal[15] = -5
	b.Add(&a)
	if noise, signal := a.Total(); noise != 16 || signal != 120 {
		t.Errorf("totals %g and %g, want 16 and 120", noise, signal)
	}
	if b.Noise[3] != 0x1p60+1 || b.Signal[15] != 10 {
		t.Errorf("sums after Add: %v", b)
	}
	// The tree shows: the small lanes survive only where they meet before the large one.
	a = ErrorSum{}
	a.Noise[0], a.Noise[8] = 0x1p53, 1
	a.Noise[1], a.Noise[9] = 1, 1
	if noise, _ := a.Total(); noise != 0x1p53+2 {
		t.Errorf("total %g is not summed in the tree's order", noise)
	}
}
