package calib

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
)

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
	if j.float, err = forward.OpenCheckpoint(dir, o); err != nil {
		return err
	}
	if j.floats, err = j.float.NewStream(j.text.Sequences); err == nil {
		j.floats.ShareMemory(j.quants)
	}
	return err
}

// table finds the embedding in a plan that quantizes the embedding.
func (j *job) table() (table plan.Matrix, ok bool) {
	for _, m := range j.plan.Matrices() {
		if m.Role == gqf.RoleEmbedding && m.Cols == j.quant.Config().HiddenSize && m.Rows == j.quant.Config().VocabSize {
			if ok { // two candidates: the model's choice is not known here
				return table, false
			}
			table, ok = m, true
		}
	}
	return table, ok
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
	op, err := kernels.NewRows(c.Rows, c.Cols, c.DequantizeRow, nil, kernels.Options{Log: quiet})
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
