package floatmm

import (
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
)

// The portable Set. It defines the results; tests compare the assembly with this code.

const genericNR = 8

var generic = Set{
	Feature: cpu.Generic,
	NR:      genericNR,
	Group:   1,
	Tiles:   []int{1},
	f32:     kernels{tiles: []tileKernel{tileGeneric}},
	bf16:    kernels{tiles: []tileKernel{tileBF16Generic}},
}

// tileGeneric is the tileKernel for a single row of x and float32 weights.
func tileGeneric(out *float32, _ int, w *uint32, x *float32, k int, bias *float32, resume int, _ *uint32, _ int) {
	sums, weights := (*[genericNR]float32)(unsafe.Pointer(out)), unsafe.Slice(w, k*genericNR)
	f := begin(sums, resume)
	for j, v := range unsafe.Slice(x, k) {
		for i, bits := range weights[j*genericNR:][:genericNR] {
			f[i] = floats.FMA32(v, math.Float32frombits(bits), f[i])
		}
	}
	end(sums, f, bias)
}

// tileBF16Generic is the tileKernel for a single row of x and BF16 weights.
func tileBF16Generic(out *float32, _ int, w *uint32, x *float32, k int, bias *float32, resume int, _ *uint32, _ int) {
	sums, pairs := (*[genericNR]float32)(unsafe.Pointer(out)), unsafe.Slice(w, k/2*genericNR)
	f := begin(sums, resume)
	for j, v := range unsafe.Slice(x, k) {
		for i, bits := range pairs[j/2*genericNR:][:genericNR] {
			if j%2 == 0 {
				bits <<= 16
			}
			f[i] = floats.FMA32(v, math.Float32frombits(bits&0xffff0000), f[i])
		}
	}
	end(sums, f, bias)
}

func begin(out *[genericNR]float32, resume int) (f [genericNR]float32) {
	if resume != 0 {
		f = *out
	}
	return f
}

func end(out *[genericNR]float32, f [genericNR]float32, bias *float32) {
	if bias != nil {
		for i, b := range unsafe.Slice(bias, genericNR) {
			if f[i] += b; f[i] != f[i] {
				f[i] = math.Float32frombits(nanBits)
			}
		}
	}
	*out = f
}
