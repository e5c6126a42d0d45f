package write

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/job/plan"
)

// TestUnitList compares units that are cut when asked for with a list that was cut in advance, and
// joins their results in a shuffled order.
func TestUnitList(t *testing.T) {
	items := []plan.Item{&plan.Unquantized{}, &plan.Unquantized{}, &plan.Unquantized{}}
	for i, it := range items {
		it.Common().Index = i
	}
	var list Units
	var want []Unit
	for i, r := range []struct{ first, total, step int64 }{{0, 10, 3}, {0, 0, 5}, {100, 7, 7}, {50, 1, 9}, {0, 1 << 40, 1 << 38}} {
		u := Unit{Item: items[i%len(items)], Slice: i, First: r.first}
		list.Cut(u, r.total, r.step)
		for at := int64(0); at < r.total; at += r.step {
			u.First, u.Count = r.first+at, min(r.step, r.total-at)
			want = append(want, u)
		}
	}
	if list.N != len(want) {
		t.Fatalf("%d units, want %d", list.N, len(want))
	}
	for i, u := range want {
		if got := list.At(i); got != u {
			t.Errorf("unit %d is %+v, want %+v", i, got, u)
		}
	}
	p := &Job{Plan: &plan.Plan{Items: items}}
	inOrder, shuffled := NewTally(p, &list, 0), NewTally(p, &list, 0)
	result := func(i int) Result {
		return Result{Crc: uint32(i), Noise: math.Pow(0.1, float64(i)), Signal: 1}
	}
	for i := range list.N {
		inOrder.Add(i, result(i))
		shuffled.Add((i*7+3)%list.N, result((i*7+3)%list.N))
	}
	for i := range items {
		if inOrder.Items[i] != shuffled.Items[i] {
			t.Errorf("item %d: %+v in order, %+v shuffled", i, inOrder.Items[i], shuffled.Items[i])
		}
	}
	if len(shuffled.Early) != 0 || shuffled.Next != list.N {
		t.Errorf("%d results are left, %d units joined", len(shuffled.Early), shuffled.Next)
	}
}
