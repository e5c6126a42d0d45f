package calib

import (
	"cmp"
	"context"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/kernels"
)

// Options of a job. The zero value is ready to use.
type Options struct {
	// Refine adds coordinate descent and a refit of scales.
	Refine bool
	// Work stores the codes of finished layers for a later job with the same result. Work must stay
	// open until the Result is closed. Default: memory.
	Work *workdir.Dir
	// Resumed is called with the number of finished layers in Work, if any, and of all. Default: none.
	Resumed func(layers, of int)
	// Threads is the number of goroutines. Default: GOMAXPROCS.
	Threads int
	// Progress is called with numbers of weights done, out of Work(plan). Default: none.
	Progress func(n int64)
	// BatchBytes bounds the memory for Hessians of experts. Default: 2 GiB.
	BatchBytes int64
}

// Work is the number of a plan's weights that Run chooses codes for.
func Work(p *fromcheckpoint.Plan) (n int64) {
	for _, m := range p.Matrices() {
		if m.Scheme.Algorithm.ByLayers() {
			n += int64(m.Rows) * int64(m.Cols)
		}
	}
	return n
}

// Result holds the codes that a job chose.
type Result struct {
	Warnings []string
	store    *store
	info     provenance.Calibration
	plan     *fromcheckpoint.Plan
}

// Codes is the input for fromcheckpoint.Plan.WriteWith, valid until Close.
func (r *Result) Codes() *plan.Codes {
	c := &plan.Codes{Calibration: &r.info, Warnings: r.Warnings}
	c.Rows = func(m plan.Matrix) plan.RowReader {
		if rows := r.store.results[m.Name()]; rows != nil && m.Scheme.Algorithm.ByLayers() {
			return rows
		}
		return nil
	}
	return c
}

func (r *Result) Close() { r.store.close() }

type job struct {
	Options
	ctx      context.Context
	e        *engine
	plan     *fromcheckpoint.Plan
	text     *text.Text
	matrices map[string]plan.Matrix
	tied     *plan.Matrix   // embedding and lm_head, if it is calibrated; not among matrices
	float    *forward.Model // nil if no algorithm needs the float model
	quant    *forward.Model
	floats   *forward.Stream
	quants   *forward.Stream
	store    *store
	progress func(n int64)

	// The current block.
	last   bool      // the stage is the block's last
	moved  bool      // the float model's stream is behind the block
	inputs []float32 // of the last linear layer, in the quantized model, if there is room; else empty

	longest int // tokens of the longest sequence

	notes layerNotes // of the current layer
	found int        // layers that an interrupted job finished
	names []string
	done  []*rounding.Codes
}

// DefaultTokens is the default number of calibration tokens: more tokens hardly improve the result.
const DefaultTokens = 8192

// Run chooses the codes of all matrices of a plan with the algorithm gptq or gptq-ft. Package model
// must be able to run the plan's checkpoint.
func Run(ctx context.Context, p *fromcheckpoint.Plan, text *text.Text, o Options) (*Result, error) {
	j := newJob(ctx, p, text, o)
	if o.Progress != nil {
		j.progress = o.Progress
	}
	follow := j.find()
	key, err := workdir.Key("codes", j.info(), p.SourceStamps(), plan.Keys(p.Matrices()))
	if err != nil {
		return nil, err
	}
	r := &Result{plan: p, info: j.info()}
	if r.store, err = openStore(o.Work, key); err != nil {
		return nil, err
	}
	j.store = r.store
	if err := j.attempt(follow, r); err != nil {
		r.store.close()
		return nil, err
	}
	return r, nil
}

func newJob(ctx context.Context, p *fromcheckpoint.Plan, text *text.Text, o Options) *job {
	j := &job{Options: o, ctx: ctx, plan: p, text: text, matrices: map[string]plan.Matrix{}, progress: func(int64) {}}
	j.BatchBytes = cmp.Or(o.BatchBytes, 2<<30)
	for _, s := range text.Sequences {
		j.longest = max(j.longest, len(s))
	}
	return j
}

