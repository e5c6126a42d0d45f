package calib

import (
	"errors"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// tiedRows is the number of rows of a tied embedding that are solved at a time.
const tiedRows = 8192

// tie chooses the codes of an embedding that is the lm_head too, before the layers, because the
// layers compensate errors of their inputs. The Hessian has the lm_head's inputs in the float
// model. An error of a row that tokens look up counts in every direction: for such errors, half the
// mean of the Hessian's diagonal is added to the diagonal.
//
// With all of the mean, a Q5_1 embedding alone has .79 (books1.3M) and .57 (stories260K) of the
// divergence of the search's codes; with .3 of the mean .53 (stories260K), with .1 .83 (books1.3M),
// with 3 times the mean .84 and .68.
func (j *job) tie() error {
	m, slot := *j.tied, len(j.quant.Config().Layers)
	l, err := j.store.get(slot)
	if err != nil {
		return err
	}
	table := j.quant.Table(m.Name())
	if l != nil {
		j.progress(int64(m.Rows) * int64(m.Cols))
	} else if c, err := j.tiedCodes(m, *table); err != nil {
		return err
	} else if err := j.store.put(slot, []string{m.Name()}, []*rounding.Codes{c}, layerNotes{}); err != nil {
		return err
	}
	*table = &codedTable{j.store.results[m.Name()], rounding.NewCodes(m.Scheme.Shape(1, m.Cols))}
	return nil
}

func (j *job) tiedCodes(m plan.Matrix, table forward.Embedding) (*rounding.Codes, error) {
	h, err := j.headInputs(m.Cols)
	if err != nil {
		return nil, err
	}
	g := &group{matrices: []plan.Matrix{m}}
	f, err := factorize(j.e, h, j.improves(g), g.unit())
	if err != nil {
		return nil, matrixError(m, err)
	}
	defer j.e.floats.Put(f.u, f.h)
	f.feedback()
	all := rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols))
	for r0 := 0; r0 < m.Rows; r0 += tiedRows {
		n := min(tiedRows, m.Rows-r0)
		w := j.e.floats.Take(n * m.Cols)
		for r := range n {
			if err := errors.Join(j.ctx.Err(), table.Lookup(w[r*m.Cols:][:m.Cols], r0+r)); err != nil {
				return nil, err
			}
		}
		target := f.permute(w, n)
		j.e.floats.Put(w)
		c, _, err := j.codes(f, m, target, nil)
		for r := 0; r < n && err == nil; r++ {
			err = c.ReadRow(r, all.Row(r0+r))
		}
		if err != nil {
			return nil, matrixError(m, err)
		}
		j.progress(int64(n) * int64(m.Cols))
	}
	return all, nil
}

// headInputs returns the Hessian of the lm_head's k inputs, with the addition of tie.
func (j *job) headInputs(k int) (*hessian, error) {
	t, err := j.quant.NewStream(j.text.Sequences)
	if err != nil {
		return nil, err
	}
	h := newHessian(j.e, k, false)
	for layer := range j.quant.Config().Layers {
		for block := range t.Blocks(layer) {
			for seq := range t.Len() {
				if err := errors.Join(j.ctx.Err(), t.Advance(seq, layer, block)); err != nil {
					return nil, err
				}
			}
		}
	}
	for seq := range t.Len() {
		err := t.HeadInput(seq, func(in *forward.Input) {
			h.add(in.Rows, func(i int, x, _, _ []float32) { copy(x, in.X[i*k:][:k]) })
		})
		if err != nil {
			return nil, err
		}
	}
	h.done()
	mean := 0.0
	for i := range k {
		mean += float64(h.h[i*k+i])
	}
	for i := range k {
		h.h[i*k+i] += float32(mean / float64(2*k))
	}
	return h, nil
}

// codedTable looks up rows of an embedding with chosen codes.
type codedTable struct {
	rows plan.RowReader
	row  *rounding.Codes // one row
}

func (t *codedTable) Lookup(dst []float32, row int) error {
	if err := t.rows.ReadRow(row, t.row.Row(0)); err != nil {
		return err
	}
	t.row.DequantizeRow(dst, 0)
	return nil
}
