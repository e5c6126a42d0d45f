package kernels

import (
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/act"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/internal/kernels/tile"
)

// rowTile is a tile of rows of activations: the rows of a tile.Step.
type rowTile struct {
	row   int  // first row, within the block of rows at work
	at    int  // first row, counting the padding of the tiles before
	step  int  // index in tile.Set.Steps
	valid int  // number of rows; the step's other rows are padding, all 0
	bad   bool // a row is bad
}

// activations are quantized rows in the kernels' order. Slices have an element per row, including
// padding, unless a comment says otherwise.
type activations struct {
	tiles   []rowTile
	codes   []byte    // tile: [tile][chunk][MR][8], see tile.Step.Quads; gemv: [row] in Kernel.Order
	sums    []int32   // tile kernels: [tile][groups][MR]; gemv: [row][groups]
	negZero []float32 // minus the zero point
	negInt  []int32   // minus the zero point, as an integer
	rec     []float32 // the scale
	scales  []float32 // blocksF16, blocksF32: tile: [tile][groups][MR]; gemv: [row][groups]
	asums   []float32 // likewise, blocksF32
	words   []uint32  // steps with a Unit: tile.Args.Starts or SubsArgs.SumPairs of each tile
	bad     []bool    // the row's outputs are NaN
}

func (a *activations) grow(f *panelLayout, rows, stride int) {
	a.codes = aligned(a.codes, rows*stride)
	buffer.Grow(&a.sums, rows*f.groups)
	buffer.Grow(&a.words, rows*f.words)
	buffer.Grow(&a.negZero, rows)
	buffer.Grow(&a.negInt, rows)
	buffer.Grow(&a.rec, rows)
	buffer.Grow(&a.bad, rows)
	if f.quantize != asymmetric {
		buffer.Grow(&a.scales, 2*rows*f.groups)
		buffer.Grow(&a.asums, 2*rows*f.groups)
	}
}

// numbers is the tile's part of x (a.scales or a.asums) for tile kernels. Each number has room
// twice, as tile.Step.Twice demands.
func (t *rowTile) numbers(x []float32, groups int) []float32 { return x[2*t.at*groups:] }

// set quantizes x as row i: codes to q, of f.stored elements; scales and sums of blocks, if the
// layout has blocks, to scales and asums.
func (a *activations) set(f *panelLayout, i int, q []int8, scales, asums, x []float32) {
	a.negZero[i], a.negInt[i], a.rec[i] = 0, 0, 0
	ok := false
	switch f.quantize {
	case asymmetric:
		var zero int32
		zero, a.rec[i], ok = act.Asymmetric(q, x)
		a.negZero[i], a.negInt[i] = float32(-zero), -zero
	case blocksF16:
		ok = act.BlocksF16(q, scales[:f.blocks], x, f.block)
	case blocksSums:
		ok = act.BlocksSums(q, scales[:f.blocks], asums[:f.blocks], x, f.block)
	case blocksF32:
		ok = act.BlocksF32(q, scales[:f.blocks], asums[:f.blocks], x, f.block)
	}
	a.bad[i] = !ok
}

// setTile quantizes and interleaves the rows of a tile. x is the block of rows, k columns each.
func (a *activations) setTile(l *Linear, w *worker, t *rowTile, x []float32) {
	f, k, groups, step := l.panelLayout, l.cols, l.groups, &l.set.Steps[t.step]
	mr := step.MR
	codes, sums := a.codes[t.at*f.stored:][:mr*f.stored], a.sums[t.at*groups:][:mr*groups]
	t.bad = false
	for i := range mr {
		q := w.q
		if mr == 1 {
			q = int8s(codes)
		}
		if i < t.valid {
			a.set(f, t.at+i, q, w.scales, w.asums, x[(t.row+i)*k:][:k])
			f.spread(w.scales)
			t.bad = t.bad || a.bad[t.at+i]
			if l.sumsUsed {
				act.GroupSums(w.sums, q, f.group)
				l.reader.scaleSums(w.sums)
			}
		} else if i == t.valid {
			clear(q)
			clear(w.sums)
			clear(w.scales)
			clear(w.asums)
		}
		if i >= t.valid {
			a.negZero[t.at+i], a.negInt[t.at+i], a.rec[t.at+i], a.bad[t.at+i] = 0, 0, 0, false
		}
		if mr > 1 {
			interleaveRow(codes, step, i, q)
		}
		switch words := a.words[t.at*f.words:]; {
		case step.Unit == 0 || f.words == 0:
		case f.ggml.Minima:
			pairSums(words[i:], w.sums, mr)
		default:
			starts(words[i:], q, step.Unit, mr, l.reader.zero)
		}
		if l.sumsUsed && step.Unit == 0 {
			scatter(sums, w.sums, i, mr, false)
		}
		if f.quantize != asymmetric {
			scatter(t.numbers(a.scales, groups), w.scales, i, mr, step.Twice)
			scatter(t.numbers(a.asums, groups), w.asums, i, mr, step.Twice)
		}
	}
}

