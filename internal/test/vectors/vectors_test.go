package vectors

import (
	"math"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing/layouts"
)

// TestKleidiAI counts the runs.
func TestKleidiAI(t *testing.T) {
	products, functions, differ, other := KleidiAI(t), map[string]int{}, 0, 0
	for _, p := range products {
		functions[p.Kernel]++
		if err := p.Header.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if size, err := p.Header.DataSize(); err != nil || int(size) != len(p.Data) {
			t.Errorf("%s: %d bytes of data, the header needs %d (%v)", p.Name, len(p.Data), size, err)
		}
		if _, err := layouts.New(p.Header); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		n := p.M * int(p.Header.Rows)
		if len(p.X) != p.M*int(p.Header.Cols) || len(p.Dst) != n || len(p.Want) != n {
			t.Errorf("%s: %d activations, %d and %d outputs", p.Name, len(p.X), len(p.Dst), len(p.Want))
		}
		if p.Kernel == OtherOrder {
			other += n
		}
		for i := range p.Want {
			if math.Float32bits(p.Want[i]) != math.Float32bits(p.Dst[i]) {
				differ++
			}
		}
	}
	if len(products) != 179 || len(functions) != 35 {
		t.Errorf("%d runs of %d kernels, want 179 of 35", len(products), len(functions))
	}
	if functions[OtherOrder] != 3 || differ != 20 || other != 89 {
		t.Errorf("%d runs of %s, in which %d of %d outputs are not those of its brother; want 3 runs, 20 of 89", functions[OtherOrder], OtherOrder, differ, other)
	}
}

func TestQuantizations(t *testing.T) {
	kinds := map[string]int{}
	for _, q := range Quantizations(t) {
		kinds[q.Kind]++
		if len(q.X) != q.M*q.K || len(q.Results.Q) != q.M*q.Results.Stride {
			t.Errorf("%s: %d activations, %d codes", q.Name, len(q.X), len(q.Results.Q))
		}
	}
	total := 0
	for _, n := range kinds {
		total += n
	}
	if total != 74 || len(kinds) != 5 {
		t.Errorf("runs %v, want 74 of 5 kinds", kinds)
	}
}

func TestTorchAO(t *testing.T) {
	types := map[string]int{}
	for _, p := range TorchAO(t) {
		kind, _, _ := strings.Cut(p.Name, "_")
		types[kind]++
		if _, err := layouts.New(p.Header); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if size, err := p.Header.DataSize(); err != nil || int(size) != len(p.Data) {
			t.Errorf("%s: %d bytes of data, the header needs %d (%v)", p.Name, len(p.Data), size, err)
		}
		if len(p.X) != p.M*int(p.Header.Cols) || len(p.Dst) != p.M*int(p.Header.Rows) {
			t.Errorf("%s: %d activations, %d outputs", p.Name, len(p.X), len(p.Dst))
		}
	}
	if types["type1"] != 107 || types["type3"] != 16 {
		t.Errorf("runs %v, want 107 of type 1 and 16 of type 3", types)
	}
}
