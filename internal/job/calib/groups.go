package calib

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

type group struct {
	forward.Group
	matrices []plan.Matrix // those quantized with calibration
	follow   bool          // collect the differences from the float model
	hessian  *hessian
}

func (j *job) prepare(g forward.Group) *group {
	own := &group{Group: g}
	for _, name := range g.Linears {
		if m, ok := j.matrices[name]; ok {
			own.matrices = append(own.matrices, m)
			own.follow = own.follow || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
		}
	}
	return own
}

func (g *group) cols() int { return g.matrices[0].Cols }

func (g *group) outputs() (n int) {
	for _, m := range g.matrices {
		n += m.Rows
	}
	return n
}

// ofOutputs reports whether a group's hessian multiplies differences with weights before summing:
// for less work than multiplying the sums, or for the sake of residuals.
func (g *group) ofOutputs() bool {
	return g.follow && (g.Residual || g.outputs() <= g.cols())
}

func (g *group) hessianBytes() int64 {
	switch {
	case g.ofOutputs():
		return hessianBytes(g.cols(), g.outputs(), true)
	case g.follow:
		return hessianBytes(g.cols(), g.cols(), false)
	}
	return hessianBytes(g.cols(), 0, false)
}

func (j *job) newHessian(g *group) error {
	k := g.cols()
	if !g.ofOutputs() {
		g.hessian = newHessian(j.e, k, g.follow)
		return nil
	}
	weights := j.e.floats.Take(g.outputs() * k)
	at := 0
	for _, m := range g.matrices {
		if err := j.plan.ReadMatrix(weights[at:][:m.Rows*k], m); err != nil {
			return err
		}
		at += m.Rows * k
	}
	factor := float32(0)
	if g.Residual { // else the factor follows when the number of rows is known
		factor = follow(j.quants.Tokens(), k)
	}
	g.hessian = newHessianOf(j.e, k, weights, factor)
	return nil
}

// batch takes groups from a stage, at least the first, within BatchBytes.
func (j *job) batch(stage []forward.Group) []forward.Group {
	bytes := int64(0)
	for i, g := range stage {
		if own := j.prepare(g); len(own.matrices) > 0 {
			bytes += own.hessianBytes()
		}
		if i > 0 && bytes > j.BatchBytes {
			return stage[:i]
		}
	}
	return stage
}

// stage chooses the codes of groups that do not depend on each other, for the quantized model.
func (j *job) stage(layer int, stage []forward.Group) (undo []func(), err error) {
	var groups []*group
	first := map[string]*group{} // by the name of the first linear layer
	for _, g := range stage {
		own := j.prepare(g)
		if len(own.matrices) == 0 {
			continue
		}
		if err := j.newHessian(own); err != nil {
			return nil, err
		}
		groups = append(groups, own)
		first[g.Linears[0]] = own
	}
	if len(groups) == 0 {
		return nil, nil
	}
	j.moved = j.last && j.floats != nil
	if n := inputsOf(groups[0], j.quants.Tokens()); j.last && n > 0 && j.quant.Finishes() {
		j.inputs = buffer.Grow(&j.inputs, n)
	}
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return nil, err
		}
		if err := j.collect(seq, layer, stage[0].Block, first); err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		if err := j.ctx.Err(); err != nil {
			return undo, err
		}
		g.hessian.done()
		list, err := j.solve(g)
		if err != nil {
			return undo, err
		}
		g.hessian = nil
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

// inputBytes bounds the memory for inputs of the last linear layer of a block. Beyond this, the
// quantized model's block runs a second time.
const inputBytes = 512 << 20

// inputsOf is the number of stored input values of a group, the last of a block.
func inputsOf(g *group, tokens int) int {
	if n := g.cols() * tokens; g.Expert < 0 && !g.Shared && n <= inputBytes/4 {
		return n
	}
	return 0
}

// seen are the inputs that linear layers of the float model had.
type seen struct {
	x      []float32
	tokens []int
}

// match returns the rows in s, or -1, of the other model's tokens. Lists ascend; nil: all tokens.
func (s *seen) match(rows int, tokens []int) []int {
	list := make([]int, rows)
	at := 0
	for r := range list {
		list[r] = r
		if tokens == nil {
			continue
		}
		for at < len(s.tokens) && s.tokens[at] < tokens[r] {
			at++
		}
		if list[r] = -1; at < len(s.tokens) && s.tokens[at] == tokens[r] {
			list[r] = at
		}
	}
	return list
}

func difference(d, a, b []float32) {
	for i, v := range a {
		d[i] = v - b[i]
	}
}

// collect adds a sequence's activations to the groups. In the last stage of a block, collect also
// moves the float model's stream past the block.
func (j *job) collect(seq, layer, block int, first map[string]*group) error {
	floats := map[string]*seen{}
	var residual []float32 // the float model's hidden states
	if j.floats != nil {
		left := len(first)
		see := func(in *forward.Input) {
			if g := first[in.Name]; g != nil {
				left--
				if g.follow {
					rows := in.Rows
					if in.Tokens == nil { // every sequence takes the same slice
						rows = j.longest
					}
					floats[in.Name] = &seen{append(j.e.floats.Take(rows * in.K)[:0], in.X...), slices.Clone(in.Tokens)}
				}
			}
		}
		residual = j.floats.Hidden(seq)
		var err error
		if j.moved {
			residual = append(j.e.floats.Take(j.longest * j.quant.Config().HiddenSize)[:0], residual...)
			defer j.e.floats.Put(residual)
			err = j.floats.AdvanceVisit(seq, layer, block, see)
		} else {
			err = j.floats.Visit(seq, layer, block, func(in *forward.Input) bool { see(in); return left > 0 })
		}
		if err != nil {
			return err
		}
	}
	left := len(first)
	return j.quants.Visit(seq, layer, block, func(in *forward.Input) bool {
		if g := first[in.Name]; g != nil {
			other := floats[in.Name]
			j.add(g, seq, in, other, residual)
			if other != nil {
				j.e.floats.Put(other.x)
			}
			left--
		}
		return left > 0
	})
}

// add adds the inputs of a linear layer for one sequence to its group.
func (j *job) add(g *group, seq int, in *forward.Input, other *seen, residual []float32) {
	k, width := in.K, j.quant.Config().HiddenSize
	hidden := j.quants.Hidden(seq)
	var rows []int
	if other != nil {
		rows = other.match(in.Rows, in.Tokens)
	}
	var keep []float32
	if len(j.inputs) > 0 {
		keep = j.inputs[j.quants.Start(seq)*k:]
	}
	g.hessian.add(in.Rows, func(i int, x, d, r []float32) {
		copy(x, in.X[i*k:][:k])
		if keep != nil {
			copy(keep[i*k:], x)
		}
		switch {
		case d == nil:
		case rows == nil || rows[i] < 0:
			clear(d)
		default:
			difference(d, other.x[rows[i]*k:][:k], x)
		}
		if r != nil {
			difference(r, residual[i*width:][:width], hidden[i*width:])
		}
	})
}
