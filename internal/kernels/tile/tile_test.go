package tile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// eachSet runs f for every instruction set that this CPU has and every width.
func eachSet(t *testing.T, f func(t *testing.T, s Set, bits int)) {
	asmtest.Each(t, Sets, func(t *testing.T, w Widths) {
		for bits := 1; bits <= 8; bits++ {
			t.Run(fmt.Sprint(bits), func(t *testing.T) { f(t, w.Set(bits), bits) })
		}
	})
}

// TestExpectedCPU wants products for the very instruction set that a builder is to have.
func TestExpectedCPU(t *testing.T) {
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		t.Skip("GQ_EXPECT_CPU names no instruction set")
	}
	if got := Sets.For([]string{want}).Feature; got != want {
		t.Errorf("GQ_EXPECT_CPU is %s, there are kernels for %s", want, got)
	}
}

func TestSets(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		if s.Offset != 0 && s.Offset != 1<<(bits-1) || s.NR < 8 || s.NR%8 != 0 {
			t.Errorf("offset %d, %d rows", s.Offset, s.NR)
		}
		for i, step := range s.Steps {
			if bits < 8 && step.Shifted == nil {
				t.Errorf("no shifted product of %d rows", step.MR)
			}
			if i > 0 && step.MR >= s.Steps[i-1].MR || step.MR < 1 {
				t.Errorf("step %d has %d rows of activations", i, step.MR)
			}
		}
		if n := len(s.Steps); n == 0 || s.Steps[n-1].MR != 1 {
			t.Error("no step for one row")
		}
	})
	for _, i := range Sets.All() { // sets of other CPUs too
		for bits := 1; bits <= 8; bits++ {
			if s := i.Code.Set(bits); s.Feature != i.Feature || s.Unpack == nil || s.Zip == nil || s.EpilogueRow == nil {
				t.Errorf("%s, %d bits: %+v", i.Feature, bits, s)
			}
		}
	}
}

// TestKernelsDoNotAllocate holds for the functions that fill adds, too.
func TestKernelsDoNotAllocate(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(6, 6))
		for _, step := range s.Steps {
			p := newProduct(t, rng, s, bits, step, fill{steps: []int32{2, 2}})
			out := make([]int32, 2*step.MR*s.NR)
			lanes := someLanes(s.NR)[0]
			src, dst := make([]byte, 2*16*bits), make([]byte, 4*8*s.NR)
			a := p.args
			a.Out, a.OutStride = unsafe.Pointer(&out[0]), 8*s.NR
			f := make([]float32, s.NR)
			products := []runner{p.runGroup(step), p.runBlocks(step), p.runBlocksQAI4(step), p.runTorchAO(step)}
			if n := testing.AllocsPerRun(5, func() {
				step.Dots(&a)
				s.EpilogueFMA(&f[0], &out[0], 2, &p.scales[0], &p.scales[0], 4)
				s.EpilogueQAI4(&f[0], &out[0], 2, &p.scales[0], &p.scales[0], &p.scales[0], &p.scales[0], 4)
				s.AddSums(&out[0], &p.zeros[0], 1, 2)
				s.EpilogueTorchAO(&f[0], &out[0], 2, &p.scales[0], 1)
				s.EpilogueRow(&f[0], &out[0], &p.zeros[0], 16, 1, &p.scales[0], &p.bias[0], 1)
				for _, run := range products {
					run(a)
				}
				s.Unpack(&dst[0], &src[0], 2, &lanes)
				s.Zip(&dst[0], 2)
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}
	})
}
