package kernels

import (
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels/internal/act"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
)

// rowTile is a tile of rows of activations that one tile.Step takes together.
type rowTile struct {
	row   int // first row, within the block of rows at work
	at    int // first row, counting the padding of the tiles before
	step  int // index in tile.Set.Steps
	valid int // number of rows; the step's other rows are padding, all 0
}

// activations are quantized rows in the kernels' order. A slice has one element per row, including
// padding, unless its comment says otherwise.
type activations struct {
	tiles   []rowTile
	codes   []byte    // tile kernels: [tile][chunk][MR][8]; gemv: [row] in the kernel's Order
	sums    []int32   // tile kernels: [tile][groups][MR]; gemv: [row][groups]
	negZero []float32 // minus the zero point
	negInt  []int32   // minus the zero point, as an integer
	rec     []float32 // the scale
	scales  []float32 // [row][groups], blocksF16 and blocksF32
	asums   []float32 // [row][groups], blocksF32
	bad     []bool    // the row's outputs are NaN
}

// grow makes room for rows of f, stride bytes each.
func (a *activations) grow(f *panelLayout, rows, stride int) {
	a.codes = aligned(a.codes, rows*stride)
	buffer.Grow(&a.sums, rows*f.groups)
	buffer.Grow(&a.negZero, rows)
	buffer.Grow(&a.negInt, rows)
	buffer.Grow(&a.rec, rows)
	buffer.Grow(&a.bad, rows)
	if f.quantize != asymmetric {
		buffer.Grow(&a.scales, rows*f.groups)
		buffer.Grow(&a.asums, rows*f.groups)
	}
}

// set quantizes x as row i. It writes the codes to q, which has f.stored elements.
func (a *activations) set(f *panelLayout, i int, q []int8, x []float32) {
	a.negZero[i], a.negInt[i], a.rec[i] = 0, 0, 0
	ok, groups := false, f.groups
	switch f.quantize {
	case asymmetric:
		var zero int32
		zero, a.rec[i], ok = act.Asymmetric(q, x)
		a.negZero[i], a.negInt[i] = float32(-zero), -zero
	case blocksF16:
		ok = act.BlocksF16(q, a.scales[i*groups:][:groups], x, f.group)
	case blocksF32:
		ok = act.BlocksF32(q, a.scales[i*groups:][:groups], a.asums[i*groups:][:groups], x, f.group)
	}
	a.bad[i] = !ok
}

// setTile quantizes and interleaves the rows of a tile. x is the block of rows, k columns each.
func (a *activations) setTile(f *panelLayout, w *worker, t *rowTile, mr int, x []float32) {
	k, groups := f.cols, f.groups
	codes, sums := a.codes[t.at*f.stored:][:mr*f.stored], a.sums[t.at*groups:][:mr*groups]
	if mr == 1 {
		q := int8s(codes)
		a.set(f, t.at, q, x[t.row*k:][:k])
		act.GroupSums(sums, q, f.group)
		return
	}
	for i := range mr {
		if i < t.valid {
			a.set(f, t.at+i, w.q, x[(t.row+i)*k:][:k])
			act.GroupSums(w.sums, w.q, f.group)
		} else if i == t.valid {
			clear(w.q)
			clear(w.sums)
		}
		if i >= t.valid {
			a.clearRow(t.at+i, groups)
		}
		interleave(codes[8*i:], 8*mr, w.q)
		for g, s := range w.sums {
			sums[g*mr+i] = s
		}
	}
}

// clearRow sets row i to padding.
func (a *activations) clearRow(i, groups int) {
	a.negZero[i], a.negInt[i], a.rec[i], a.bad[i] = 0, 0, 0, false
	if len(a.scales) >= (i+1)*groups {
		clear(a.scales[i*groups:][:groups])
	}
	if len(a.asums) >= (i+1)*groups {
		clear(a.asums[i*groups:][:groups])
	}
}

// interleave writes each chunk of 8 columns of q to dst, stride bytes apart.
func interleave(dst []byte, stride int, q []int8) {
	src := bytesOf(q)
	for at := 0; len(src) >= 8; at += stride {
		binary.LittleEndian.PutUint64(dst[at:], binary.LittleEndian.Uint64(src))
		src = src[8:]
	}
}

// setRow quantizes x as row i for a gemv kernel.
func (a *activations) setRow(f *panelLayout, w *worker, k *gemv.Kernel, i int, x []float32) {
	groups := f.groups
	stride := f.stored * copies(k.Order)
	codes, q := a.codes[i*stride:][:stride], w.q
	permuted := k.Halves && f.group > 32
	if k.Order == gemv.Row && !permuted {
		q = int8s(codes)
	}
	a.set(f, i, q, x)
	switch {
	case permuted:
		permute(codes, q, f.group, copies(k.Order))
	case k.Order == gemv.Twice:
		interleave(codes, 16, q)
		interleave(codes[8:], 16, q)
	}
	if k.SumFactor != 0 {
		sums := a.sums[i*groups:][:groups]
		act.GroupSums(sums, q, f.group)
		for g := range sums {
			sums[g] *= k.SumFactor
		}
	}
}

// permute writes the halves of each group of q to dst in turn, 16 columns each, every 8 columns so
// many times in succession.
func permute(dst []byte, q []int8, group, copies int) {
	src := bytesOf(q)
	for ; len(src) >= group; src = src[group:] {
		for i := 0; i < group/2; i += 16 {
			for _, from := range [4]int{i, i + 8, group/2 + i, group/2 + i + 8} {
				for range copies {
					dst = dst[copy(dst[:8], src[from:]):]
				}
			}
		}
	}
}

// int8s views bytes as codes.
func int8s(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}

// bytesOf views codes as bytes.
func bytesOf(q []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
}
