package kernels

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/internal/kernels/tile"
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

// job is the work on a block of rows of a Forward.
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

func (j *job) limit(lo, hi float32) {
	j.min, j.max, j.clamped = lo, hi, !math.IsInf(float64(lo), -1) || !math.IsInf(float64(hi), 1)
}

func (l *Linear) Forward(w *Workspace, dst, x []float32, m int) error {
	return l.ForwardClamped(w, dst, x, m, float32(math.Inf(-1)), float32(math.Inf(1)))
}

func (l *Linear) ForwardClamped(w *Workspace, dst, x []float32, m int, lo, hi float32) error {
	if err := checkForward(l.rows, l.cols, dst, x, m, lo, hi); err != nil || m == 0 {
		return err
	}
	c := l.choose(m)
	if l.log != nil && c.logged.CompareAndSwap(false, true) {
		l.log(Choice{c.name, l.header, m})
	}
	w.job.limit(lo, hi)
	for m > 0 {
		n := min(m, l.maxRows)
		w.multiply(l, c, dst[:n*l.rows], x[:n*l.cols], n)
		dst, x, m = dst[n*l.rows:], x[n*l.cols:], m-n
	}
	w.job.l, w.job.dst, w.job.x = nil, nil, nil
	return nil
}

func checkForward(rows, cols int, dst, x []float32, m int, lo, hi float32) error {
	switch {
	case m < 0 || m > math.MaxInt/max(rows, cols) || len(dst) != m*rows || len(x) != m*cols:
		return fmt.Errorf("kernels: %d outputs and %d inputs, want %d rows of %d and %d", len(dst), len(x), m, rows, cols)
	case lo != lo || hi != hi:
		return fmt.Errorf("kernels: clamping to %v .. %v, want two numbers", lo, hi)
	}
	return nil
}

func (w *Workspace) runPart(id, part int) {
	j, own := &w.job, &w.workers[id]
	switch j.stage {
	case stageTiles:
		t := &w.acts.tiles[part]
		w.acts.setTile(j.l, own, t, j.x)
	case stagePanels:
		w.multiplyPanels(own, part*j.batch, min((part+1)*j.batch, j.l.reader.canonical()))
	case stageGemv:
		from, to := part*j.batch, min((part+1)*j.batch, j.l.panelLayout.panels)
		if j.c.rows != nil {
			w.multiplyRows(own, from, to)
		} else {
			w.multiplyPacked(own, from, to)
		}
	case stagePackFloat:
		w.packFloat(part*j.batch, min((part+1)*j.batch, j.m))
	case stageFloat:
		w.multiplyFloatPanels(own, part*j.batch, min((part+1)*j.batch, j.f.panels))
	}
}

func (w *Workspace) run(parts int, stage stage) {
	w.job.stage = stage
	if w.pool == nil || parts == 1 {
		for i := range parts {
			w.runPart(0, i)
		}
		return
	}
	w.pool.Run(parts, w.part)
}

func (w *Workspace) multiply(l *Linear, c *candidate, dst, x []float32, m int) {
	w.begin(l, c, dst, x, m)
	w.quantize()
	w.product()
}

func (w *Workspace) begin(l *Linear, c *candidate, dst, x []float32, m int) {
	j, a := &w.job, &w.acts
	j.l, j.c, j.dst, j.x, j.m = l, c, dst, x, m
	switch {
	case c.gemv != nil:
		a.grow(l.panelLayout, m, l.stored*copies(c.gemv.Order))
		return
	case c.rows != nil:
		a.grow(l.panelLayout, m, l.stored)
		return
	}
	a.tiles = l.tiling.tiles(a.tiles[:0], m)
	last := a.tiles[len(a.tiles)-1]
	a.grow(l.panelLayout, last.at+l.set.Steps[last.step].MR, l.stored)
}

func copies(o gemv.Order) int {
	if o == gemv.Twice {
		return 2
	}
	return 1
}

// quantize quantizes the rows. The few rows of gemv kernels are not worth waking other goroutines.
func (w *Workspace) quantize() {
	j := &w.job
	for i := range w.workers {
		own := &w.workers[i]
		buffer.Grow(&own.q, j.l.stored)
		buffer.Grow(&own.sums, j.l.groups)
		if j.l.panelLayout.quantize != asymmetric {
			buffer.Grow(&own.scales, j.l.groups)
			buffer.Grow(&own.asums, j.l.groups)
		}
	}
	if j.c.tiled() {
		w.run(len(w.acts.tiles), stageTiles)
		return
	}
	for i := range j.m {
		if j.c.rows != nil {
			w.acts.setBlockRow(j.l.panelLayout, i, j.x[i*j.l.cols:][:j.l.cols])
			continue
		}
		w.acts.setRow(j.l.panelLayout, &w.workers[0], j.c.gemv, i, j.x[i*j.l.cols:][:j.l.cols])
	}
}

