package calib

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// An importance matrix holds the diagonal of the Hessian H only, so a search with these weights may
// choose worse codes than a search without data: errors of different columns add up where their
// activations are correlated. Each row is therefore rounded both ways and keeps the rounding with
// the smaller e^T H e for its error e. H comes from a sample of activations X, as |X e|^2.
const (
	// sampledTokens is how many evenly spaced tokens of the text give activations. More tokens hardly
	// improve the choice, and 128 are nearly as good.
	sampledTokens = 512
	// sampledByExperts is sampledTokens for experts: each sees a part of the tokens.
	sampledByExperts = 4 * sampledTokens
	// leastSample is the least number of activations for a choice without the diagonal.
	leastSample = 32
	// If the diagonal decides, the error with an importance matrix must be below this part of the
	// error without. The diagonal knows too little for smaller differences: at 2 bits, a choice by any
	// difference has 1.03 times the KL divergence of the search on a model.
	clearly = 0.9
)

// ChoiceTokens is the cost of comparing roundings on a sample, in tokens of a forward pass.
const ChoiceTokens = 2 * sampledTokens

// ChoiceBytes is the memory for comparing the roundings of a layer without experts, with cols
// inputs of linear layers: sample, and for some rows the weights, both errors, packed, and outputs.
func ChoiceBytes(cols int64) int64 {
	return 4 * (sampledTokens*cols + 4*chosenRows*cols + sampledTokens*chosenRows)
}

type chooser struct {
	ctx  context.Context
	e    *engine
	plan *fromcheckpoint.Plan

	w      []float32    // rows of weights
	errors [2][]float32 // of the roundings of these rows, without and with weights of columns
	out    []float32
}

// roundings are the numbers of errors, see chooser.
const (
	unweighted = iota
	weighted
)

const chosenRows = 256

// choose returns which rows of m lose less with weights d, judged by x, or by d if x is nil.
func (c *chooser) choose(m plan.Matrix, d []float32, x *sample) ([]bool, error) {
	rounders := make([]*rounding.Rounder, c.e.pool.Threads())
	for i := range rounders {
		r, err := m.Rounder(m.Scheme.Algorithm)
		if err != nil {
			return nil, matrixError(m, err)
		}
		if m.FloatZeros {
			r.UseFloatZeros()
		}
		rounders[i] = r
	}
	rows := make([]bool, m.Rows)
	for at := 0; at < m.Rows; at += chosenRows {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		n := min(chosenRows, m.Rows-at)
		if err := c.plan.ReadRows(buffer.Grow(&c.w, n*m.Cols), m, at, n); err != nil {
			return nil, err
		}
		for i := range c.errors {
			buffer.Grow(&c.errors[i], n*m.Cols)
		}
		c.e.rows(n, 8, func(worker, from, to int) {
			for r := from; r < to; r++ {
				c.round(rounders[worker], d, r, m.Cols)
			}
		})
		part := 1.0
		if x == nil {
			part = clearly
		}
		was, now := c.losses(unweighted, d, x, n, m.Cols), c.losses(weighted, d, x, n, m.Cols)
		for r := range n {
			rows[at+r] = now[r] < float64(part*was[r]) // false if a sum is not finite
		}
	}
	return rows, nil
}

func (c *chooser) round(q *rounding.Rounder, d []float32, r, cols int) {
	w := c.w[r*cols:][:cols]
	for i, weights := range [][]float32{unweighted: nil, weighted: d} {
		e := c.errors[i][r*cols:][:cols]
		q.Weigh(weights, false)
		if err := q.Round(e, w); err != nil { // writing the file will report this
			for i := range c.errors {
				clear(c.errors[i][r*cols:][:cols])
			}
			return
		}
		for k, v := range w {
			e[k] = v - e[k]
		}
	}
}

// losses are the squared errors of the outputs of n rows, or of their weights times d.
func (c *chooser) losses(rounding int, d []float32, x *sample, n, cols int) []float64 {
	sums, e := make([]float64, n), c.errors[rounding]
	if x == nil {
		for r := range sums {
			for k, v := range e[r*cols:][:cols] {
				sums[r] += float64(float64(d[k]) * float64(float32(v*v)))
			}
		}
		return sums
	}
	out := buffer.Grow(&c.out, x.rows*n)
	c.e.product(out, x.rows, n, cols, operand{Data: x.x, Stride: cols}, operand{Data: e, Stride: cols, Transposed: true})
	for i, v := range out {
		sums[i%n] += float64(float32(v * v))
	}
	return sums
}

