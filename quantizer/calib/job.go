package calib

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// Options of a job. The zero value is ready to use.
type Options struct {
	// Refine adds coordinate descent and a refit of scales.
	Refine bool
	// FollowInputs and FollowResidual are the factors a and r of gptq-ft, see the package's
	// documentation. Default (0): see follow; a negative value stands for 0.
	FollowInputs, FollowResidual float64
	// Work stores the codes of finished layers, from which a job for the same result resumes. It
	// must stay open until the Result is closed. Default: memory.
	Work *workdir.Dir
	// Older is an older file, from which layers that are the same are copied, see
	// [conversion.Plan.OlderLayers]. It must stay open until the Result's codes are written. Default:
	// none.
	Older *conversion.Older
	// Resumed is called with the number of finished layers in Work, if there are any, and the
	// number of all. Default: none.
	Resumed func(layers, of int)
	// Threads is the number of goroutines. Default: GOMAXPROCS.
	Threads int
	// Progress is called with the number of weights done since the last call, out of Work(plan).
	// Default: none.
	Progress func(n int64)
	// BatchBytes bounds the memory for Hessians of experts. Default: 2 GiB.
	BatchBytes int64
}

func (o Options) withDefaults() Options {
	if o.BatchBytes == 0 {
		o.BatchBytes = 2 << 30
	}
	return o
}

// Work is the number of a plan's weights that Run chooses codes for.
func Work(p *conversion.Plan) (n int64) {
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
	// Older are the layers that were copied from Options.Older; nil without.
	Older *conversion.OlderLayers
	store *store
	info  conversion.Calibration
	plan  *conversion.Plan

	fallbacks []int // see conversion.Calibration.LayerFallbacks
	copied    int   // of them, in layers of the older file
}

// Codes is the input for conversion.Plan.WriteWith. It is valid until Close.
func (r *Result) Codes() *conversion.CalibratedCodes {
	c := &conversion.CalibratedCodes{Calibration: &r.info, Warnings: r.Warnings}
	c.Rows = func(m conversion.Matrix) conversion.RowReader {
		if rows := r.store.results[m.Name()]; rows != nil && m.Scheme.Algorithm.ByLayers() {
			return rows
		}
		return nil
	}
	return c
}

// Close closes the files of the working directory.
func (r *Result) Close() { r.store.close() }

// job is a running job.
type job struct {
	Options
	ctx      context.Context
	e        *engine
	plan     *conversion.Plan
	text     *text.Text
	matrices map[string]conversion.Matrix
	float    *model.Model // nil if no algorithm needs it
	quant    *model.Model
	floats   *model.Stream
	quants   *model.Stream
	store    *store
	progress func(n int64)

	// The current half of a layer.
	last   bool      // the stage is the half's last one
	moved  bool      // the float model's stream is past it
	inputs []float32 // of the last linear layer, in the quantized model, if there is room; else empty

	longest int // tokens of the longest sequence

	notes layerNotes // of the current layer
	names []string
	done  []*rounding.Codes
}

// DefaultTokens is the default number of calibration tokens: more tokens hardly improve the result.
const DefaultTokens = 8192

// Run chooses the codes of all matrices of a plan whose algorithm is gptq or gptq-ft. Package model
// must be able to run the plan's checkpoint.
func Run(ctx context.Context, p *conversion.Plan, text *text.Text, o Options) (*Result, error) {
	j := newJob(ctx, p, text, o)
	counted := int64(0)
	j.progress = func(n int64) {
		if counted += n; o.Progress != nil {
			o.Progress(n)
		}
	}
	follow := j.find()
	key, err := j.key()
	if err != nil {
		return nil, err
	}
	r := &Result{plan: p}
	if r.store, err = openStore(o.Work, key); err != nil {
		return nil, err
	}
	j.store = r.store
	err = j.attempt(follow, r)
	if errors.Is(err, errOlder) { // once more, without the file
		r.Older.Drop("another version of gq calibrated it: its codes are others now")
		r.store.forget()
		j.progress(-counted)
		err = j.attempt(follow, r)
	}
	if err != nil {
		r.store.close()
		return nil, err
	}
	return r, nil
}

func newJob(ctx context.Context, p *conversion.Plan, text *text.Text, o Options) *job {
	j := &job{Options: o.withDefaults(), ctx: ctx, plan: p, text: text, matrices: map[string]conversion.Matrix{}, progress: func(int64) {}}
	for _, s := range text.Sequences {
		j.longest = max(j.longest, len(s))
	}
	return j
}

// find finds the matrices that are calibrated. follow reports whether one of them follows the float
// model.
func (j *job) find() (follow bool) {
	for _, m := range j.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() {
			j.matrices[m.Name()] = m
			follow = follow || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
		}
	}
	return follow
}

// attempt chooses all codes, but for layers that were finished before.
func (j *job) attempt(follow bool, r *Result) error {
	r.info, r.Warnings, r.fallbacks, r.copied = j.info(), nil, nil, 0
	if err := j.open(follow); err != nil {
		return err
	}
	defer j.close()
	if j.Options.Older != nil && r.Older == nil {
		var err error
		if r.Older, err = j.plan.OlderLayers(j.ctx, *j.Options.Older, &r.info, j.layers()); err != nil {
			return err
		}
	}
	j.store.older = r.Older
	return j.run(r)
}

