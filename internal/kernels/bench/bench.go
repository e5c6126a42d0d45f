package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Options state the measurements of a run.
type Options struct {
	// Headers are the packed weights, all of the same shape. Required.
	Headers []packing.Header
	// CPU lists instruction sets to measure, as in kernels.Options.CPU. Default: the best allowed.
	CPU []string
	// M lists numbers of rows of activations. Default: 1, 4, 16, 128.
	M []int
	// Threads lists numbers of goroutines. Default: 1 and runtime.GOMAXPROCS(0).
	Threads []int
	// CacheBytes is the size of the last-level cache. Default: CacheBytes().
	CacheBytes int64
	// Rounds is the number of rounds; a figure is the median over rounds. Default: 5.
	Rounds int
	// Time is the duration of all rounds of a figure together. A figure has at least one round and a
	// round at least a call. Default: half a second.
	Time time.Duration
	// Log is called when an operator runs a kernel for the first time, once for all copies.
	// Default: as kernels.Options.Log.
	Log func(kernels.Choice)
	// Each is called with every figure as soon as the figure is known. Default: nothing.
	Each func(*Figure)
}

func (o Options) withDefaults() Options {
	if len(o.CPU) == 0 {
		o.CPU = []string{""}
	}
	if len(o.M) == 0 {
		o.M = []int{1, 4, 16, 128}
	}
	if len(o.Threads) == 0 {
		o.Threads = slices.Compact([]int{1, runtime.GOMAXPROCS(0)})
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = CacheBytes()
	}
	o.Rounds = cmp.Or(o.Rounds, 5)
	o.Time = cmp.Or(o.Time, time.Second/2)
	return o
}

func (o *Options) check() error {
	if len(o.Headers) == 0 {
		return fmt.Errorf("bench: no weights to measure")
	}
	for _, h := range o.Headers {
		if h.Rows != o.Headers[0].Rows || h.Cols != o.Headers[0].Cols {
			return fmt.Errorf("bench: weights of %d x %d and of %d x %d in one run, want one shape", h.Rows, h.Cols, o.Headers[0].Rows, o.Headers[0].Cols)
		}
		for _, name := range o.CPU {
			if _, err := kernels.KernelFor(h, 1, kernels.Options{CPU: name}); err != nil {
				return err
			}
		}
	}
	if slices.Min(o.M) < 1 || slices.Min(o.Threads) < 1 || o.CacheBytes < 1 || o.Rounds < 1 || o.Time < 0 {
		return fmt.Errorf("bench: rows of activations, threads, cache and rounds are at least 1")
	}
	return nil
}

type Report struct {
	Features   []string `json:"features"` // instruction sets of this CPU
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	CPUs       int      `json:"cpus"`
	Rows       uint64   `json:"rows"`
	Cols       uint64   `json:"cols"`
	CacheBytes int64    `json:"cache_bytes"`  // of the last level
	Memory     int64    `json:"memory_bytes"` // bytes that the run takes
	Figures    []Figure `json:"figures"`
}

// Figure is the measurement of an operator with m rows.
type Figure struct {
	Kernel  string `json:"kernel"`
	Layout  string `json:"layout"` // plain: a floating-point operator
	Tile    string `json:"tile,omitempty"`
	Bits    int    `json:"bits"`
	Group   uint64 `json:"group"` // 0: the whole row
	Zeros   string `json:"zeros,omitempty"`
	M       int    `json:"m"`
	Threads int    `json:"threads"`

	Bytes   int64   `json:"bytes"`   // of the packed weights
	Copies  int     `json:"copies"`  // copies of the weights, used in turn
	Rounds  int     `json:"rounds"`  // rounds; figures are medians over rounds
	Seconds float64 `json:"seconds"` // of a call

	GBps     float64 `json:"gb_per_second"` // 1e9 bytes of packed weights
	GMACps   float64 `json:"gmac_per_second"`
	ReadGBps float64 `json:"read_gb_per_second"` // rate of only reading, in the same rounds
	Share    float64 `json:"share_of_read_rate"`

	// OverFloat32 and OverBF16 are speed-ups: the time of the floating-point operator for the
	// same m, threads and instruction set, divided by this operator's time.
	OverFloat32 float64 `json:"over_float32,omitempty"`
	OverBF16    float64 `json:"over_bf16,omitempty"`
	// OverOneRow is the rate of multiply-accumulates divided by the rate at m = 1, if measured.
	OverOneRow float64 `json:"over_one_row,omitempty"`
}