// Weighed is the number of a plan's weights that are rounded with an importance matrix.
func Weighed(p *fromcheckpoint.Plan) (n int64) {
	for _, m := range p.Matrices() {
		if weighs(m.Scheme.Algorithm) {
			n += int64(m.Rows) * int64(m.Cols)
		}
	}
	return n
}

func weighs(a gqf.Algorithm) bool { return a == gqf.AlgorithmImatrix || a == gqf.AlgorithmAWQ }

// Choose chooses the rows that are rounded with the second moments, by these alone, in the plan's
// matrices that Collect has not seen. Progress gets numbers of weights.
func (im *Imatrix) Choose(ctx context.Context, p *fromcheckpoint.Plan, o Options) error {
	e := newEngine(o.Threads)
	defer e.close()
	c := &chooser{ctx: ctx, e: e, plan: p}
	for _, m := range p.Matrices() {
		if err := im.choose(c, m, nil); err != nil {
			return err
		}
		if o.Progress != nil && weighs(m.Scheme.Algorithm) {
			o.Progress(int64(m.Rows) * int64(m.Cols))
		}
	}
	return nil
}

func (im *Imatrix) choose(c *chooser, m plan.Matrix, x *sample) error {
	name := m.Name()
	if im.Choices[name] != nil || !weighs(m.Scheme.Algorithm) {
		return nil
	}
	d, err := im.weights(m)
	if d == nil || err != nil {
		return err
	}
	im.Choices[name], err = c.choose(m, d, x)
	return err
}

// weights returns the second moments of a matrix's inputs with mean 1, or nil without an entry.
func (im *Imatrix) weights(m plan.Matrix) ([]float32, error) {
	own := im.Linears[m.Name()]
	if own == nil {
		return nil, nil
	}
	if len(own.Sum) != m.Cols {
		return nil, fmt.Errorf("imatrix: %q has %d columns there and %d in the checkpoint", m.Name(), len(own.Sum), m.Cols)
	}
	sum := 0.0
	for _, v := range own.Sum {
		sum += v
	}
	if !(sum > 0) {
		return nil, nil
	}
	w := make([]float32, m.Cols)
	for i, v := range own.Sum {
		w[i] = float32(max(v/sum*float64(m.Cols), 1e-6))
	}
	return w, nil
}

// Codes weights the searches of the plan's matrices with the algorithms imatrix and awq with the
// second moments, in the rows that Collect or Choose chose. Its warnings name the matrices without
// an entry. If no matrix has an entry, Codes returns an error.
func (im *Imatrix) Codes(p *fromcheckpoint.Plan, info provenance.Calibration) (*plan.Codes, error) {
	importance := map[string]*plan.Importance{}
	var missed []string
	algorithm := gqf.AlgorithmImatrix
	found, rows, chosen := 0, 0, 0
	for _, m := range p.Matrices() {
		if !weighs(m.Scheme.Algorithm) {
			continue
		}
		algorithm = m.Scheme.Algorithm
		w, err := im.weights(m)
		if err != nil {
			return nil, err
		}
		name := m.Name()
		importance[name] = &plan.Importance{Weights: w, Rows: im.Choices[name]}
		if w == nil {
			missed = append(missed, name)
			continue
		}
		found++
		rows += m.Rows
		for _, ok := range im.Choices[name] {
			if ok {
				chosen++
			}
		}
	}
	if len(importance) > 0 && found == 0 {
		return nil, errors.New("the imatrix has no entry for any of the checkpoint's tensors: was it made of another model?")
	}
	info.Parameters = maps.Clone(info.Parameters)
	if info.Parameters == nil {
		info.Parameters = map[string]any{}
	}
	info.Parameters["rows"], info.Parameters["rows-weighted"] = rows, chosen
	c := &plan.Codes{Calibration: &info, Importance: func(m plan.Matrix) *plan.Importance { return importance[m.Name()] }}
	warn(&c.Warnings, missed, unreached)
	info.Algorithm, info.Fallbacks = algorithm.String(), len(missed)
	return c, nil
}
