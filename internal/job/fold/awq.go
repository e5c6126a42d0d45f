package fold

import (
	"context"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/kernels"
)

const (
	// awqSteps is the number of exponents that are tried: 0/20 to 19/20.
	awqSteps = 20
	// awqRows is the number of tokens that outputs are computed for.
	awqRows = 512
	// awqPanel is the number of outputs that are computed at a time.
	awqPanel = 1024
)

// AWQ chooses factors for the checkpoint in a directory as AWQ does (J. Lin et al., "AWQ", 2023;
// llm-awq, auto_scale.py). For each place, t = m^a / sqrt(max m^a min m^a), where m is the mean
// magnitude of the consumers' inputs over a text, and a the exponent in {0, 1/20, ..., 19/20} that
// minimizes the consumers' output error on 512 of the text's tokens. Only consumers with the
// algorithm awq in o count, quantized as o says by the search with the second moments of the
// inputs. All activations come from the float model.
func AWQ(ctx context.Context, dir string, o conversion.Options, text *text.Text, own Options) (Step, error) {
	s := Step{Kind: KindScale, By: ByAWQ, Parameters: map[string]any{"grid": awqSteps, "rows": awqRows}}
	j := &awq{ctx: ctx, Options: own, text: text, matrices: map[string]plan.Matrix{}}
	if err := j.open(dir, o); err != nil {
		return s, err
	}
	defer j.close()
	for layer := range j.m.Config().Layers {
		places := j.m.Scalings(layer)
		for block := range j.stream.Blocks(layer) {
			own := slices.DeleteFunc(slices.Clone(places), func(p forward.Scaling) bool { return p.Block != block })
			list, err := j.block(layer, block, own)
			if err != nil {
				return s, err
			}
			s.Scalings = append(s.Scalings, list...)
		}
		j.layerDone(j.ck.Checkpoint, len(j.m.Config().Layers))
	}
	return s, nil
}

type awq struct {
	Options
	ctx      context.Context
	text     *text.Text
	ck       *source
	plan     *fromcheckpoint.Plan
	matrices map[string]plan.Matrix // those with the algorithm awq
	m        *forward.Model
	stream   *forward.Stream
	pool     *kernels.Pool
	work     *kernels.Workspace
	starts   []int // of the sequences, in tokens
	stride   int   // between sampled tokens
	w, d     []float32
	out      []float32
}

func (j *awq) open(dir string, o conversion.Options) (err error) {
	j.pool = kernels.NewPool(j.Threads)
	j.work = kernels.NewWorkspace(j.pool)
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if j.ck, err = openSource(dir); err != nil {
		return err
	}
	if j.plan, err = conversion.NewPlan(j.ck.Checkpoint, j.ck.config, o); err != nil {
		return err
	}
	for _, m := range j.plan.Matrices() {
		if m.Scheme.Algorithm == gqf.AlgorithmAWQ {
			j.matrices[m.Name()] = m
		}
	}
	if j.m, err = openModel(dir, j.Threads); err != nil {
		return err
	}
	if j.stream, err = j.m.NewStream(j.text.Sequences); err != nil {
		return err
	}
	n := 0
	for _, s := range j.text.Sequences {
		j.starts = append(j.starts, n)
		n += len(s)
	}
	j.stride = max(1, (n+awqRows-1)/awqRows)
	return nil
}

func (j *awq) close() {
	if j.m != nil {
		j.m.Close()
	}
	if j.ck != nil {
		j.ck.Close()
	}
	j.pool.Close()
}

type inputs struct {
	n       int
	size    []float64 // sums of |x|
	squares []float64
	x       []float32 // sampled rows
}

// block chooses the factors of a block and moves the stream behind the block.
func (j *awq) block(layer, block int, places []forward.Scaling) (list []Factors, err error) {
	seen := map[string]*inputs{}
	for i := range places {
		if len(j.quantized(&places[i])) == 0 {
			continue
		}
		for _, name := range watched(&places[i]) {
			seen[name] = &inputs{}
		}
	}
	for seq := range j.stream.Len() {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		var visit func(in *forward.Input)
		if len(seen) > 0 {
			visit = func(in *forward.Input) {
				if s := seen[in.Name]; s != nil {
					j.collect(s, in, seq)
				}
			}
		}
		if err := j.stream.AdvanceVisit(seq, layer, block, visit); err != nil {
			return nil, err
		}
	}
	for i := range places {
		s := &places[i]
		if len(j.quantized(s)) == 0 {
			continue
		}
		t, err := j.choose(s, seen)
		if err != nil {
			return nil, err
		}
		if t != nil {
			list = append(list, FactorsOf(s, t))
		}
	}
	return list, nil
}

// quantized lists the consumers with the algorithm awq.
func (j *awq) quantized(s *forward.Scaling) (list []forward.Block) {
	for _, b := range s.Consumers {
		if _, ok := j.matrices[b.Linear]; ok {
			list = append(list, b)
		}
	}
	return list
}

// watched lists the linear layers to collect inputs of: the first consumer, and the first of each
// expert. The others share their inputs.
func watched(s *forward.Scaling) (names []string) {
	last := -2
	for _, b := range s.Consumers {
		if b.Expert != last {
			names, last = append(names, b.Linear), b.Expert
		}
	}
	return names
}