// find finds the matrices to calibrate. follow reports whether any follows the float model.
func (j *job) find() (follow bool) {
	for _, m := range j.plan.Matrices() {
		switch {
		case !m.Scheme.Algorithm.ByLayers():
		case m.Embedded():
			j.tied = &m
		default:
			j.matrices[m.Name()] = m
			follow = follow || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
		}
	}
	return follow
}

// attempt chooses all codes except those of layers that were finished before.
func (j *job) attempt(follow bool, r *Result) error {
	if err := j.open(follow); err != nil {
		return err
	}
	defer j.close()
	return j.run(r)
}

// run goes through the layers and the lm_head. No text runs if all of them are finished.
func (j *job) run(r *Result) error {
	layers := len(j.quant.Config().Layers) + 1
	for layer := range layers {
		l, err := j.store.get(layer)
		head := layer == layers-1
		switch {
		case err != nil:
		case l == nil && head:
			err = j.head()
		case l == nil:
			err = j.layer(layer)
		case j.found < layers && !head:
			err = j.resume(layer, l)
		}
		if err != nil {
			return err
		}
		if l == nil {
			if err := j.store.put(layer, j.names, j.done, j.notes); err != nil {
				return err
			}
		} else {
			j.notes = l.Notes
			for _, m := range l.Matrices {
				if j.tied == nil || m.Name != j.tied.Name() { // tie has counted it
					j.progress(int64(m.Rows) * int64(m.Cols))
				}
			}
		}
		r.info.Fallbacks += len(j.notes.Unreached) + len(j.notes.Searched)
		warn(&r.Warnings, j.notes.Unreached, unreached)
		warn(&r.Warnings, j.notes.Searched, "the search has the smaller error: kept")
	}
	var missed []string
	for _, m := range r.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() && r.store.results[m.Name()] == nil {
			missed = append(missed, m.Name())
		}
	}
	r.info.Fallbacks += len(missed)
	warn(&r.Warnings, missed, "not part of the language model that calibration runs: quantized by search")
	return nil
}

// layer chooses the codes of a layer and moves the streams past the layer.
func (j *job) layer(layer int) error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	stages := j.quant.Stages(layer)
	var undo []func()
	next := 0 // block
	advance := func(to int) (err error) {
		for ; next < to && err == nil; next++ {
			err = j.advance(layer, next)
		}
		return err
	}
	for i, stage := range stages {
		if err := advance(stage[0].Block); err != nil { // blocks without linear layers
			return err
		}
		for len(stage) > 0 {
			batch := j.batch(stage)
			stage = stage[len(batch):]
			j.last = len(stage) == 0 && (i+1 == len(stages) || stages[i+1][0].Block != batch[0].Block)
			u, err := j.stage(layer, batch)
			undo = append(undo, u...)
			if err != nil {
				return err
			}
		}
		if block := stages[i][0].Block; i+1 == len(stages) || stages[i+1][0].Block != block {
			if err := advance(block + 1); err != nil {
				return err
			}
		}
	}
	if err := advance(j.quants.Blocks(layer)); err != nil {
		return err
	}
	for _, u := range undo { // the codes are stored: free them in memory
		u()
	}
	return nil
}

// advance moves the streams past a block where needed and not done by the last stage.
func (j *job) advance(layer, block int) error {
	inputs, moved := j.inputs, j.moved
	j.inputs, j.moved = j.inputs[:0], false
	if block+1 == j.quants.Blocks(layer) && layer+1 == len(j.quant.Config().Layers) && len(j.headGroup().matrices) == 0 {
		return nil
	}
	if len(inputs) > 0 {
		if err := j.quants.Finish(layer, block, inputs); err != nil {
			return err
		}
	}
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if len(inputs) == 0 {
			if err := j.quants.Advance(seq, layer, block); err != nil {
				return err
			}
		}
		if j.floats != nil && !moved {
			if err := j.floats.Advance(seq, layer, block); err != nil {
				return err
			}
		}
	}
	return nil
}

// engine does the linear algebra: products by package kernels, with the same bits for any CPU and
// number of threads, and loops over rows that are divided among threads.
type engine struct {
	pool *kernels.Pool
	work *kernels.Workspace
	sums *kernels.Transposed

	floats buffer.Pool[float32] // large slices between their uses
	codes  buffer.Pool[int8]
	solver solverBuffers // of all matrices, in turn
}

