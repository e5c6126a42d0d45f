package floatmm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// Set holds the kernels of an instruction set. Sets are immutable and may be shared.
type Set struct {
	Feature string // generic, neon, avx2, avx512vnni
	NR      int    // rows of a panel
	Group   int    // panels that a product of a single row takes at a time
	Tiles   []int  // rows of x that a kernel takes at a time, largest first; the last is 1

	f32, bf16 kernels

	// transpose copies 8 rows of n words, stride bytes apart, to 8 columns: word j of row i to
	// dst[j*NR + i]. n is a positive multiple of 8. transpose is nil in the portable Set.
	transpose func(dst *uint32, src *byte, stride, n int)
}

// kernels are the products with weights of a type. A kernel does not retain its arguments.
type kernels struct {
	tiles []tileKernel // by Set.Tiles
	group groupKernel  // nil in the portable Set with Group 1
}

// tileKernel adds k columns to mr x NR sums, k a positive multiple of 4. The sums start at 0, or at
// the values in out if resume is not 0. If bias is nil, the sums are written unchanged; else the NR
// biases are added and any NaN is written as 0x7fc00000. Row m of out is m*stride bytes from out.
// For every 4 columns, the kernel prefetches half as many bytes as the columns take from ahead,
// which then moves by step bytes.
type tileKernel func(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// groupKernel computes the Group * NR outputs of a row of x and of Group panels, like a tileKernel
// with a bias. The panels are contiguous, panel bytes each.
type groupKernel func(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

// nanBits are the bits of every NaN in outputs.
const nanBits = 0x7fc00000

const blockRows = 8

// Sets are the kernels of each instruction set. Integer dot products are of no use here.
var Sets = cpu.NewFamily("floatmm", &generic)

// Name is the name of the kernel for tiles of mr rows of x, such as "bf16_6x16_avx2". The name for
// a single row counts the panels that the kernel takes at a time.
func (s *Set) Name(bf16 bool, mr int) string {
	kind, width := "f32", s.NR
	if bf16 {
		kind = "bf16"
	}
	if mr == 1 {
		width *= s.Group
	}
	return fmt.Sprintf("%s_%dx%d_%s", kind, mr, width, s.Feature)
}

// Scratch is a goroutine's memory for Fill, Mul and MulRows. The zero value is ready. A Scratch
// grows on first use and is not safe for concurrent use.
type Scratch struct {
	rows  []float32 // [blockRows][cols]
	panel []uint32
	tile  []float32 // [largest tile][NR], for panels with padding rows; of BF16: [m][NR]
	bias  []float32 // [NR]
}

type Weights struct {
	set   *Set
	dtype packing.Dtype
	rows  int
	cols  int
	words []uint32  // the panels; 64-byte aligned
	bias  []float32 // [Panels*NR]
}

// New makes room for rows x cols weights of dtype F32, BF16 or F16, both counts positive. F16 takes
// the room of F32. bias has rows elements or is nil, and is copied. Fill writes the weights.
func (s *Set) New(dtype packing.Dtype, rows, cols int, bias []float32) *Weights {
	switch {
	case rows <= 0 || cols <= 0:
		panic(fmt.Sprintf("floatmm: %d x %d weights", rows, cols))
	case bias != nil && len(bias) != rows:
		panic(fmt.Sprintf("floatmm: %d biases for %d rows", len(bias), rows))
	case dtype != packing.F32 && dtype != packing.BF16 && dtype != packing.F16:
		panic(fmt.Sprintf("floatmm: weights of type %s", dtype))
	}
	w := &Weights{set: s, dtype: dtype, rows: rows, cols: cols}
	w.words = aligned(w.Panels() * w.panelWords())
	w.bias = make([]float32, w.Panels()*s.NR)
	copy(w.bias, bias)
	return w
}

func (w *Weights) Set() *Set { return w.set }

func (w *Weights) Panels() int { return panels(w.rows, w.set.NR) }

func (w *Weights) BF16() bool { return w.dtype == packing.BF16 }

func (w *Weights) Bytes() int { return 4 * len(w.words) }

func (w *Weights) panelWords() int {
	if w.BF16() {
		return filled(w.cols) / 2 * w.set.NR
	}
	return filled(w.cols) * w.set.NR
}

func (w *Weights) kernels() *kernels {
	if w.BF16() {
		return &w.set.bf16
	}
	return &w.set.f32
}

// Source is a matrix of weights that are read on demand.
type Source struct {
	Rows, Cols int
	// Read fills dst, of Cols elements, with a row. MulRows calls Read once per row and product, from
	// several goroutines. Read does not retain dst.
	Read func(dst []float32, row int)
	// the rows as little-endian BF16, may be mapped: MulRows then calls no Read
	BF16 []byte
	Bias []float32 // Rows elements, or nil
}

func (src *Source) Panels(s *Set) int { return panels(src.Rows, s.NR) }

func panels(rows, nr int) int { return (rows + nr - 1) / nr }

// filled is cols rounded up to the kernels' multiple.
func filled(cols int) int { return (cols + 3) &^ 3 }

// aligned returns n zero words at a multiple of 64 bytes: no vector straddles two cache lines.
func aligned(n int) []uint32 {
	const line = 64 / 4
	s := make([]uint32, n+line)
	skip := int(-uintptr(unsafe.Pointer(&s[0])) / 4 % line)
	return s[skip : skip+n : skip+n]
}

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
