package calib

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer"
)

// Options of a job. The zero value is good.
type Options struct {
	// Refine adds coordinate descent and a refit of scales.
	Refine bool
	// FollowInputs and FollowResidual say how far gptq-ft follows the float path: a and r of the package's text. Default
	// (0): see follow; negative for 0.
	FollowInputs, FollowResidual float64
	// WorkDir keeps the results of finished layers; a job for the same result goes on from them. Default: memory.
	WorkDir string
	// Threads. Default: GOMAXPROCS.
	Threads int
	// Progress is called with weights that are done since the last call, of Work(plan). Default: none.
	Progress func(n int64)
	// BatchBytes bounds what the second moments of experts take at a time. Default: 2 GiB.
	BatchBytes int64
}

func (o Options) withDefaults() Options {
	if o.BatchBytes == 0 {
		o.BatchBytes = 2 << 30
	}
	return o
}

// Calibrated tells whether an algorithm chooses codes with calibration data.
func Calibrated(a gqf.Algorithm) bool { return a == gqf.AlgorithmGPTQ || a == gqf.AlgorithmGPTQFT }

// Work is the number of weights of a plan that Run chooses codes for.
func Work(p *quantizer.Plan) (n int64) {
	for _, m := range p.Matrices() {
		if Calibrated(m.Scheme.Algorithm) {
			n += int64(m.Rows) * int64(m.Cols)
		}
	}
	return n
}

// Result holds the codes that a job chose.
type Result struct {
	Warnings []string
	store    *store
	info     quantizer.Calibration
	plan     *quantizer.Plan
}

// Chosen is what quantizer.Plan.SetChosen takes. It is valid until Close.
func (r *Result) Chosen() *quantizer.Chosen {
	c := &quantizer.Chosen{Calibration: &r.info}
	c.Rows = func(m quantizer.Matrix) quantizer.RowReader {
		if rows := r.store.results[m.Name()]; rows != nil && Calibrated(m.Scheme.Algorithm) {
			return rows
		}
		return nil
	}
	return c
}

// Close ends the reading of the work directory. RemoveWork can then remove it, when nobody needs it any more.
func (r *Result) Close() { r.store.close() }

// job is a running job.
type job struct {
	Options
	ctx      context.Context
	e        *engine
	plan     *quantizer.Plan
	text     *Text
	matrices map[string]quantizer.Matrix
	float    *model.Model // nil: no algorithm follows it
	quant    *model.Model
	floats   *model.Stream
	quants   *model.Stream
	store    *store
	progress func(n int64)

	notes layerNotes // of the layer at hand
	names []string
	done  []*codes
}

// Run chooses the codes of all matrices of a plan whose algorithm is gptq or gptq-ft. The plan's checkpoint has to be one
// that package model runs.
func Run(ctx context.Context, p *quantizer.Plan, text *Text, o Options) (*Result, error) {
	o = o.withDefaults()
	j := &job{Options: o, ctx: ctx, plan: p, text: text, matrices: map[string]quantizer.Matrix{}, progress: o.Progress}
	if j.progress == nil {
		j.progress = func(int64) {}
	}
	follow := false
	for _, m := range p.Matrices() {
		if Calibrated(m.Scheme.Algorithm) {
			j.matrices[m.Name()] = m
			follow = follow || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
		}
	}
	r := &Result{plan: p, info: j.info()}
	var err error
	if r.store, err = openStore(o.WorkDir, j.key()); err != nil {
		return nil, err
	}
	j.store = r.store
	if err := j.open(follow); err != nil {
		return nil, err
	}
	defer j.close()
	if err := j.run(r); err != nil {
		r.store.close()
		return nil, err
	}
	return r, nil
}

