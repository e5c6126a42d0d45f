package gemv

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/packing"
)

// streamShapes are the rows and columns of BenchmarkStream: of long rows and of the short ones of a
// small model, whose panels of about 9 KB at 4 bits are soon at their end.
var streamShapes = [][2]int{{4096, 14336}, {28672, 2048}}

// BenchmarkStream reads packed weights out of DRAM: copies of a matrix in turn, of
// more than 1 GiB together. Between products as many threads only read other copies; any byte comes
// again after half of the memory, 16 times a last-level cache of 32 MiB. Rates belong to the
// fastest copy; share is the kernel's rate divided by the reader's.
func BenchmarkStream(b *testing.B) {
	const total = 1088 << 20
	memory := make([]byte, total)
	rng := rand.New(rand.NewPCG(6, 6))
	for i := 0; i < len(memory); i += 8 {
		binary.LittleEndian.PutUint64(memory[i:], rng.Uint64())
	}
	for _, k := range Kernels() {
		if cpu.Check(k.Feature) != nil {
			continue
		}
		groups := []int{32, 128}
		if k.Layout != packing.LayoutLowbit {
			groups = []int{0}
		}
		for _, group := range groups {
			for _, shape := range streamShapes {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%dx%d/group=%d/threads=%d", k.Name, shape[0], shape[1], group, threads), func(b *testing.B) {
						p := newProduct(b, k, shape[0], shape[1], group)
						p.randomActs(rng)
						benchmarkStream(b, p, memory, threads)
					})
				}
			}
		}
	}
}

func benchmarkStream(b *testing.B, p *product, memory []byte, threads int) {
	h, matrix := p.packer.Header(), len(p.data)
	copies := len(memory) / matrix
	dst := make([]float32, h.Rows)
	calls, parts := make([]Call, threads), make([][2]int, threads) // parts of the matrix, in bytes
	for i := range calls {
		calls[i] = p.args(p.data, p.ordered(), p.sums())
		a := p.kernel.Args(&calls[i])
		first, end := a.Panels*i/threads, a.Panels*(i+1)/threads
		a.Panels, a.Dst = end-first, &dst[first*int(h.Tile.NR)]
		parts[i] = [2]int{first * a.PanelBytes, end * a.PanelBytes}
	}
	product, read := time.Hour, time.Hour
	for b.Loop() {
		for c := range copies {
			weights := memory[c*matrix:]
			product = min(product, inParallel(threads, func(i int) {
				p.kernel.Args(&calls[i]).Data = &weights[parts[i][0]]
				p.run(&calls[i])
			}))
			other := memory[(c+copies/2)%copies*matrix:]
			read = min(read, inParallel(threads, func(i int) {
				part := other[parts[i][0]:parts[i][1]]
				ReadSum(part[:len(part)/256*256])
			}))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(matrix)/float64(product), "GB/s")
	b.ReportMetric(float64(h.Rows*h.Cols)/float64(product), "MAC/ns")
	b.ReportMetric(float64(matrix)/float64(read), "read-GB/s")
	b.ReportMetric(float64(read)/float64(product), "share")
}

// inParallel takes the time of f(0) .. f(threads-1) at once.
func inParallel(threads int, f func(i int)) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range threads {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
	return time.Since(start)
}

func TestReadSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, n := range []int{256, 512, 2816} {
		b := make([]byte, n)
		randomBytes(rng, b)
		b = asmtest.AtPageEnd(t, b)
		if got, want := ReadSum(b), readGeneric(b); got != want {
			t.Errorf("%d bytes: %#x, want %#x", len(b), got, want)
		}
	}
	if got := ReadSum(nil); got != 0 {
		t.Errorf("no bytes: %#x", got)
	}
}
