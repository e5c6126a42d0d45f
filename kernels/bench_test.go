package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// benchRows and benchCols are the shape of the weights: 8 MB at 4 bits, beyond a second-level
// cache.
const benchRows, benchCols = 4096, 4096

// benchPayload has one random panel, again and again.
func benchPayload(b *testing.B, h packing.Header, rows, cols uint64) *payload {
	h.Rows, h.Cols = rows, cols
	h = h.Canonical()
	small := h
	small.Rows = uint64(h.Tile.NR)
	one := newPayload(b, rand.New(rand.NewPCG(1, 1)), small, ordinary)
	f, err := newPanelLayout(h)
	if err != nil {
		b.Fatal(err)
	}
	p := &payload{h, append([]byte(nil), one.data[:f.prefix]...)}
	for range f.panels {
		p.data = append(p.data, one.data[f.prefix:]...)
	}
	return p
}

// benchOperator reports multiply-accumulates and packed bytes a second. Use -cpu to set the number
// of goroutines.
func benchOperator(b *testing.B, op Operator, m, size int) {
	pool := NewPool(0)
	defer pool.Close()
	w := NewWorkspace(pool)
	rng := rand.New(rand.NewPCG(2, 2))
	x, dst := make([]float32, m*op.Cols()), make([]float32, m*op.Rows())
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := op.Forward(w, dst, x, m); err != nil {
			b.Fatal(err)
		}
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(m)*float64(op.Rows())*float64(op.Cols())/seconds/1e9, "GMAC/s")
	b.ReportMetric(float64(size)/seconds/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLinear is BenchmarkLinear/CPU/layout/bits/group/m.
func BenchmarkLinear(b *testing.B) {
	var headers []packing.Header
	for bits := uint8(1); bits <= 8; bits++ {
		for _, group := range []uint64{32, 128} {
			headers = append(headers, packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: group})
		}
	}
	for _, h := range someHeaders() {
		if h.Layout != packing.LayoutLowbit {
			headers = append(headers, h)
		}
	}
	for _, feature := range Features() {
		for _, h := range headers {
			for _, m := range []int{1, 4, 16, 128} {
				b.Run(fmt.Sprintf("%s/%s/%d/%d/%d", feature, h.Layout, h.Bits, h.Group, m), func(b *testing.B) {
					p := benchPayload(b, h, benchRows, benchCols)
					l, err := NewLinear(p.h, p.data, Options{CPU: feature})
					if err != nil {
						b.Fatal(err)
					}
					benchOperator(b, l, m, len(p.data))
				})
			}
		}
	}
}

// BenchmarkFloat is BenchmarkFloat/CPU/dtype/m.
func BenchmarkFloat(b *testing.B) {
	for _, feature := range Features() {
		for _, d := range []packing.Dtype{packing.F32, packing.BF16} {
			for _, m := range []int{1, 4, 16, 128} {
				b.Run(fmt.Sprintf("%s/%s/%d", feature, d, m), func(b *testing.B) {
					h := packing.PlainHeader(d, benchRows, benchCols)
					data := make([]byte, benchRows*benchCols*d.Bits()/8)
					f, err := NewFloat(h, data, Options{CPU: feature})
					if err != nil {
						b.Fatal(err)
					}
					benchOperator(b, f, m, len(data))
				})
			}
		}
	}
}

// BenchmarkPool measures the overhead of Run.
func BenchmarkPool(b *testing.B) {
	p := NewPool(0)
	defer p.Close()
	f := func(int, int) {}
	b.ReportAllocs()
	for b.Loop() {
		p.Run(p.Threads(), f)
	}
}

// costHeaders are payloads for the costs of cost.go.
func costHeaders() (list []packing.Header) {
	add := func(h packing.Header) {
		tiles := h.Layout.Tiles()
		h.Tile = tiles[len(tiles)-1]
		list = append(list, h)
	}
	for bits := uint8(1); bits <= 8; bits++ {
		add(packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, Group: 32})
	}
	add(packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16})
	for _, layout := range []packing.Layout{packing.LayoutQSI4CXP, packing.LayoutQSI8CXP, packing.LayoutQSU2CXP} {
		add(packing.Header{Layout: layout, Bits: uint8(supported[layout].widths[0]), ScaleDtype: packing.ScaleF32})
	}
	add(packing.Header{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Group: 32})
	add(packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Group: 32})
	for bits := uint8(1); bits <= 8; bits++ {
		add(packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: bits, ScaleDtype: packing.ScaleF32, Group: 32})
	}
	return list
}

// BenchmarkCosts measures the costs of cost.go: picoseconds a weight, with everything in the
// first-level caches. Its names are BenchmarkCosts/CPU/layout/bits/group/ and gemv, unpack or the
// rows of a step. The command tools/kernels makes cost.go's table of them.
func BenchmarkCosts(b *testing.B) {
	list := costHeaders()
	const k, rows = 1024, 16
	for _, feature := range Features() {
		for _, h := range list {
			h.Rows, h.Cols = rows, k
			p := newPayload(b, rand.New(rand.NewPCG(1, 1)), h.Canonical(), ordinary)
			l, err := NewLinear(p.h, p.data, Options{CPU: feature})
			if err != nil {
				b.Fatal(err)
			}
			most := l.set.Steps[0].MR
			w, x, dst := NewWorkspace(nil), make([]float32, most*k), make([]float32, most*rows)
			for i := range x {
				x[i] = float32(i % 17)
			}
			name := fmt.Sprintf("%s/%s/%d/%d/", feature, h.Layout, h.Bits, h.Group)
			run := func(name string, weights int, f func()) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(b.Elapsed().Seconds()*1e12/float64(b.N)/float64(weights), "ps/weight")
					b.ReportMetric(float64(weights), "weights")
					b.ReportMetric(0, "ns/op")
				})
			}
			if c := l.gemv; c != nil {
				w.begin(l, c, dst[:rows], x[:k], 1)
				w.quantize()
				w.product()
				run(name+"gemv", k*rows, func() { w.multiplyPacked(&w.workers[0], 0, l.panels) })
			}
			for i, step := range l.set.Steps {
				w.begin(l, l.gemm, dst[:step.MR*rows], x[:step.MR*k], step.MR)
				w.acts.tiles = append(w.acts.tiles[:0], rowTile{step: i, valid: step.MR})
				w.quantize()
				w.product()
				own := &w.workers[0]
				if i == 0 {
					run(name+"unpack", k*l.set.NR, func() { l.reader.read(&own.panels[0], l.data, 0) })
				}
				run(fmt.Sprint(name, step.MR), k*l.set.NR, func() { l.multiplyTile(own, &w.acts, &w.acts.tiles[0], &own.panels[0], dst, 0) })
			}
		}
	}
}