// Run measures the floating-point operators and then every header, for each instruction set.
// Cancelling ctx ends Run between two calls.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	rows, cols := o.Headers[0].Rows, o.Headers[0].Cols
	memory, err := o.Memory()
	if err != nil {
		return nil, err
	}
	r := &run{Options: o, ctx: ctx, report: &Report{
		Features: kernels.Features(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Rows: rows, Cols: cols, CacheBytes: o.CacheBytes, Memory: memory,
	}}
	for _, n := range o.Threads {
		pool := kernels.NewPool(n)
		defer pool.Close()
		r.pools = append(r.pools, pool)
	}
	most := slices.Max(o.M)
	r.x, r.dst = activations(most, int(cols)), make([]float32, most*int(rows))
	floats := []packing.Header{packing.PlainHeader(packing.F32, rows, cols), packing.PlainHeader(packing.BF16, rows, cols)}
	for _, name := range o.CPU {
		r.first = len(r.report.Figures)
		for _, h := range slices.Concat(floats, o.Headers) {
			if err := r.operator(name, h); err != nil {
				return nil, err
			}
		}
	}
	return r.report, nil
}

type run struct {
	Options
	ctx    context.Context
	report *Report
	pools  []*kernels.Pool // for each of Options.Threads
	x, dst []float32       // for the largest m
	memory []byte          // holds the copies of packed weights
	first  int             // index of the first figure of the current instruction set
}

func (r *run) operator(name string, h packing.Header) error {
	s, err := newSpace(h, r.CacheBytes)
	if err != nil {
		return err
	}
	r.grow(s.bytes())
	f := Figure{Layout: h.Layout.String(), Tile: h.Tile.String(), Bits: int(h.Bits), Group: h.Group, Zeros: h.ZeroKind.String()}
	plain := h.Layout == packing.LayoutPlain
	if h.Layout == packing.LayoutBlocks {
		t := gguf.TensorType(h.Dtype)
		f.Layout, f.Tile, f.Zeros = t.String(), "", ""
		s.fillBlocks(r.memory, t)
	} else if plain {
		f.Bits, f.Zeros = h.Dtype.Bits(), ""
		fillFloats(r.memory[:s.bytes()], h.Dtype)
	} else if err := s.fill(r.memory, h); err != nil {
		return err
	}
	ops := make([]kernels.Operator, s.copies)
	for i := range ops {
		if plain { // holds a copy; the last is made from r.memory, which is then only read
			ops[i], err = kernels.NewFloat(h, s.copy(r.memory, i), r.options(name, i))
		} else {
			ops[i], err = kernels.NewLinear(h, s.copy(r.memory, i), r.options(name, i))
		}
		if err != nil {
			return err
		}
	}
	err = r.figures(f, s, ops)
	clear(ops)
	debug.FreeOSMemory()
	return err
}

func (r *run) options(name string, i int) kernels.Options {
	o := kernels.Options{CPU: name, Log: r.Log}
	if i > 0 {
		o.Log = func(kernels.Choice) {}
	}
	return o
}

func (r *run) grow(n int64) {
	if int64(len(r.memory)) < n {
		r.memory = nil
		debug.FreeOSMemory()
		r.memory = make([]byte, n)
	}
}

func (r *run) figures(f Figure, s space, ops []kernels.Operator) error {
	f.Bytes, f.Copies = s.size, s.copies
	for i, threads := range r.Threads {
		p := &products{ctx: r.ctx, pool: r.pools[i], w: kernels.NewWorkspace(r.pools[i]), ops: ops, space: s, memory: r.memory}
		for _, m := range r.M {
			f.M, f.Threads, f.Kernel = m, threads, ops[0].Kernel(m)
			p.x, p.dst, p.m = r.x[:m*int(r.report.Cols)], r.dst[:m*int(r.report.Rows)], m
			rounds, err := p.measure(r.Rounds, r.Time)
			if err != nil {
				return err
			}
			r.add(f, rounds)
		}
	}
	return nil
}

// add appends the figure of some rounds, compared with the figures before.
func (r *run) add(f Figure, rounds []round) {
	f.Rounds = len(rounds)
	f.Seconds = median(rounds, func(x round) float64 { return x.product })
	read := median(rounds, func(x round) float64 { return x.read })
	f.Share = median(rounds, func(x round) float64 { return x.read / x.product })
	f.GBps, f.ReadGBps = float64(f.Bytes)/f.Seconds/1e9, float64(f.Bytes)/read/1e9
	f.GMACps = float64(f.M) * float64(r.report.Rows) * float64(r.report.Cols) / f.Seconds / 1e9
	for i := range r.report.Figures[r.first:] {
		o := &r.report.Figures[r.first+i]
		same := o.Threads == f.Threads && o.Layout == f.Layout && o.Tile == f.Tile && o.Bits == f.Bits && o.Group == f.Group && o.Zeros == f.Zeros
		switch {
		case o.Threads == f.Threads && o.M == f.M && o.Layout == "plain" && o.Bits == 32:
			f.OverFloat32 = o.Seconds / f.Seconds
		case o.Threads == f.Threads && o.M == f.M && o.Layout == "plain" && o.Bits == 16:
			f.OverBF16 = o.Seconds / f.Seconds
		case same && o.M == 1 && f.M > 1:
			f.OverOneRow = f.GMACps / o.GMACps
		}
	}
	r.report.Figures = append(r.report.Figures, f)
	if r.Each != nil {
		r.Each(&f)
	}
}