func (w *Workspace) product() {
	j, f := &w.job, w.job.l.panelLayout
	threads := len(w.workers)
	if !j.c.tiled() {
		// Long runs suit the memory, but each goroutine gets several runs, because some goroutines are
		// slower. With several rows, a run stays in the cache until the last row.
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
	// A batch of panels stays in the second-level cache while all tiles of rows use the batch. A tile
	// is then loaded from the third level or from memory once per batch.
	panels := j.l.reader.canonical()
	size := j.l.set.NR * f.stored
	if j.l.reader.widen != nil {
		size *= 2 // products read words alone
	}
	j.batch = max(1, min(unpackedBatch/size, panels/(threads*gemmParts)))
	held := j.batch
	if j.m <= fewRows {
		j.batch, held = max(1, panels/(threads*gemmParts)), 1
	}
	for i := range w.workers {
		w.workers[i].grow(j.l, held)
	}
	w.run((panels+j.batch-1)/j.batch, stagePanels)
}

const (
	gemvParts     = 8       // parts for each goroutine
	gemmParts     = 4       // likewise
	packedBatch   = 1 << 17 // bytes
	unpackedBatch = 1 << 18 // bytes

	// Few rows take panels singly: while the kernel multiplies the first tile with a panel, the kernel
	// prefetches the next panel. Memory is too slow to read two panels at a time.
	fewRows = 16
)

func (w *Workspace) multiplyPanels(own *worker, from, to int) {
	j, a := &w.job, &w.acts
	l := j.l
	r := &l.reader
	words := l.set.Steps[a.tiles[0].step].Words
	read := func(to *panel, p int) {
		r.read(to, l.data, p)
		if words {
			r.readWords(to)
		}
	}
	if j.m <= fewRows {
		k := l.shared(&own.tile)
		for p := from; p < to; p++ {
			read(&own.panels[0], p)
			if p+1 < to {
				k.Ahead, k.AheadStep = r.packed(l.data, p+1)
			}
			for i := range a.tiles {
				w.finishTile(own, &a.tiles[i], &own.panels[0], p*r.outs)
				k.AheadStep = 0
			}
		}
		return
	}
	for p := range own.panels[:to-from] {
		read(&own.panels[p], from+p)
	}
	nr := r.outs
	for i := range a.tiles {
		t := &a.tiles[i]
		for p := range own.panels[:to-from] {
			w.finishTile(own, t, &own.panels[p], (from+p)*nr)
		}
	}
}

// finishTile is multiplyTile, and limits the outputs.
func (w *Workspace) finishTile(own *worker, t *rowTile, p *panel, first int) {
	j := &w.job
	l := j.l
	l.multiplyTile(own, &w.acts, t, p, j.dst, first)
	if t.bad || j.clamped {
		w.finishRows(t.row, t.at, t.valid, first, min(first+l.reader.outs, l.rows))
	}
}

// multiplyTile multiplies a tile of rows with a panel. first is the panel's first row in the
// matrix.
func (l *Linear) multiplyTile(own *worker, a *activations, t *rowTile, p *panel, dst []float32, first int) {
	step, f, nr := &l.set.Steps[t.step], l.panelLayout, l.set.NR
	k := l.shared(&own.tile)
	l.setArgs(k, a, t, p)
	valid := min(nr, f.rows-first)
	whole := valid == nr && t.valid == step.MR
	if whole {
		k.Out, k.OutStride = unsafe.Pointer(&dst[t.row*f.rows+first]), 4*f.rows
	} else {
		k.Out, k.OutStride = unsafe.Pointer(&own.out[0]), 4*nr
	}
	if f.epilogue == epilogueGroup && !p.exact {
		l.multiplyUnit(own, a, t, p)
	} else {
		l.multiplyStep(step, own, a, t, p)
	}
	if whole {
		return
	}
	for i := range t.valid {
		copy(dst[(t.row+i)*f.rows+first:][:valid], own.out[i*nr:])
	}
}

// setArgs sets the arguments that all products have, except where outputs go.
func (l *Linear) setArgs(k *tile.Args, a *activations, t *rowTile, p *panel) {
	groups := l.groups
	k.Codes, k.Acts = first(p.codes), (*int8)(unsafe.Pointer(&a.codes[t.at*l.stored]))
	if l.set.Steps[t.step].Words {
		k.Codes = (*byte)(unsafe.Pointer(first(p.words)))
	}
	k.Sums, k.Zeros, k.ZeroStep = &a.sums[t.at*groups], first(p.zeros), 0
	if l.zeroStep {
		k.ZeroStep = 4 * l.set.NR
	}
	k.NoZeros = !l.zeroStep && l.reader.zero == 0
	k.Steps, k.Groups = &l.steps[0], groups
	if k.Starts = nil; l.words > 0 && l.reader.zero != 0 {
		k.Starts = &a.words[t.at*l.words]
	}
}

// shared returns the arguments that all products have, in those of the layout's epilogue.
func (l *Linear) shared(k *tileArgs) *tile.Args {
	switch l.epilogue {
	case epilogueRow:
		return &k.row.Args
	case epilogueTorchAO:
		return &k.torchAO.Args
	case epilogueF16:
		return &k.blocks.Args
	case epilogueQAI4:
		return &k.qai4.Args
	case epilogueMin:
		return &k.blocksMin.Args
	case epilogueSubs:
		return &k.subs.Args
	}
	if l.shift > 0 {
		return &k.shifted.Args
	}
	return &k.group.Args
}

// multiplyStep is the product with the layout's epilogue, whose shared arguments are set.
func (l *Linear) multiplyStep(step *tile.Step, own *worker, a *activations, t *rowTile, p *panel) {
	// Fields are set one by one: a copy of a whole struct takes longer than a small product.
	dots, scales, bias := first(own.dots), first(p.scales), first(p.bias)
	switch l.epilogue {
	case epilogueRow:
		k := &own.tile.row
		k.T, k.Scales, k.IntSums, k.Bias, k.Factor = dots, scales, first(p.sums), bias, l.codeFactor
		k.NegInt, k.Rec = &a.negInt[t.at], &a.rec[t.at]
		step.Row(k)
	case epilogueTorchAO:
		k := &own.tile.torchAO
		k.T, k.Scales, k.IntSums, k.Bias = dots, scales, first(p.sums), bias
		k.NegInt, k.Rec = &a.negInt[t.at], &a.rec[t.at]
		step.TorchAO(k)
	case epilogueF16:
		k := &own.tile.blocks
		k.T, k.Scales, k.ActScales = dots, scales, first(t.numbers(a.scales, l.groups))
		step.Blocks(k)
	case epilogueQAI4:
		k := &own.tile.qai4
		k.T, k.Scales, k.ActScales = dots, scales, first(t.numbers(a.scales, l.groups))
		k.Points, k.ActSums, k.Bias = first(p.points), first(t.numbers(a.asums, l.groups)), bias
		step.BlocksQAI4(k)
	case epilogueMin, epilogueSubs:
		l.finishBlocks(own, a, t, p)
	default:
		k := &own.tile.group
		if l.shift > 0 {
			k = &own.tile.shifted.GroupArgs
		}
		k.Scales, k.RowSums, k.Bias, k.NegZero, k.Rec = scales, first(p.float), bias, &a.negZero[t.at], &a.rec[t.at]
		if l.shift > 0 {
			own.tile.shifted.Shift = l.shift8
			step.Shifted(&own.tile.shifted)
			return
		}
		step.Group(k)
	}
}

func first[T any](x []T) *T { return unsafe.SliceData(x) }

// multiplyUnit is tile.Step.Group or Shifted, to own.out, for scales that t's unit cannot multiply.
func (l *Linear) multiplyUnit(own *worker, a *activations, t *rowTile, p *panel) {
	step, k, groups, nr := &l.set.Steps[t.step], l.shared(&own.tile), l.groups, l.set.NR
	out, stride := k.Out, k.OutStride
	k.Out, k.OutStride = unsafe.Pointer(&own.dots[0]), 4*groups*nr
	if l.shift > 0 { // without zero points: shiftDots subtracts them
		k.Zeros, k.ZeroStep, k.NoZeros = &l.noZeros[0], 0, true
	}
	step.Dots(k)
	if l.shift > 0 {
		l.shiftDots(own.dots, p.zeros, a.sums[t.at*groups:][:step.MR*groups], step.MR)
	}
	for i := range t.valid {
		row := unsafe.Slice((*float32)(unsafe.Add(out, i*stride)), nr)
		epilogueUnit(row, own.dots[i*groups*nr:][:groups*nr], l.reader.unit, p.scales, p.float, p.bias, a.negZero[t.at+i], a.rec[t.at+i])
	}
}

// multiplyPacked multiplies the rows with the packed panels [from, to), by the gemv kernel.
func (w *Workspace) multiplyPacked(own *worker, from, to int) {
	j, a := &w.job, &w.acts
	f, kernel, l := j.l.panelLayout, j.c.gemv, j.l
	k := kernel.Args(&own.gemv)
	k.PanelBytes = f.panelBytes
	own.gemv.SetBiased(f.biasAt >= 0)
	kernel.SetGroups(k, f.groups, f.group, f.cols)
	run := kernel.For(f.groups, f.group)
	stride := f.stored * copies(kernel.Order)
	whole := min(to, f.rows/f.nr)
	for i := range j.m {
		k.Acts = (*int8)(unsafe.Pointer(&a.codes[i*stride]))
		k.Sums = &a.sums[i*f.groups]
		var scales, sums *float32
		if f.quantize != asymmetric {
			scales, sums = &a.scales[i*f.groups], &a.asums[i*f.groups]
		}
		kernel.SetRow(&own.gemv, a.negInt[i], a.rec[i], scales, sums)
		out := j.dst[i*f.rows:][:f.rows]
		if whole > from {
			k.Dst, k.Data, k.Panels = &out[from*f.nr], &l.data[f.prefix+from*f.panelBytes], whole-from
			run(&own.gemv)
		}
		if whole < to { // the last panel has padding rows
			k.Dst, k.Data, k.Panels = &own.out[0], &l.data[f.prefix+whole*f.panelBytes], 1
			run(&own.gemv)
			copy(out[whole*f.nr:], own.out[:f.nr])
		}
		w.finishRows(i, i, 1, from*f.nr, min(to*f.nr, f.rows))
	}
}
