package kernels

import (
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels/internal/floatmm"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
	"github.com/lowbit-go/gq/kernels/internal/tile"
)

// Workspace is the memory in which operators work: quantized activations and unpacked panels. It
// grows to the needs of the largest operator that it has served; after that, calls do not allocate.
// It serves one Forward at a time, of any operator.
type Workspace struct {
	pool    *Pool
	workers []worker
	job     job
	part    func(worker, part int) // job.run, bound once
	acts    activations
	floats  []float32 // packed activations of float operators
}

// NewWorkspace makes a Workspace whose operators run on p; nil means the caller's goroutine only.
// Several Workspaces may share a Pool.
func NewWorkspace(p *Pool) *Workspace {
	w := &Workspace{pool: p, workers: make([]worker, 1)}
	if p != nil {
		w.workers = make([]worker, p.Threads())
	}
	w.part = w.runPart
	return w
}

// Pool returns the argument of NewWorkspace.
func (w *Workspace) Pool() *Pool { return w.pool }

// run runs the job's parts.
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

// worker is the memory of one goroutine.
type worker struct {
	tile   tile.Args // not on a stack: kernels are called through pointers, which makes arguments escape
	gemv   gemv.Args
	panels []panel
	dots   []int32   // [rows of activations][groups][NR]
	out    []float32 // [rows of activations][NR]
	q      []int8    // a row of activations
	sums   []int32   // sums of its groups
	scales []float32 // scales of its groups, blocksF16 and blocksF32
	asums  []float32 // sums of its groups, blocksF32
	float  floatmm.Scratch
	_      [64]byte // keeps goroutines out of each other's cache lines
}

// grow makes room for a batch of panels of l, and for the products of tiles of rows with them.
func (w *worker) grow(l *Linear, batch int) {
	for len(w.panels) < batch {
		w.panels = append(w.panels, panel{})
	}
	for i := range w.panels[:batch] {
		w.panels[i].grow(&l.reader)
	}
	outs := l.set.Steps[0].MR * l.set.NR
	buffer.Grow(&w.out, outs)
	if l.epilogue != epilogueGroup || l.reader.unit != 1 {
		buffer.Grow(&w.dots, outs*l.groups)
	}
}

// aligned returns n bytes that begin at a cache line, x itself if it is long enough.
func aligned(x []byte, n int) []byte {
	if n <= cap(x) {
		return x[:n]
	}
	const line = 64
	x = make([]byte, n+line-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(x))) % line)
	return x[skip:][:n]
}
