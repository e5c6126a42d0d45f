package kernels

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
	"github.com/lowbit-go/gq/internal/kernels/tile"
)

// Pool runs work on a fixed number of goroutines, including the caller's. Its maker closes the
// Pool. A Pool may serve many Workspaces; concurrent calls of Run wait for each other.
//
// A goroutine looks for work for a short time before sleeping: a pass of a token calls Run a
// hundred times, and Go's scheduler takes some 50 microseconds to wake a goroutine on another CPU.
// In that time two CPUs read 2 MB of weights. Run does not wait for goroutines that have taken no
// part, so a goroutine without a CPU delays nobody.
type Pool struct {
	mu      sync.Mutex
	helpers []*helper // the goroutines except the caller's
	look    time.Duration
	working atomic.Int64   // helpers that Run has called and that have not finished
	waiting sync.WaitGroup // likewise

	f     func(worker, part int)
	parts int64
	next  atomic.Int64

	failed atomic.Bool
	cause  any // value of the first panic, if failed
}

// lookTime is how long a goroutine looks for work before sleeping: more than between two products.
const lookTime = 40 * time.Microsecond

type helper struct {
	state atomic.Int32  // see below
	wake  chan struct{} // ends the helper's sleep; closed by Close
	_     [64]byte      // keeps goroutines out of each other's cache lines
}

const (
	awake   = iota // looks for work
	asleep         // waits for wake
	called         // there is work; the helper may still be asleep, but there is a value in wake
	working        // takes parts
)

// NewPool starts threads-1 goroutines, until Close; threads below 1 means runtime.GOMAXPROCS(0).
func NewPool(threads int) *Pool {
	threads = cpu.Threads(threads)
	p := &Pool{helpers: make([]*helper, threads-1)}
	if threads <= runtime.GOMAXPROCS(0) { // else looking for work keeps others from working
		p.look = lookTime
	}
	for i := range p.helpers {
		p.helpers[i] = &helper{wake: make(chan struct{}, 1)}
		go p.loop(i+1, p.helpers[i])
	}
	return p
}

// Threads is the number of goroutines that work in Run, including the caller's.
func (p *Pool) Threads() int { return len(p.helpers) + 1 }

// Close ends the goroutines. The Pool can still run work, in the caller's goroutine only.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.helpers {
		close(h.wake)
	}
	p.helpers = nil
}

// Run calls f(worker, part) once for each part in 0 .. parts-1 and returns when all calls have
// returned. A free goroutine takes the next part in order; worker, below Threads(), identifies the
// goroutine. f must not call Run of the same Pool.
//
// If a call panics, Run skips the parts that have not begun and panics with the same value. This
// includes faults of any goroutine in memory that cannot be read, such as a map of a file that
// became shorter; see debug.SetPanicOnFault.
func (p *Pool) Run(parts int, f func(worker, part int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.f, p.parts = f, int64(parts)
	p.next.Store(0)
	helpers := p.helpers[:min(len(p.helpers), max(parts-1, 0))]
	p.working.Store(int64(len(helpers)))
	p.waiting.Add(len(helpers))
	for _, h := range helpers {
		if h.state.Swap(called) == asleep {
			h.wake <- struct{}{}
		}
	}
	before := debug.SetPanicOnFault(true)
	p.work(0)
	debug.SetPanicOnFault(before)
	for _, h := range helpers {
		if h.state.CompareAndSwap(called, awake) { // took no part, and none is left
			p.finish()
		}
	}
	p.until(func() bool { return p.working.Load() == 0 })
	p.waiting.Wait()
	p.f = nil
	if p.failed.Load() {
		cause := p.cause
		p.cause = nil
		p.failed.Store(false)
		panic(cause)
	}
}

// Pieces calls fn for pieces of [0, n), as Run does for parts, and returns the error of the first
// piece that failed.
func (p *Pool) Pieces(n, piece int, fn func(worker, from, to int) error) error {
	errs := make([]error, (n+piece-1)/piece)
	p.Run(len(errs), func(worker, part int) { errs[part] = fn(worker, part*piece, min(n, (part+1)*piece)) })
	return cmp.Or(errs...)
}

// finish counts a helper that takes no more parts.
func (p *Pool) finish() {
	p.waiting.Done()
	p.working.Add(-1)
}

// until waits until done reports true, for p.look at most, and returns the last report.
func (p *Pool) until(done func() bool) bool {
	if done() {
		return true
	}
	for start := time.Now(); time.Since(start) < p.look; {
		if done() {
			return true
		}
	}
	return false
}

func (p *Pool) loop(worker int, h *helper) {
	debug.SetPanicOnFault(true)
	isCalled := func() bool { return h.state.Load() == called }
	for {
		if !p.until(isCalled) && h.state.CompareAndSwap(awake, asleep) {
			if _, open := <-h.wake; !open {
				return
			}
		}
		if h.state.CompareAndSwap(called, working) {
			p.work(worker)
			h.state.Store(awake)
			p.finish()
		}
	}
}

func (p *Pool) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			p.next.Store(p.parts) // the other goroutines stop after their current part
			if p.failed.CompareAndSwap(false, true) {
				p.cause = r
			}
		}
	}()
	for {
		part := p.next.Add(1) - 1
		if part >= p.parts {
			return
		}
		p.f(worker, int(part))
	}
}

// Workspace is the memory in which operators work: quantized activations and unpacked panels. The
// memory grows to the needs of the largest operator; after that, calls do not allocate. A Workspace
// serves one Forward at a time, of any operator.
type Workspace struct {
	pool    *Pool
	workers []worker
	job     job
	part    func(worker, part int) // job.run, bound once
	acts    activations
	floats  []float32 // packed activations of float operators
}

// NewWorkspace makes a Workspace that runs operators on p; nil means the caller's goroutine only.
// Several Workspaces may share a Pool.
func NewWorkspace(p *Pool) *Workspace {
	w := &Workspace{pool: p, workers: make([]worker, 1)}
	if p != nil {
		w.workers = make([]worker, p.Threads())
	}
	w.part = w.runPart
	return w
}

func (w *Workspace) Pool() *Pool { return w.pool }

type worker struct {
	// not on a stack: kernels are called through pointers, so arguments escape
	tile   tileArgs
	gemv   gemv.Call
	blocks ggml.RowArgs
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

// tileArgs are the arguments of the tile kernels, by epilogue.
type tileArgs struct {
	group   tile.GroupArgs
	shifted tile.ShiftedArgs
	row     tile.RowArgs
	blocks  tile.BlocksArgs
	qai4    tile.BlocksQAI4Args
	torchAO tile.TorchAOArgs

	blocksMin tile.BlocksMinArgs
	subs      tile.SubsArgs
}

// grow makes room for a batch of panels of l, and for the products with tiles of rows.
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

// aligned returns n bytes that begin at a cache line: x itself if x is long enough.
func aligned(x []byte, n int) []byte {
	if n <= cap(x) {
		return x[:n]
	}
	const line = 64
	x = make([]byte, n+line-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(x))) % line)
	return x[skip:][:n]
}
