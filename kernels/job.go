package kernels

import (
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
)

// stage is the work of a part of a job.
type stage uint8

const (
	stageTiles     stage = iota // quantize a tile of rows
	stagePanels                 // multiply all rows with a batch of panels
	stageGemv                   // multiply the rows with some packed panels, by a gemv kernel
	stagePackFloat              // float operators: pack some rows
	stageFloat                  // float operators: multiply all rows with some panels
)

// job is the work on one block of rows of one Forward.
type job struct {
	stage    stage
	l        *Linear
	c        *candidate
	f        *floatOperator
	dst, x   []float32 // [m][rows], [m][cols]
	m        int
	min, max float32
	clamped  bool
	batch    int // panels of a part
}

// limit sets the range of the outputs.
func (j *job) limit(lo, hi float32) {
	j.min, j.max, j.clamped = lo, hi, !math.IsInf(float64(lo), -1) || !math.IsInf(float64(hi), 1)
}

// runPart runs one part of the job.
func (w *Workspace) runPart(id, part int) {
	j, own := &w.job, &w.workers[id]
	switch j.stage {
	case stageTiles:
		t := &w.acts.tiles[part]
		w.acts.setTile(j.l.panelLayout, own, t, j.l.set.Steps[t.step].MR, j.x)
	case stagePanels:
		w.multiplyPanels(own, part*j.batch, min((part+1)*j.batch, j.l.reader.canonical()))
	case stageGemv:
		w.multiplyPacked(own, part*j.batch, min((part+1)*j.batch, j.l.panelLayout.panels))
	case stagePackFloat:
		w.packFloat(part*j.batch, min((part+1)*j.batch, j.m))
	case stageFloat:
		w.multiplyFloatPanels(own, part*j.batch, min((part+1)*j.batch, j.f.panels))
	}
}

// multiply is Forward for a block of m rows, with the kernel c.
func (w *Workspace) multiply(l *Linear, c *candidate, dst, x []float32, m int) {
	w.begin(l, c, dst, x, m)
	w.quantize()
	w.product()
}

// begin sets up the job and makes room for its activations.
func (w *Workspace) begin(l *Linear, c *candidate, dst, x []float32, m int) {
	j, a := &w.job, &w.acts
	j.l, j.c, j.dst, j.x, j.m = l, c, dst, x, m
	if c.gemv != nil {
		a.grow(l.panelLayout, m, l.stored*copies(c.gemv.Order))
		return
	}
	a.tiles = l.tiling.tiles(a.tiles[:0], m)
	last := a.tiles[len(a.tiles)-1]
	a.grow(l.panelLayout, last.at+l.set.Steps[last.step].MR, l.stored)
}

// copies is the number of copies of a row of activations in order o.
func copies(o gemv.Order) int {
	if o == gemv.Twice {
		return 2
	}
	return 1
}

// quantize quantizes the rows. gemv kernels multiply only few rows: they are not worth waking other
// goroutines.
func (w *Workspace) quantize() {
	j := &w.job
	for i := range w.workers {
		own := &w.workers[i]
		buffer.Grow(&own.q, j.l.stored)
		buffer.Grow(&own.sums, j.l.groups)
	}
	if j.c.gemv == nil {
		w.run(len(w.acts.tiles), stageTiles)
		return
	}
	for i := range j.m {
		w.acts.setRow(j.l.panelLayout, &w.workers[0], j.c.gemv, i, j.x[i*j.l.cols:][:j.l.cols])
	}
}

// product multiplies the quantized rows.
func (w *Workspace) product() {
	j, f := &w.job, w.job.l.panelLayout
	threads := len(w.workers)
	if j.c.gemv != nil {
		// Long runs suit the memory, but each goroutine gets several, because some goroutines are
		// slower. With more than one row, a run stays in the cache until the last row.
		j.batch = max(1, f.panels/(threads*gemvParts))
		if j.m > 1 {
			j.batch = max(1, min(j.batch, packedBatch/f.panelBytes))
		}
		for i := range w.workers {
			buffer.Grow(&w.workers[i].out, f.nr)
		}
		w.run((f.panels+j.batch-1)/j.batch, stageGemv)
		return
	}
	// A batch of panels stays in the second-level cache while all tiles of rows use it. A tile is
	// then loaded from the third level or from memory once per batch.
	panels := j.l.reader.canonical()
	j.batch = max(1, min(unpackedBatch/(j.l.set.NR*f.stored), panels/(threads*gemmParts)))
	if len(w.acts.tiles) == 1 {
		j.batch = 1
	}
	for i := range w.workers {
		w.workers[i].grow(j.l, j.batch)
	}
	w.run((panels+j.batch-1)/j.batch, stagePanels)
}

const (
	gemvParts     = 8       // parts for each goroutine
	gemmParts     = 4       // likewise
	packedBatch   = 1 << 17 // bytes
	unpackedBatch = 1 << 18 // bytes
)