// scatter writes the numbers of row i of mr rows, a number per group, to dst, [groups][mr]; twice
// each if twice is set.
func scatter[T int32 | float32](dst, numbers []T, i, mr int, twice bool) {
	if twice {
		for _, x := range numbers {
			dst[2*i], dst[2*i+1] = x, x
			i += mr
		}
		return
	}
	for _, x := range numbers {
		dst[i] = x
		i += mr
	}
}

// pairSums writes the sums of each two groups to every mr-th element of dst, as two words.
func pairSums(dst []uint32, sums []int32, mr int) {
	for g := 0; g+1 < len(sums); g += 2 {
		dst[g/2*mr] = uint32(uint16(sums[g])) | uint32(sums[g+1])<<16
	}
}

// starts writes tile.Args.Starts of a row for each unit of columns to every mr-th element of dst.
func starts(dst []uint32, q []int8, unit, mr int, offset int32) {
	const low, high = 0x00ff00ff00ff00ff, 0x8080808080808080
	codes := buffer.Bytes(q)
	for at := 0; len(codes) >= unit; at += mr {
		sums := uint64(0) // four words, each of 2 columns of every 8, plus 128 for each activation
		for i := 0; i < unit; i += 8 {
			x := binary.LittleEndian.Uint64(codes[i:]) ^ high
			sums += x&low + x>>8&low
		}
		first, second := int32(uint16(sums))+int32(uint16(sums>>32)), int32(uint16(sums>>16))+int32(sums>>48)
		dst[at] = uint32(uint16(offset*(64*int32(unit)-first))) | uint32(offset*(64*int32(unit)-second))<<16
		codes = codes[unit:]
	}
}

func interleaveRow(codes []byte, step *tile.Step, i int, q []int8) {
	switch {
	case step.Words:
		src, dst := buffer.Bytes(q), codes[2*i:]
		for at, stride := 0, 2*step.MR; len(src) >= 2; at += stride {
			dst[at], dst[at+1] = src[0], src[1]
			src = src[2:]
		}
		return
	case !step.Quads:
		interleave(codes[8*i:], 8*step.MR, q)
		return
	}
	src, dst := buffer.Bytes(q), codes[4*i:]
	for at, stride := 0, 4*step.MR; len(src) >= 4; at += stride {
		binary.LittleEndian.PutUint32(dst[at:], binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

// interleave writes each chunk of 8 columns of q to dst, stride bytes apart.
func interleave(dst []byte, stride int, q []int8) {
	src := buffer.Bytes(q)
	for at := 0; len(src) >= 8; at += stride {
		binary.LittleEndian.PutUint64(dst[at:], binary.LittleEndian.Uint64(src))
		src = src[8:]
	}
}

func (a *activations) setRow(f *panelLayout, w *worker, k *gemv.Kernel, i int, x []float32) {
	q := w.q
	if k.Order == gemv.Row && !permuted(f, k) {
		q = int8s(a.codes[i*f.stored:][:f.stored])
	}
	var scales, asums []float32
	if f.quantize != asymmetric {
		scales, asums = a.scales[i*f.groups:][:f.groups], a.asums[i*f.groups:][:f.groups]
	}
	a.set(f, i, q, scales, asums, x)
	a.arrange(f, k, i, q)
}

func permuted(f *panelLayout, k *gemv.Kernel) bool { return k.Halves && f.group > 32 }

// arrange puts the codes q of row i, with their zero point set, into the order of kernel k and
// computes the sums that k reads. Codes in order of column may already be in place.
func (a *activations) arrange(f *panelLayout, k *gemv.Kernel, i int, q []int8) {
	n := copies(k.Order)
	codes := a.codes[n*i*f.stored:][:n*f.stored]
	switch {
	case permuted(f, k):
		permute(codes, q, f.group, n)
	case k.Order == gemv.Twice:
		interleave(codes, 16, q)
		interleave(codes[8:], 16, q)
	default:
		copy(codes, buffer.Bytes(q))
	}
	if k.SumFactor == 0 {
		return
	}
	sums, zeros := a.sums[i*f.groups:][:f.groups], int32(0)
	if k.CenterSums {
		zeros = int32(f.group) * a.negInt[i]
	}
	act.GroupSums(sums, q, f.group)
	for g := range sums {
		sums[g] = (sums[g] + zeros) * k.SumFactor
	}
}

// permute writes the halves of each group of q to dst in turn, 16 columns each. Every 8 columns are
// written copies times in succession.
func permute(dst []byte, q []int8, group, copies int) {
	src := buffer.Bytes(q)
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

func int8s(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}
