package main

import "testing"

// TestOrder orders files whose uses have one cycle: one arrow runs up, wherever the order begins.
func TestOrder(t *testing.T) {
	g := &graph{files: []string{"pack.go", "plan.go", "rows.go", "write.go"}, uses: make([][][]string, 4)}
	for i := range g.uses {
		g.uses[i] = make([][]string, 4)
	}
	for _, a := range [][2]int{{1, 3}, {1, 0}, {3, 0}, {3, 2}, {2, 0}, {0, 3}} {
		g.uses[a[0]][a[1]] = []string{"name"}
	}
	order := g.order()
	if up, all := g.count(order); up != 1 || all != 6 {
		t.Errorf("%v: %d of %d arrows run up, want 1 of 6", order, up, all)
	}
	if up, _ := g.count([]int{0, 2, 3, 1}); up != 5 {
		t.Errorf("from the bottom %d arrows run up, want 5", up)
	}
}

// TestGraph reads this package and its own declarations of one file.
func TestGraph(t *testing.T) {
	list, err := load([]string{"github.com/lowbit-go/gq/tools/price"})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	g, err := list[0].graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, all := g.count(g.order()); all == 0 {
		t.Errorf("no arrow between %v", g.files)
	}
}
