package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// forwardHeaders are payloads of every layout and tile: lowbit with every number of bits, group
// size, kind of zero points and dtype of scales that has code of its own, at one of the others.
func forwardHeaders() (list []packing.Header) {
	for _, tile := range packing.LayoutLowbit.Tiles() {
		for _, group := range []uint64{32, 128, 0} {
			list = append(list, packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: tile, Group: group})
		}
	}
	lowbit := list[len(list)-1] // the default tile
	lowbit.Group = 32
	for _, tile := range packing.LayoutLowbit.Tiles() {
		h := lowbit
		h.Tile, h.ZeroKind = tile, packing.ZeroInt8
		list = append(list, h)
	}
	fraction := lowbit
	fraction.ZeroKind = packing.ZeroFraction
	list = append(list, fraction)
	for _, dtype := range []packing.ScaleDtype{packing.ScaleF16, packing.ScaleF32} {
		h := lowbit
		h.ScaleDtype = dtype
		list = append(list, h)
	}
	for _, bits := range []uint8{1, 2, 3, 5, 6, 7, 8} {
		h := lowbit
		h.Bits = bits
		list = append(list, h)
	}
	for _, layout := range []packing.Layout{packing.LayoutQSI4CXP, packing.LayoutQSI8CXP, packing.LayoutQSU2CXP, packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P, packing.LayoutTorchAOLinear} {
		reads := supported[layout]
		for _, tile := range layout.Tiles() {
			h := packing.Header{Layout: layout, Bits: uint8(reads.widths[0]), ScaleDtype: reads.scales[0], ZeroKind: reads.zeros[0], Tile: tile}
			switch layout {
			case packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P:
				h.Group = 32
			case packing.LayoutTorchAOLinear:
				h.Group = 32
				for bits := uint8(1); bits <= 8; bits++ {
					z := h
					z.Bits, z.ZeroKind = bits, packing.ZeroInt8
					list = append(list, z)
				}
				for h.Bits < 8 {
					list = append(list, h)
					h.Bits++
				}
			}
			list = append(list, h)
		}
	}
	return list
}

// forwardRows are the numbers of rows of activations in BenchmarkForward.
var forwardRows = []int{1, 4, 16, 128}

// forwardName is CPU/payload/m; a payload is layout,tile,bits,scales,zero points,group.
func forwardName(feature string, h packing.Header, m int) string {
	return fmt.Sprintf("%s/%s,%s,%d,%s,%s,%d/%d", feature, h.Layout, h.Tile, h.Bits, h.ScaleDtype, h.ZeroKind, h.Group, m)
}

// BenchmarkForwardNames prints the names of BenchmarkForward.
func BenchmarkForwardNames(*testing.B) {
	for _, feature := range Features() {
		for _, h := range forwardHeaders() {
			for _, m := range forwardRows {
				fmt.Printf("BenchmarkForward/%s\n", forwardName(feature, h, m))
			}
		}
	}
}

// BenchmarkForward is BenchmarkForward/CPU/payload/m: whole calls of Forward on one goroutine, 2048
// x 2048. The command tools/kernels counts its instructions.
func BenchmarkForward(b *testing.B) {
	const n = 2048
	for _, feature := range Features() {
		for _, h := range forwardHeaders() {
			for _, m := range forwardRows {
				b.Run(forwardName(feature, h, m), func(b *testing.B) {
					p := benchPayload(b, h, n, n)
					l, err := NewLinear(p.h, p.data, Options{CPU: feature})
					if err != nil {
						b.Fatal(err)
					}
					rng := rand.New(rand.NewPCG(2, 2))
					x, dst := make([]float32, m*n), make([]float32, m*n)
					for i := range x {
						x[i] = float32(rng.NormFloat64())
					}
					w := NewWorkspace(nil)
					if err := l.Forward(w, dst, x, m); err != nil { // makes room
						b.Fatal(err)
					}
					for b.Loop() {
						if err := l.Forward(w, dst, x, m); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