// info is what the file will say of the job.
func (j *job) info() quantizer.Calibration {
	c := quantizer.Calibration{Source: j.text.Source, SHA256: j.text.SHA256, Tokens: j.text.Tokens(), Sequences: len(j.text.Sequences), Seed: j.text.Seed, Parameters: map[string]any{}}
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

// keyVersion changes with whatever changes results.
const keyVersion = 2

// key is the hash of all that the codes depend on. The checkpoint's files are known by size and time: their contents are
// not read for it.
func (j *job) key() string {
	type file struct {
		Name string
		Size int64
		Time int64
	}
	type matrix struct {
		Name   string
		Scheme quantizer.Scheme
	}
	key := struct {
		Version  int
		Info     quantizer.Calibration
		IDs      string
		Files    []file
		Matrices []matrix
		Dir      string
	}{Version: keyVersion, Info: j.info(), IDs: hashIDs(j.text.Sequences)}
	for _, path := range j.plan.SourceFiles() {
		f := file{Name: filepath.Base(path)}
		if st, err := os.Stat(path); err == nil {
			f.Size, f.Time = st.Size(), st.ModTime().UnixNano()
		}
		key.Files = append(key.Files, f)
	}
	for _, m := range j.plan.Matrices() {
		key.Matrices = append(key.Matrices, matrix{m.Name(), m.Scheme})
	}
	raw, err := json.Marshal(key)
	if err != nil {
		panic(err) // it holds nothing that JSON does not have
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
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
	// Its hidden states begin with the rows of the quantized table.
	if m, ok := j.table(); ok {
		r, err := quantizer.NewRounder(m.Scheme, m.Cols)
		if err != nil {
			return err
		}
		j.quant.SetTable(&roundedTable{j.quant.Table(), r})
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
	j.floats, err = j.float.NewStream(j.text.Sequences)
	return err
}

// table is the table of tokens, if the plan quantizes it.
func (j *job) table() (table quantizer.Matrix, ok bool) {
	for _, m := range j.plan.Matrices() {
		if m.Role == gqf.RoleEmbedding && m.Cols == j.quant.Config().HiddenSize && m.Rows == j.quant.Config().VocabSize {
			if ok { // two of them: which is the model's is not known here
				return table, false
			}
			table, ok = m, true
		}
	}
	return table, ok
}

// roundedTable gives what the codes of a table's rows stand for.
type roundedTable struct {
	model.Table
	rounder *quantizer.Rounder
}

func (t *roundedTable) Lookup(dst []float32, row int) error {
	if err := t.Table.Lookup(dst, row); err != nil {
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

// run goes through the layers.
func (j *job) run(r *Result) error {
	layers := len(j.quant.Config().Layers)
	for layer := range layers {
		l, err := j.store.get(layer)
		if err != nil {
			return err
		}
		if l != nil {
			if err := j.resume(layer, l); err != nil {
				return err
			}
		} else {
			if err := j.layer(layer); err != nil {
				return err
			}
			if err := j.keep(layer); err != nil {
				return err
			}
		}
		r.note(j.notes)
	}
	l, err := j.store.get(layers)
	if err != nil {
		return err
	}
	if l == nil {
		if err := j.head(); err != nil {
			return err
		}
		if err := j.keep(layers); err != nil {
			return err
		}
	} else {
		j.notes = l.index.Notes
		j.count(l)
	}
	r.note(j.notes)
	r.finish(j)
	return nil
}

func (j *job) keep(layer int) error {
	return j.store.put(layer, j.names, j.done, j.notes)
}

// layer chooses the codes of a layer and moves the streams behind it.
func (j *job) layer(layer int) error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	stages := j.quant.Stages(layer)
	var undo []func()
	for i, stage := range stages {
		for len(stage) > 0 {
			batch := j.batch(stage)
			stage = stage[len(batch):]
			u, err := j.stage(layer, batch)
			undo = append(undo, u...)
			if err != nil {
				return err
			}
		}
		if part := stages[i][0].Part; i+1 == len(stages) || stages[i+1][0].Part != part {
			if err := j.advance(layer, part); err != nil {
				return err
			}
		}
	}
	for _, u := range undo { // the codes are not needed in memory any more
		u()
	}
	return nil
}

// resume moves the streams behind a layer that is done.
func (j *job) resume(layer int, l *layerFile) error {
	j.notes = l.index.Notes
	var undo []func()
	for i := range l.index.Matrices {
		m := &l.index.Matrices[i]
		c, err := (&storedMatrix{l, m}).load()
		if err != nil {
			return err
		}
		u, err := j.replace(m.Name, c)
		if err != nil {
			return err
		}
		undo = append(undo, u)
	}
	for _, part := range []model.Part{model.Attention, model.FeedForward} {
		if err := j.advance(layer, part); err != nil {
			return err
		}
	}
	for _, u := range undo {
		u()
	}
	j.count(l)
	return nil
}

func (j *job) count(l *layerFile) {
	for _, m := range l.index.Matrices {
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
}

// replace puts codes in the place of a linear's weights.
func (j *job) replace(name string, c *codes) (undo func(), err error) {
	op, err := kernels.NewRows(c.rows, c.cols, c.row, nil, kernels.Options{Log: quiet})
	if err != nil {
		return nil, err
	}
	return j.quant.SetLinear(name, op, false)
}

func (j *job) advance(layer int, part model.Part) error {
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if err := j.quants.Advance(seq, layer, part); err != nil {
			return err
		}
		if j.floats != nil {
			if err := j.floats.Advance(seq, layer, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is a model.Group with what is collected for it.
type group struct {
	model.Group
	matrices []quantizer.Matrix // those to be quantized with calibration
	follow   bool               // the float path
	g        *gram
}

// prepare finds a group's matrices.
func (j *job) prepare(g model.Group) *group {
	own := &group{Group: g}
	for _, name := range g.Linears {
		if m, ok := j.matrices[name]; ok {
			own.matrices = append(own.matrices, m)
			own.follow = own.follow || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
		}
	}
	return own
}

// follow is how far n rows of k inputs let a target follow the float path, if that was not stated: half as far as they say
// up to 8192 rows, as what they say has the more noise the fewer they are and the more inputs there are; all the way from
// 32768 rows on, if there are 48 of them an input. (All the way is 1-8 % worse than half with 8192 self-written tokens on
// the models of docs/QUALITY.md, and 0-16 % better with 32768.)
func follow(stated float64, n, k int) float32 {
	if stated != 0 {
		return float32(max(stated, 0))
	}
	ratio := min(float64(n)/8192, float64(n)/float64(12*k))
	if ratio <= 1 {
		return 0.5
	}
	return float32(min(0.5+float64(detmath.Log(ratio)/(4*math.Ln2)), 1))
}

func (j *job) width(g *group) int {
	if g.follow && g.Residual && j.FollowResidual >= 0 {
		return j.quant.Config().HiddenSize
	}
	return 0
}

func (g *group) cols() int { return g.matrices[0].Cols }

// batch takes from a stage as many groups as may be collected at a time, at least one.
func (j *job) batch(stage []model.Group) []model.Group {
	bytes := int64(0)
	for i, g := range stage {
		if own := j.prepare(g); len(own.matrices) > 0 {
			bytes += gramBytes(own.cols(), own.follow && j.FollowInputs >= 0, j.width(own))
		}
		if i > 0 && bytes > j.BatchBytes {
			return stage[:i]
		}
	}
	return stage
}

// stage chooses the codes of groups that do not depend on each other and has the quantized stream use them.
func (j *job) stage(layer int, stage []model.Group) (undo []func(), err error) {
	var groups []*group
	first := map[string]*group{} // by the name of the first linear
	for _, g := range stage {
		own := j.prepare(g)
		if len(own.matrices) == 0 {
			continue
		}
		own.g = newGram(j.e, own.cols(), own.follow && j.FollowInputs >= 0, j.width(own))
		groups = append(groups, own)
		first[g.Linears[0]] = own
	}
	if len(groups) == 0 {
		return nil, nil
	}
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		if err := j.collect(seq, layer, stage[0].Part, first); err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		if err := j.ctx.Err(); err != nil {
			return undo, err
		}
		g.g.done()
		list, err := j.solve(g)
		if err != nil {
			return undo, err
		}
		g.g = nil
		for i, m := range g.matrices {
			j.names, j.done = append(j.names, m.Name()), append(j.done, list[i])
			u, err := j.replace(m.Name(), list[i])
			if err != nil {
				return undo, err
			}
			undo = append(undo, u)
		}
	}
	return undo, nil
}

// collect adds what a sequence gives the groups.
func (j *job) collect(seq, layer int, part model.Part, first map[string]*group) error {
	type seen struct {
		x      []float32
		tokens []int
	}
	floats := map[string]seen{}
	visits := func(stream *model.Stream, fn func(g *group, in *model.Input)) error {
		left := len(first)
		return stream.Visit(seq, layer, part, func(in *model.Input) bool {
			if g := first[in.Name]; g != nil {
				fn(g, in)
				left--
			}
			return left > 0
		})
	}
	if j.floats != nil {
		err := visits(j.floats, func(g *group, in *model.Input) {
			if g.follow {
				floats[in.Name] = seen{slices.Clone(in.X), slices.Clone(in.Tokens)}
			}
		})
		if err != nil {
			return err
		}
	}
	hidden := j.quants.Hidden(seq)
	var diff []float32
	return visits(j.quants, func(g *group, in *model.Input) {
		other := floats[in.Name]
		h := j.quant.Config().HiddenSize
		residual := make([]float32, h)
		k := in.K
		at := 0 // in the other's tokens
		for r := range in.Rows {
			x := in.X[r*k:][:k]
			token := r
			if in.Tokens != nil {
				token = in.Tokens[r]
			}
			var d, res []float32
			if other.x != nil && g.g.cross != nil {
				row := r
				if in.Tokens != nil { // both lists ascend
					for at < len(other.tokens) && other.tokens[at] < token {
						at++
					}
					row = -1
					if at < len(other.tokens) && other.tokens[at] == token {
						row = at
					}
				}
				if row >= 0 {
					d = grow(&diff, k)
					for i, v := range other.x[row*k:][:k] {
						d[i] = v - x[i]
					}
				}
			}
			if g.g.residual != nil {
				res = residual
				for i, v := range j.floats.Hidden(seq)[token*h:][:h] {
					res[i] = v - hidden[token*h+i]
				}
			}
			g.g.add(x, d, res)
		}
	})
}

// solve chooses the codes of a group's matrices.
func (j *job) solve(g *group) ([]*codes, error) {
	var list []*codes
	if g.g.n == 0 || g.g.zero() {
		for _, m := range g.matrices {
			c, err := j.unreached(m)
			if err != nil {
				return nil, err
			}
			list = append(list, c)
			j.progress(int64(m.Rows) * int64(m.Cols))
		}
		return list, nil
	}
	f, err := factorize(j.e, g.g)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", g.matrices[0].Name(), err)
	}
	j.notes.Dead += f.dead
	g.g.h = nil
	// The targets of all need the factor, which then makes room for the feedback.
	var targets [][]float32
	for _, m := range g.matrices {
		t, err := j.target(g, f, m)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	g.g.cross, g.g.residual = nil, nil
	v := f.feedback()
	f.u = nil
	for i, m := range g.matrices {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		s := newSolver(j.e, f, v, m.Scheme, targets[i], m.Rows)
		s.smallest = m.SmallestScale
		targets[i] = nil
		improved, err := j.choose(s)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if !improved {
			j.notes.Kept = append(j.notes.Kept, m.Name())
		}
		list = append(list, s.result())
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
	return list, nil
}

// choose finds a matrix's codes. GPTQ starts from two sets of scales: of the search in which an error counts its column's
// moment, and of that in which it counts more in a large weight, so that less is cut off; targets grow as they make up for
// errors. Each row gets what has the least error, and no row more than the search gives it.
func (j *job) choose(s *solver) (improved bool, err error) {
	if err := s.search(true); err != nil {
		return false, err
	}
	flat, sloped := s.clone(), s.clone()
	flat.gptq()
	taken := s.takeBetter(flat)
	if err := sloped.search(false); err != nil {
		return false, err
	}
	sloped.gptq()
	taken += s.takeBetter(sloped)
	if j.Refine {
		next := s.clone()
		next.refine()
		taken += s.takeBetter(next)
	}
	return taken > 0, nil
}

// target is what a matrix's codes are to stand for, columns in the factor's order.
func (j *job) target(g *group, f *factor, m quantizer.Matrix) ([]float32, error) {
	n, k := m.Rows, m.Cols
	w := make([]float32, n*k)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, err
	}
	if m.Scheme.Algorithm != gqf.AlgorithmGPTQFT || g.g.cross == nil && g.g.residual == nil {
		return f.permute(w, n), nil
	}
	shift := make([]float32, n*k)
	if g.g.cross != nil {
		j.e.product(shift, w, n, k, k, func(dst []float32, row int) { copy(dst, g.g.cross[row*k:][:k]) })
		a := follow(j.FollowInputs, g.g.n, k)
		for i, v := range shift {
			shift[i] = float32(a * v)
		}
	}
	if g.g.residual != nil {
		r := follow(j.FollowResidual, g.g.n, k)
		for i, v := range g.g.residual {
			shift[i] += float32(r * v)
		}
	}
	shift = f.permute(shift, n)
	f.solve(shift, n)
	t := f.permute(w, n)
	for i, v := range shift {
		t[i] += v
	}
	return t, nil
}

// unreached chooses codes for a matrix whose inputs were never seen.
func (j *job) unreached(m quantizer.Matrix) (*codes, error) {
	j.notes.Unreached = append(j.notes.Unreached, m.Name())
	w := make([]float32, m.Rows*m.Cols)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return nil, err
	}
	scheme := m.Scheme
	scheme.Algorithm = gqf.AlgorithmSearch
	q, err := quantizer.NewRowQuantizer(scheme, m.Cols)
	if err != nil {
		return nil, err
	}
	q.KeepAbove(m.SmallestScale)
	groups := scheme.Groups(m.Cols)
	c := &codes{rows: m.Rows, cols: m.Cols, groups: groups, group: scheme.Group, q: make([]int8, len(w)), scales: make([]float32, m.Rows*groups)}
	if c.group == 0 || c.group > m.Cols {
		c.group = m.Cols
	}
	if scheme.Mapping == gqf.MappingHalfStep {
		c.half = 0.5
	}
	if scheme.Mapping == gqf.MappingAsymmetric {
		c.zeros = make([]int8, m.Rows*groups)
	}
	for r := range m.Rows {
		var zeros []int8
		if c.zeros != nil {
			zeros = c.zeros[r*groups:][:groups]
		}
		if err := q.Quantize(c.q[r*m.Cols:][:m.Cols], c.scales[r*groups:][:groups], zeros, w[r*m.Cols:][:m.Cols], nil); err != nil {
			return nil, matrixError(m, &rowError{r, err})
		}
	}
	return c, nil
}

func matrixError(m quantizer.Matrix, err error) error {
	return fmt.Errorf("tensor %q: %w", m.Name(), err)
}

// head chooses the codes of an output head that is not the table, if it is to be calibrated.
func (j *job) head() error {
	j.notes, j.names, j.done = layerNotes{}, nil, nil
	g := j.prepare(model.Group{Linears: []string{j.quant.Head()}, Expert: -1})
	if len(g.matrices) == 0 {
		return nil
	}
	g.g = newGram(j.e, g.cols(), g.follow && j.FollowInputs >= 0, 0)
	diff := make([]float32, g.cols())
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		var floats []float32
		if g.g.cross != nil {
			j.floats.HeadInput(seq, func(in *model.Input) { floats = slices.Clone(in.X) })
		}
		j.quants.HeadInput(seq, func(in *model.Input) {
			for r := range in.Rows {
				x := in.X[r*in.K:][:in.K]
				var d []float32
				if floats != nil {
					d = diff
					for i, v := range floats[r*in.K:][:in.K] {
						d[i] = v - x[i]
					}
				}
				g.g.add(x, d, nil)
			}
		})
	}
	g.g.done()
	list, err := j.solve(g)
	if err != nil {
		return err
	}
	j.names, j.done = []string{g.matrices[0].Name()}, list
	return nil
}

func (r *Result) note(n layerNotes) {
	r.info.Fallbacks += len(n.Unreached) + len(n.Kept)
	if len(n.Unreached) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: no calibration token reached it: quantized by search", n.Unreached[0], more(n.Unreached)))
	}
	if len(n.Kept) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: the search has the smaller error: kept", n.Kept[0], more(n.Kept)))
	}
}

// finish warns of matrices that are not part of the model that was run.
func (r *Result) finish(j *job) {
	var missed []string
	for _, m := range r.plan.Matrices() {
		if Calibrated(m.Scheme.Algorithm) && r.store.results[m.Name()] == nil {
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
