package calib

import (
	"errors"
	"slices"

	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// run goes through the layers. lm_head counts as one.
func (j *job) run(r *Result) error {
	layers := len(j.quant.Config().Layers)
	found, checked, err := j.resumed(layers + 1)
	if err != nil {
		return err
	}
	if found == layers+1 {
		return j.complete(r)
	}
	for layer := range layers {
		l, err := j.store.get(layer)
		if err != nil {
			return err
		}
		if l != nil {
			if err := j.resume(layer, l, layer == checked); err != nil {
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
		j.notes = l.notes
		j.count(l)
	}
	r.note(j.notes)
	r.finish(j)
	return nil
}

// complete takes the layers of a job that had finished all of them, and runs no text.
func (j *job) complete(r *Result) error {
	for layer := range len(j.quant.Config().Layers) + 1 {
		l, err := j.store.get(layer)
		if err != nil {
			return err
		}
		j.count(l)
		r.note(l.notes)
	}
	r.finish(j)
	return nil
}

// resumed opens the finished layers and reports how many an interrupted job has left: found. checked is
// the layer of the older file that is checked: the last one before the lm_head, whose codes depend on all
// others. -1: none.
func (j *job) resumed(layers int) (found, checked int, err error) {
	checked = -1
	for layer := range layers {
		l, err := j.store.get(layer)
		switch {
		case err != nil:
			return 0, 0, err
		case l == nil:
		case !l.older:
			found++
		case len(l.matrices) > 0 && layer+1 < layers:
			checked = layer
		}
	}
	if found > 0 && j.Resumed != nil {
		j.Resumed(found, layers)
	}
	return found, checked, nil
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
			part := batch[0].Part
			j.last = len(stage) == 0 && (i+1 == len(stages) || stages[i+1][0].Part != part)
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

// resume moves the streams past a finished layer. check compares the layer with the codes that the job
// would choose.
func (j *job) resume(layer int, l *finished, check bool) error {
	j.notes = l.notes
	var undo []func()
	codes := map[string]*rounding.Codes{}
	for i := range l.matrices {
		m := &l.matrices[i]
		c, err := rounding.LoadCodes(m.Shape, m.rows.ReadRow)
		if err != nil {
			return err
		}
		u, err := j.replace(m.name, c)
		if err != nil {
			return err
		}
		codes[m.name], undo = c, append(undo, u)
	}
	for _, part := range []model.Part{model.Attention, model.FeedForward} {
		if check {
			var err error
			if check, err = j.check(layer, part, codes); err != nil {
				return err
			}
		}
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

// errOlder says that codes of an older file are not those that the job would choose.
var errOlder = errors.New("calib: another version made the older file")

// check chooses codes of a few matrices of half a layer again, from inputs that depend on all layers
// before, and compares them with the older file's: a version that computes something otherwise without
// another number is found out. again reports whether the half has no calibrated matrices, so that the
// other half is to be checked.
func (j *job) check(layer int, part model.Part, older map[string]*rounding.Codes) (again bool, err error) {
	quiet := *j
	quiet.progress, quiet.names, quiet.done, quiet.notes = func(int64) {}, nil, nil, layerNotes{}
	quiet.last, quiet.moved = false, false
	for _, stage := range j.quant.Stages(layer) {
		if stage[0].Part != part || len(quiet.done) > 0 {
			continue
		}
		undo, err := quiet.stage(layer, quiet.batch(stage))
		for _, u := range slices.Backward(undo) {
			u()
		}
		if err != nil {
			return false, err
		}
	}
	for i, name := range quiet.names {
		if !quiet.done[i].Equal(older[name]) {
			return false, errOlder
		}
	}
	return len(quiet.done) == 0, nil
}

func (j *job) count(l *finished) {
	for _, m := range l.matrices {
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

// advance moves the streams past half a layer, as far as the last stage did not do so and a later
// stage needs it.
func (j *job) advance(layer int, part model.Part) error {
	inputs, moved := j.inputs, j.moved
	j.inputs, j.moved = j.inputs[:0], false
	if part == model.FeedForward && layer+1 == len(j.quant.Config().Layers) && len(j.headGroup().matrices) == 0 {
		return nil
	}
	if len(inputs) > 0 {
		if err := j.quants.Finish(layer, part, inputs); err != nil {
			return err
		}
	}
	for seq := range j.quants.Len() {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if len(inputs) == 0 {
			if err := j.quants.Advance(seq, layer, part); err != nil {
				return err
			}
		}
		if j.floats != nil && !moved {
			if err := j.floats.Advance(seq, layer, part); err != nil {
				return err
			}
		}
	}
	return nil
}