type operand = kernels.Operand

func newEngine(threads int) *engine {
	sums, err := kernels.NewTransposed(kernels.Options{})
	if err != nil {
		panic(err) // only for a CPU that was asked for
	}
	p := kernels.NewPool(threads)
	return &engine{pool: p, work: kernels.NewWorkspace(p), sums: sums}
}

func (e *engine) close() { e.pool.Close() }

func quiet(kernels.Choice) {}

// add computes dst += x y, where dst is m x n with rows stride values apart, x is m x k and y is k
// x n. Each sum is a single chain of fused multiply-adds in float32, in order of k.
func (e *engine) add(dst []float32, stride, m, n, k int, x, y operand) {
	if err := e.sums.Add(e.work, dst, stride, m, n, k, x, y); err != nil {
		panic(err) // the lengths are wrong
	}
}

// product computes dst = x y, all packed: dst is [m][n].
func (e *engine) product(dst []float32, m, n, k int, x, y operand) {
	clear(dst[:m*n])
	e.add(dst, n, m, n, k, x, y)
}

// addGram adds x^T x, for x of n rows and k columns, to the upper triangle of dst, with rows stride
// values apart. Some elements below the diagonal change too, see kernels.GramBand.
func (e *engine) addGram(dst []float32, stride, k, n int, x operand) {
	if err := e.sums.AddGram(e.work, dst, stride, k, n, x); err != nil {
		panic(err) // the lengths are wrong
	}
}

// rows calls f for pieces of [0, n), in several goroutines. worker is the number of the goroutine.
func (e *engine) rows(n, piece int, f func(worker, from, to int)) {
	parts := (n + piece - 1) / piece
	if parts <= 1 || e.pool.Threads() == 1 {
		f(0, 0, n)
		return
	}
	e.pool.Run(parts, func(worker, part int) { f(worker, part*piece, min(n, (part+1)*piece)) })
}

func (j *job) open(follow bool) (err error) {
	o := forward.Options{Threads: j.Threads, Log: quiet}
	j.e = newEngine(j.Threads)
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	dir := j.plan.SourceDir()
	if j.quant, err = forward.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	if j.found, err = j.resumed(len(j.quant.Config().Layers) + 1); err != nil {
		return err
	}
	if j.tied != nil {
		if err := j.tie(); err != nil {
			return err
		}
	}
	// The hidden states of the quantized model begin with rows of quantized embeddings.
	for _, m := range j.plan.Matrices() {
		t := j.quant.Table(m.Name())
		if m.Role != gqf.RoleEmbedding || t == nil || j.tied != nil && m.Name() == j.tied.Name() {
			continue
		}
		r, err := rounding.NewRounder(m.Scheme, m.Cols)
		if err != nil {
			return err
		}
		r.Recover(m.Precision)
		*t = &roundedTable{*t, r}
	}
	if j.quants, err = j.quant.NewStream(j.text.Sequences); err != nil {
		return err
	}
	if !follow {
		return nil
	}
	if j.float, err = forward.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	if j.floats, err = j.float.NewStream(j.text.Sequences); err == nil {
		j.floats.ShareMemory(j.quants)
	}
	return err
}

// roundedTable looks up rows of a quantized embedding.
type roundedTable struct {
	forward.Embedding
	rounder *rounding.Rounder
}

func (t *roundedTable) Lookup(dst []float32, row int) error {
	if err := t.Embedding.Lookup(dst, row); err != nil {
		return err
	}
	return t.rounder.Round(dst, dst)
}

func (j *job) replace(name string, c *rounding.Codes) (undo func(), err error) {
	op, err := kernels.NewRows(c.Rows, c.Cols, j.plan.Factors[name].Divided(c.DequantizeRow), nil, kernels.Options{Log: quiet})
	if err != nil {
		return nil, err
	}
	return j.quant.SetLinear(name, op, false)
}

func (j *job) close() {
	for _, m := range []*forward.Model{j.float, j.quant} {
		if m != nil {
			m.Close()
		}
	}
	j.e.close()
}