// multiplyPanels multiplies all rows with panels [from, to).
func (w *Workspace) multiplyPanels(own *worker, from, to int) {
	j, a := &w.job, &w.acts
	l := j.l
	r := &l.reader
	for p := range own.panels[:to-from] {
		r.read(&own.panels[p], l.data, from+p)
	}
	nr := r.outs
	for i := range a.tiles {
		t := &a.tiles[i]
		for p := range own.panels[:to-from] {
			first := (from + p) * nr
			l.multiplyTile(own, a, t, &own.panels[p], j.dst, first)
			w.finishRows(t.row, t.at, t.valid, first, min(first+nr, l.rows))
		}
	}
}

// multiplyTile multiplies a tile of rows with a panel whose first row is row first of the matrix.
func (l *Linear) multiplyTile(own *worker, a *activations, t *rowTile, p *panel, dst []float32, first int) {
	step, f, nr := &l.set.Steps[t.step], l.panelLayout, l.set.NR
	mr, groups := step.MR, f.groups
	valid := min(nr, f.rows-first)
	k := &own.tile
	k.Codes, k.Acts = &p.codes[0], (*int8)(unsafe.Pointer(&a.codes[t.at*f.stored]))
	k.Sums, k.Zeros, k.ZeroStep = &a.sums[t.at*groups], &p.zeros[0], 0
	if l.zeroStep {
		k.ZeroStep = 4 * nr
	}
	k.NoZeros = !l.zeroStep && l.reader.zero == 0
	k.Steps, k.Groups = &l.steps[0], groups
	if f.epilogue == epilogueGroup && p.exact {
		product := step.Group
		if f.shift > 0 {
			product, k.Shift = step.Shifted, l.shift8
		}
		k.Scales, k.RowSums, k.Bias = &p.scales[0], &p.float[0], &p.bias[0]
		k.NegZero, k.Rec = &a.negZero[t.at], &a.rec[t.at]
		if valid == nr && t.valid == mr {
			k.Out, k.OutStride = unsafe.Pointer(&dst[t.row*f.rows+first]), 4*f.rows
			product(k)
			return
		}
		k.Out, k.OutStride = unsafe.Pointer(&own.out[0]), 4*nr
		product(k)
		for i := range t.valid {
			copy(dst[(t.row+i)*f.rows+first:][:valid], own.out[i*nr:])
		}
		return
	}
	k.Out, k.OutStride = unsafe.Pointer(&own.dots[0]), 4*groups*nr
	if f.shift > 0 { // without zero points, which shiftDots subtracts
		k.Zeros, k.ZeroStep, k.NoZeros = &l.noZeros[0], 0, true
	}
	step.Dots(k)
	if f.shift > 0 {
		l.shiftDots(own.dots, p.zeros, a.sums[t.at*groups:][:mr*groups], mr)
	}
	for i := range t.valid {
		to, out := dst[(t.row+i)*f.rows+first:][:valid], own.out[:nr]
		if valid == nr {
			out = to
		}
		l.applyEpilogue(out, own.dots[i*groups*nr:][:groups*nr], p, a, t.at+i)
		if valid < nr {
			copy(to, out)
		}
	}
}

// multiplyPacked multiplies the rows with the packed panels [from, to), by the gemv kernel.
func (w *Workspace) multiplyPacked(own *worker, from, to int) {
	j, a := &w.job, &w.acts
	l, k := j.l, &own.gemv
	f, kernel := l.panelLayout, j.c.gemv
	k.PanelBytes, k.Groups = f.panelBytes, f.groups
	k.Blocks = (min(f.group, f.stored) + 31) / 32
	k.LastBlocks = (f.cols - (f.groups-1)*f.group + 31) / 32
	stride := f.stored * copies(kernel.Order)
	whole := min(to, f.rows/f.nr)
	for i := range j.m {
		k.Acts = (*int8)(unsafe.Pointer(&a.codes[i*stride]))
		k.Sums = &a.sums[i*f.groups]
		k.NegZero, k.NegZeroInt, k.Rec = a.negZero[i], a.negInt[i], a.rec[i]
		if f.quantize != asymmetric {
			k.ActScales, k.ActSums = &a.scales[i*f.groups], &a.asums[i*f.groups]
		}
		out := j.dst[i*f.rows:][:f.rows]
		if whole > from {
			k.Dst, k.Data, k.Panels = &out[from*f.nr], &l.data[f.prefix+from*f.panelBytes], whole-from
			kernel.Run(k)
		}
		if whole < to { // the last panel has padding rows
			k.Dst, k.Data, k.Panels = &own.out[0], &l.data[f.prefix+whole*f.panelBytes], 1
			kernel.Run(k)
			copy(out[whole*f.nr:], own.out[:f.nr])
		}
		w.finishRows(i, i, 1, from*f.nr, min(to*f.nr, f.rows))
	}
}
