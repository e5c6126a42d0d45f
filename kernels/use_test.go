package kernels

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/embedding"
	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/packing"
)

// someHeaders are of all ways to finish a product.
func someHeaders() []packing.Header {
	list := []packing.Header{
		{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: 32},
		{Layout: packing.LayoutLowbit, Bits: 3, ScaleDtype: packing.ScaleF16, ZeroKind: packing.ZeroInt8, Tile: packing.Tile{NR: 4, KR: 8, SR: 2}, Group: 48},
		{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, ZeroKind: packing.ZeroFraction, Tile: packing.DefaultTile, Group: 32},
		{Layout: packing.LayoutLowbit, Bits: 2, ScaleDtype: packing.ScaleF32, Grid: packing.GridHalfStep, Tile: packing.DefaultTile},
		{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile},
		{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 4, SR: 1}},
		{Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 4, SR: 1}},
		{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: packing.DefaultTile, Group: 32},
		{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: packing.Tile{NR: 4, KR: 16, SR: 2}, Group: 64},
		{Layout: packing.LayoutTorchAOLinear, Bits: 5, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Group: 64},
		{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: 32},
	}
	for i := range list {
		list[i].Rows, list[i].Cols = 83, 192
		list[i] = list[i].Canonical()
	}
	return list
}

// TestConcurrent runs one operator from several goroutines, with Workspaces that share a Pool and
// with their own. The race detector watches it in CI.
func TestConcurrent(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, h := range someHeaders() {
		p := newPayload(t, rng, h, ordinary)
		var mu sync.Mutex
		logged := map[string]int{}
		l, err := NewLinear(p.h, p.data, Options{Log: func(c Choice) {
			mu.Lock()
			logged[c.Kernel]++
			mu.Unlock()
		}})
		if err != nil {
			t.Fatal(err)
		}
		const most = 9
		x := someRows(rng, most, l.Cols())
		want := expected(t, p, x, most)
		var users sync.WaitGroup
		for i := range 4 {
			users.Go(func() {
				w := NewWorkspace(nil)
				if i%2 == 0 {
					w = NewWorkspace(pool)
				}
				for m := 1; m <= most; m++ {
					dst := make([]float32, m*l.Rows())
					if err := l.Forward(w, dst, x[:m*l.Cols()], m); err != nil {
						t.Error(err)
						return
					}
					for j, v := range dst {
						if v != want[j] && (v == v || want[j] == want[j]) {
							t.Errorf("%v, m %d: output %d differs", p, m, j)
							return
						}
					}
				}
			})
		}
		users.Wait()
		for name, n := range logged {
			if n != 1 {
				t.Errorf("%s was logged %d times", name, n)
			}
		}
		if logged[l.Kernel(1)] != 1 || logged[l.Kernel(most)] != 1 {
			t.Errorf("logged %v, want %s and %s", logged, l.Kernel(1), l.Kernel(most))
		}
	}
}

// TestNoAllocation: once a Workspace has served the largest product, no call allocates.
func TestNoAllocation(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	one, two := NewWorkspace(nil), NewWorkspace(pool)
	for _, h := range someHeaders() {
		p := newPayload(t, rng, h, ordinary)
		x, dst := someRows(rng, 9, int(h.Cols)), make([]float32, 9*h.Rows)
		for _, feature := range Features() {
			for name, l := range variants(t, p, feature) {
				for _, m := range []int{1, 3, 9} {
					for _, w := range []*Workspace{one, two} {
						run := func() {
							if err := l.Forward(w, dst[:m*l.Rows()], x[:m*l.Cols()], m); err != nil {
								t.Error(err)
							}
						}
						if n := testing.AllocsPerRun(2, run); n != 0 { // it calls run once before it counts
							t.Errorf("%v, %s, m %d: %v allocations", p, name, m, n)
						}
					}
				}
			}
		}
	}
}

// TestTruncatedFile shortens a file under its map: whichever goroutine reads the lost part, in Go
// or in assembly, mmap.Guard around Forward says so, and the Pool works on.
func TestTruncatedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to shorten a mapped file")
	}
	pool := NewPool(3)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for i, h := range someHeaders() {
		if testing.Short() && i%3 != 0 {
			continue
		}
		h.Rows, h.Cols = 100, 768
		p := newPayload(t, rng, h, ordinary)
		x, dst := someRows(rng, 9, int(h.Cols)), make([]float32, 9*h.Rows)
		for _, feature := range Features() {
			for name, l := range variants(t, p, feature) {
				if name != "chosen" && name != l.Kernel(1) {
					continue
				}
				path := filepath.Join(t.TempDir(), "payload")
				if err := os.WriteFile(path, p.data, 0o644); err != nil {
					t.Fatal(err)
				}
				f, err := mmap.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				l.data = f.Bytes()
				w := NewWorkspace(pool)
				if i%2 == 0 {
					w = NewWorkspace(nil)
				}
				m := 1 + i%2*8
				run := func() error {
					return mmap.Guard(func() error { return l.Forward(w, dst[:m*l.Rows()], x[:m*l.Cols()], m) })
				}
				if err := run(); err != nil {
					t.Fatalf("%v, %s: %v", p, name, err)
				}
				if err := os.Truncate(path, int64(len(p.data)/2)); err != nil {
					t.Fatal(err)
				}
				var fault *mmap.FaultError
				if err := run(); !errors.As(err, &fault) || fault.Name != path {
					t.Errorf("%v, %s: error %v, want a FaultError", p, name, err)
				}
				l.data = p.data
				if err := run(); err != nil {
					t.Errorf("%v, %s: %v after the fault", p, name, err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestEmbeddingAgrees looks up the rows of an embedding in the bytes that a linear operator
// multiplies with. If a row of activations is 127 in one column and 0 elsewhere, its codes are
// exact, and an output is 127 times a weight.
func TestEmbeddingAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, h := range someHeaders() {
		p := newPayload(t, rng, h, ordinary)
		table, err := embedding.New(h, embedding.Parts{Data: p.data})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLinear(h, p.data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWorkspace(nil)
		x, dst, row := make([]float32, l.Cols()), make([]float32, l.Rows()), make([]float32, l.Cols())
		for _, k := range []int{0, 47, 191} {
			clear(x)
			x[k] = 127
			if err := l.Forward(w, dst, x, 1); err != nil {
				t.Fatal(err)
			}
			for r := range dst {
				if err := table.Lookup(row, r); err != nil {
					t.Fatal(err)
				}
				// The zero point of the activations is -128; the row's sum makes good for it, rounded.
				if got, want := float64(dst[r]/127), float64(row[k]); got < want-1e-3 || got > want+1e-3 {
					t.Fatalf("%v: weight of row %d, column %d is %v by the operator, %v by the table", p, r, k, got, want)
				}
			}
		}
	}
}

func ExampleLinear() {
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 1, Cols: 2}
	packer, err := packing.NewLowbit(h)
	if err != nil {
		fmt.Println(err)
		return
	}
	panel := packer.NewPanel()
	panel.Rows = 1
	copy(panel.Codes, []int8{-3, 4})
	panel.Scales[0] = 0.5
	data := make([]byte, packer.PanelBytes())
	packer.PackPanel(data, panel)

	pool := NewPool(0)
	defer pool.Close()
	w := NewWorkspace(pool)
	l, err := NewLinear(h, data, Options{CPU: "generic"})
	if err != nil {
		fmt.Println(err)
		return
	}
	dst := make([]float32, 1)
	if err := l.Forward(w, dst, []float32{2, 0}, 1); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %.4f\n", l.Kernel(1), dst)
	// Output: gemm_lowbit4_generic [-3.0000]
}