// layers describes the layers of the model, and the lm_head.
func (j *job) layers() conversion.ModelLayers {
	m := conversion.ModelLayers{Of: j.quant.LayerOf}
	for layer := range j.quant.Config().Layers {
		var names []string
		for _, stage := range j.quant.Stages(layer) {
			for _, g := range stage {
				names = append(names, g.Linears...)
			}
		}
		m.Linears = append(m.Linears, names)
	}
	m.Linears = append(m.Linears, []string{j.quant.Head()})
	return m
}

// info is the description of the job that the file records.
func (j *job) info() conversion.Calibration {
	c := conversion.Calibration{Source: j.text.Source, SHA256: j.text.SHA256, Tokens: j.text.Tokens(), Sequences: len(j.text.Sequences), Seed: j.text.Seed, Parameters: map[string]any{},
		SequencesSHA256: j.text.Hash(), Version: version}
	follows := false
	var names []string
	for _, m := range j.matrices {
		if name := m.Scheme.Algorithm.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		follows = follows || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
	}
	slices.Sort(names)
	for i, n := range names {
		if i > 0 {
			c.Algorithm += ", "
		}
		c.Algorithm += n
	}
	c.Parameters["damping"] = "max(.01, .2 K/n)"
	c.Parameters["refine"] = j.Refine
	if follows {
		for name, v := range map[string]float64{"follow-inputs": j.FollowInputs, "follow-residual": j.FollowResidual} {
			if c.Parameters[name] = max(v, 0); v == 0 {
				c.Parameters[name] = "1/2 + log2(min(n/8192, n/12K))/4, 1/2 to 1"
			}
		}
	}
	return c
}

// version changes whenever the codes change. Files record it.
const version = 10

// key hashes everything that the codes depend on.
func (j *job) key() (string, error) {
	type matrix struct {
		Name          string
		Scheme        rounding.Scheme
		SmallestScale float32
	}
	var list []matrix
	for _, m := range j.plan.Matrices() {
		list = append(list, matrix{m.Name(), m.Scheme, m.SmallestScale})
	}
	return workdir.Key("codes", j.info(), j.plan.SourceStamps(), list)
}

// open opens the models and their streams.
func (j *job) open(follow bool) (err error) {
	o := model.Options{Threads: j.Threads, Log: quiet}
	j.e = newEngine(j.Threads)
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	dir := j.plan.SourceDir()
	if j.quant, err = model.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	// The hidden states of the quantized model begin with rows of the quantized embedding.
	if m, ok := j.table(); ok {
		r, err := rounding.NewRounder(m.Scheme, m.Cols)
		if err != nil {
			return err
		}
		r.Recover(m.Precision)
		j.quant.SetEmbedding(&roundedTable{j.quant.Embedding(), r})
	}
	if j.quants, err = j.quant.NewStream(j.text.Sequences); err != nil {
		return err
	}
	if !follow {
		return nil
	}
	if j.float, err = model.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	if j.floats, err = j.float.NewStream(j.text.Sequences); err == nil {
		j.floats.ShareMemory(j.quants)
	}
	return err
}

// table finds the embedding, if the plan quantizes it.
func (j *job) table() (table conversion.Matrix, ok bool) {
	for _, m := range j.plan.Matrices() {
		if m.Role == gqf.RoleEmbedding && m.Cols == j.quant.Config().HiddenSize && m.Rows == j.quant.Config().VocabSize {
			if ok { // two candidates: which one the model uses is not known here
				return table, false
			}
			table, ok = m, true
		}
	}
	return table, ok
}

// roundedTable looks up rows of a quantized embedding.
type roundedTable struct {
	model.Embedding
	rounder *rounding.Rounder
}

func (t *roundedTable) Lookup(dst []float32, row int) error {
	if err := t.Embedding.Lookup(dst, row); err != nil {
		return err
	}
	return t.rounder.Round(dst, dst)
}

func (j *job) close() {
	for _, m := range []*model.Model{j.float, j.quant} {
		if m != nil {
			m.Close()
		}
	}
	j.e.close()
}

// note adds the remarks on the next layer, or the lm_head.
func (r *Result) note(n layerNotes) {
	fallbacks := len(n.Unreached) + len(n.Kept) + n.Copied
	r.info.Fallbacks += fallbacks
	r.fallbacks = append(r.fallbacks, fallbacks)
	r.copied += n.Copied
	if len(n.Unreached) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: no calibration token reached it: quantized by search", n.Unreached[0], more(n.Unreached)))
	}
	if len(n.Kept) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: the search has the smaller error: kept", n.Kept[0], more(n.Kept)))
	}
}

// finish warns of matrices of copied layers that the search quantized, and of matrices that are not part
// of the model that was run.
func (r *Result) finish(j *job) {
	if r.info.Fallbacks > 0 {
		r.info.LayerFallbacks = r.fallbacks
	}
	if r.copied > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %d matrices of the layers that were copied were quantized by search: no calibration token reached them, or the search had the smaller error", j.Options.Older.Name, r.copied))
	}
	var missed []string
	for _, m := range r.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() && r.store.results[m.Name()] == nil {
			missed = append(missed, m.Name())
		}
	}
	if len(missed) > 0 {
		r.info.Fallbacks += len(missed)
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: not part of the language model that calibration runs: quantized by search", missed[0], more(missed)))
	}
}

func more(names []string) string {
	if len(names) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(names)-1)
}
