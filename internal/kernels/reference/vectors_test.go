package reference

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/test/vectors"
)

// TestKleidiAI compares the products bit for bit with all runs of KleidiAI's kernels, from float32
// activations and from activations that KleidiAI quantized. In qsu2cxp's kernel for many rows,
// vectors.OtherOrder, 20 of 89 outputs differ, because it rounds in another order than the kernel
// for one row; the test expects the results of the kernel for one row.
func TestKleidiAI(t *testing.T) {
	products := vectors.KleidiAI(t)
	for i := range products {
		p := &products[i]
		o, err := New(p.Header, p.Data)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		dst := make([]float32, len(p.Want))
		o.Multiply(dst, p.X, p.M)
		check(t, p, dst, "from float32")
		o.MultiplyQuantized(dst, activations(p), p.M)
		check(t, p, dst, "from KleidiAI's activations")
	}
	if len(products) != 179 {
		t.Errorf("%d runs, want 179", len(products))
	}
}

// TestTorchAO holds the products to all runs of TorchAO's kernels, from the activations that
// TorchAO quantized.
func TestTorchAO(t *testing.T) {
	products := vectors.TorchAO(t)
	for i := range products {
		p := &products[i]
		o, err := New(p.Header, p.Data)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		dst := make([]float32, len(p.Want))
		o.MultiplyQuantized(dst, activations(p), p.M)
		check(t, p, dst, "from TorchAO's activations")
	}
	if len(products) != 107+16 {
		t.Errorf("%d runs, want 123", len(products))
	}
}

// check clamps the outputs of a run and compares them.
func check(t *testing.T, p *vectors.Product, dst []float32, from string) {
	t.Helper()
	Clamp(dst, p.Min, p.Max)
	for i, got := range dst {
		if math.Float32bits(got) != math.Float32bits(p.Want[i]) {
			t.Errorf("%s %s: output %d is %v, want %v", p.Name, from, i, got, p.Want[i])
			return
		}
	}
}

func activations(p *vectors.Product) *Activations {
	a := &p.Activations
	return &Activations{Q: a.Q, Zero: a.Zero, Rec: a.Rec, BlockScale: a.BlockScale, BlockSum: a.BlockSum}
}
