package tune

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// start returns the codes of a matrix before training: the codes that calibration chose, or the
// codes that writing the plan would choose.
func (j *job) start(m plan.Matrix, c *plan.Codes) (*rounding.Codes, error) {
	codes := rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols))
	if c != nil && c.Rows != nil {
		if rows := c.Rows(m); rows != nil {
			for r := range m.Rows {
				if err := rows.ReadRow(r, codes.Row(r)); err != nil {
					return nil, fmt.Errorf("%q: %w", m.Name(), err)
				}
			}
			return codes, nil
		}
	}
	var importance *plan.Importance
	if c != nil && c.Importance != nil {
		importance = c.Importance(m)
	}
	const piece = 32
	errs := make([]error, (m.Rows+piece-1)/piece)
	j.rows(m.Rows, piece, func(from, to int) {
		errs[from/piece] = j.round(m, codes, importance, from, to)
	})
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%q: %w", m.Name(), err)
		}
	}
	return codes, nil
}

// round chooses the codes of rows as the writing of the plan does.
func (j *job) round(m plan.Matrix, codes *rounding.Codes, importance *plan.Importance, from, to int) error {
	q, err := rounding.NewRounder(m.Scheme, m.Cols)
	if err != nil {
		return err
	}
	q.LimitScales(m.SmallestScale)
	q.Recover(m.Precision)
	w := make([]float32, m.Cols)
	for r := from; r < to; r++ {
		if err := j.plan.ReadRows(w, m, r, 1); err != nil {
			return err
		}
		q.Weigh(importance.Row(r), false)
		if err := q.Quantize(codes.Row(r), w); err != nil {
			return err
		}
	}
	return nil
}