func (j *awq) collect(s *inputs, in *forward.Input, seq int) {
	if s.size == nil {
		s.size, s.squares = make([]float64, in.K), make([]float64, in.K)
	}
	for r := range in.Rows {
		x := in.X[r*in.K:][:in.K]
		s.n++
		for i, v := range x {
			s.size[i] += float64(max(v, -v))
			s.squares[i] += float64(float64(v) * float64(v))
		}
		token := r
		if in.Tokens != nil {
			token = in.Tokens[r]
		}
		if (j.starts[seq]+token)%j.stride == j.stride/2 {
			s.x = append(s.x, x...)
		}
	}
}

// choose finds the factors of a place, or nil if all factors 1 are best.
func (j *awq) choose(s *forward.Scaling, seen map[string]*inputs) (best []float32, err error) {
	mean := make([]float64, s.Width)
	first := seen[s.Consumers[0].Linear]
	if first == nil || first.n == 0 {
		return nil, nil // an expert that no token was routed to
	}
	for c, v := range first.size {
		mean[s.Factor(c)] += v / float64(first.n)
	}
	least := 0.0
	for step := range awqSteps {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		t := power(mean, float64(step)/awqSteps)
		loss, err := j.loss(s, t, seen)
		if err != nil {
			return nil, err
		}
		if step == 0 || loss < least {
			least, best = loss, t
			if step == 0 {
				best = nil
			}
		}
	}
	return best, nil
}

// power returns AWQ's factors for an exponent, rounded to BF16's 8 bits for short records.
func power(mean []float64, a float64) []float32 {
	t := make([]float64, len(mean))
	low, high := 0.0, 0.0
	for i, m := range mean {
		t[i] = max(detmath.Pow(m, a), 1e-4)
		if i == 0 {
			low, high = t[i], t[i]
		}
		low, high = min(low, t[i]), max(high, t[i])
	}
	unit := detmath.Pow(float64(low*high), -0.5)
	out := make([]float32, len(t))
	for i, v := range t {
		out[i] = bf16(float64(v * unit))
	}
	return out
}

func bf16(v float64) float32 { return floats.BF16ToF32(floats.BF16FromF32(float32(v))) }

func (j *awq) loss(s *forward.Scaling, t []float32, seen map[string]*inputs) (sum float64, err error) {
	var in *inputs
	last := -2
	for _, b := range s.Consumers {
		if b.Expert != last {
			in, last = seen[b.Linear], b.Expert
		}
		m, ok := j.matrices[b.Linear]
		if !ok || in == nil || len(in.x) == 0 {
			continue
		}
		if err := j.difference(s, m, t, in); err != nil {
			return 0, fmt.Errorf("tensor %q: %w", m.Name(), err)
		}
		sum += j.outputs(m, in)
	}
	return sum, nil
}

// difference sets j.d to the error of quantizing the matrix with the factors t, [rows][cols].
func (j *awq) difference(s *forward.Scaling, m plan.Matrix, t []float32, in *inputs) error {
	w, d := buffer.Grow(&j.w, m.Rows*m.Cols), buffer.Grow(&j.d, m.Rows*m.Cols)
	if err := j.plan.ReadMatrix(w, m); err != nil {
		return err
	}
	cols := make([]float32, m.Cols)
	weights := make([]float32, m.Cols)
	total := 0.0
	for c := range cols {
		cols[c] = t[s.Factor(c)]
		total += in.squares[c] / float64(float64(cols[c])*float64(cols[c]))
	}
	for c := range weights {
		weights[c] = 1
		if total > 0 {
			v := in.squares[c] / float64(float64(cols[c])*float64(cols[c]))
			weights[c] = float32(max(v/total*float64(m.Cols), 1e-6))
		}
	}
	const piece = 16 // rows
	return j.pool.Pieces(m.Rows, piece, func(_, from, to int) error {
		q, err := rounding.NewRounder(m.Scheme, m.Cols)
		if err != nil {
			return err
		}
		q.LimitScales(m.SmallestScale)
		q.Weigh(weights, false)
		x := make([]float32, m.Cols)
		for r := from; r < to; r++ {
			for c, v := range w[r*m.Cols:][:m.Cols] {
				x[c] = float32(v * cols[c])
			}
			row := d[r*m.Cols:][:m.Cols]
			if err := q.Round(row, x); err != nil {
				return err
			}
			for c, v := range row {
				row[c] = (v - x[c]) / cols[c]
			}
		}
		return nil
	})
}

func (j *awq) outputs(m plan.Matrix, in *inputs) (sum float64) {
	k := m.Cols
	rows := len(in.x) / k
	for at := 0; at < m.Rows; at += awqPanel {
		n := min(awqPanel, m.Rows-at)
		out := buffer.Grow(&j.out, rows*n)
		d := j.d[at*k:][:n*k]
		op, err := kernels.NewRows(n, k, func(dst []float32, row int) { copy(dst, d[row*k:][:k]) }, nil, kernels.Options{Log: quiet})
		if err == nil {
			err = op.Forward(j.work, out, in.x, rows)
		}
		if err != nil {
			panic(err) // the lengths are wrong
		}
		for _, v := range out {
			sum += float64(float64(v) * float64(v))
		}
	}
	return sum
}
