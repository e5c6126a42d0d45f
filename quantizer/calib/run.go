package calib

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// run goes through the layers. lm_head counts as one.
func (j *job) run(r *Result) error {
	layers := len(j.quant.Config().Layers)
	if err := j.resumed(layers + 1); err != nil {
		return err
	}
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

// resumed opens the finished layers and reports them.
func (j *job) resumed(layers int) error {
	found := 0
	for layer := range layers {
		l, err := j.store.get(layer)
		if err != nil {
			return err
		}
		if l != nil {
			found++
		}
	}
	if found > 0 && j.Resumed != nil {
		j.Resumed(found, layers)
	}
	return nil
}

func (j *job) keep(layer int) error {
	return j.store.put(layer, j.names, j.done, j.notes)
}

// layer chooses the codes of a layer and moves the streams past it.
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

// resume moves the streams past a finished layer.
func (j *job) resume(layer int, l *layerFile) error {
	j.notes = l.index.Notes
	var undo []func()
	for i := range l.index.Matrices {
		m := &l.index.Matrices[i]
		c, err := l.codes(m).Load()
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

// replace replaces the weights of a linear layer by codes.
func (j *job) replace(name string, c *rounding.Codes) (undo func(), err error) {
	op, err := kernels.NewRows(c.Rows, c.Cols, c.DequantizeRow, nil, kernels.Options{Log: quiet})
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

// group is a model.Group and its Hessian.
type group struct {
	model.Group
	matrices []conversion.Matrix // those quantized with calibration
	follow   bool                // collect the differences from the float model
	hessian  *hessian
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

func (j *job) width(g *group) int {
	if g.follow && g.Residual && j.FollowResidual >= 0 {
		return j.quant.Config().HiddenSize
	}
	return 0
}

func (g *group) cols() int { return g.matrices[0].Cols }

// batch takes groups from a stage, at least one, within BatchBytes.
func (j *job) batch(stage []model.Group) []model.Group {
	bytes := int64(0)
	for i, g := range stage {
		if own := j.prepare(g); len(own.matrices) > 0 {
			bytes += hessianBytes(own.cols(), own.follow && j.FollowInputs >= 0, j.width(own))
		}
		if i > 0 && bytes > j.BatchBytes {
			return stage[:i]
		}
	}
	return stage
}

// stage chooses the codes of groups that do not depend on each other and puts them into the
// quantized model.
func (j *job) stage(layer int, stage []model.Group) (undo []func(), err error) {
	var groups []*group
	first := map[string]*group{} // by the name of the first linear layer
	for _, g := range stage {
		own := j.prepare(g)
		if len(own.matrices) == 0 {
			continue
		}
		own.hessian = newHessian(j.e, own.cols(), own.follow && j.FollowInputs >= 0, j.width(own))
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

// collect adds a sequence's activations to the groups.
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
		at := 0 // in the float model's tokens
		for r := range in.Rows {
			x := in.X[r*k:][:k]
			token := r
			if in.Tokens != nil {
				token = in.Tokens[r]
			}
			var d, res []float32
			if other.x != nil && g.hessian.cross != nil {
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
					d = buffer.Grow(&diff, k)
					for i, v := range other.x[row*k:][:k] {
						d[i] = v - x[i]
					}
				}
			}
			if g.hessian.residual != nil {
				res = residual
				for i, v := range j.floats.Hidden(seq)[token*h:][:h] {
					res[i] = v - hidden[token*h+i]
				}
			}
			g.hessian.add(x, d, res)
		}
	})
}
