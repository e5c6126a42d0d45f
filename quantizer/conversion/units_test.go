package conversion

import (
	"math"
	"testing"
)

// TestUnitList compares units that are cut when asked for with a list that was cut in advance, and
// joins their results in a shuffled order.
func TestUnitList(t *testing.T) {
	items := []item{&unquantized{}, &unquantized{}, &unquantized{}}
	for i, it := range items {
		it.common().index = i
	}
	var list unitList
	var want []unit
	for i, r := range []struct{ first, total, step int64 }{{0, 10, 3}, {0, 0, 5}, {100, 7, 7}, {50, 1, 9}, {0, 1 << 40, 1 << 38}} {
		u := unit{item: items[i%len(items)], slice: i, first: r.first}
		list.cut(u, r.total, r.step)
		for at := int64(0); at < r.total; at += r.step {
			u.first, u.count = r.first+at, min(r.step, r.total-at)
			want = append(want, u)
		}
	}
	if list.n != len(want) {
		t.Fatalf("%d units, want %d", list.n, len(want))
	}
	for i, u := range want {
		if got := list.at(i); got != u {
			t.Errorf("unit %d is %+v, want %+v", i, got, u)
		}
	}
	p := &Plan{items: items}
	inOrder, shuffled := newTally(p, &list, 0), newTally(p, &list, 0)
	result := func(i int) unitResult { return unitResult{crc: uint32(i), noise: math.Pow(0.1, float64(i)), signal: 1} }
	for i := range list.n {
		inOrder.add(i, result(i))
		shuffled.add((i*7+3)%list.n, result((i*7+3)%list.n))
	}
	for i := range items {
		if inOrder.items[i] != shuffled.items[i] {
			t.Errorf("item %d: %+v in order, %+v shuffled", i, inOrder.items[i], shuffled.items[i])
		}
	}
	if len(shuffled.early) != 0 || shuffled.next != list.n {
		t.Errorf("%d results are left, %d units joined", len(shuffled.early), shuffled.next)
	}
}
