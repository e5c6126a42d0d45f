package calib

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// held are groups of a matrix with codes that were chosen before: the weights are on a lattice of
// the scheme, see rounding.RowQuantizer.Recover. No step changes their codes, scales and zero
// points. Other columns still compensate the difference from the target there.
type held struct {
	codes  *rounding.Codes
	groups []bool // [Rows][Groups]
	all    bool   // every group is held
}

// hold finds the groups of a matrix of weights w that are on a lattice; nil if there are none. In a
// matrix with such groups, groups of zeros are held too.
func (j *job) hold(m plan.Matrix, w []float32) (*held, error) {
	if m.Precision == packing.ScaleNone || m.Scheme.Type != 0 {
		return nil, nil
	}
	scheme := m.Scheme
	scheme.Algorithm = gqf.AlgorithmRTN
	h := &held{codes: rounding.NewCodes(scheme.Shape(m.Rows, m.Cols))}
	n := h.codes.Groups()
	h.groups = make([]bool, m.Rows*n)
	zeros := make([]bool, m.Rows*n)
	errs := make([]error, m.Rows)
	j.e.rows(m.Rows, 8, func(_, from, to int) {
		q, err := rounding.NewRounder(scheme, m.Cols)
		if err != nil {
			errs[from] = err
			return
		}
		q.LimitScales(m.SmallestScale)
		q.Recover(m.Precision)
		for r := from; r < to; r++ {
			row := w[r*m.Cols:][:m.Cols]
			if errs[r] = q.Quantize(h.codes.Row(r), row); errs[r] != nil {
				return
			}
			for g := range n {
				h.groups[r*n+g] = q.Recovered(g)
				zeros[r*n+g] = !slices.ContainsFunc(row[g*h.codes.Group:min(m.Cols, (g+1)*h.codes.Group)], func(v float32) bool { return v != 0 })
			}
		}
	})
	for r, err := range errs {
		if err != nil {
			return nil, matrixError(m, &rowError{r, err})
		}
	}
	if !slices.Contains(h.groups, true) {
		return nil, nil
	}
	for i, zero := range zeros {
		h.groups[i] = h.groups[i] || zero
	}
	h.all = !slices.Contains(h.groups, false)
	return h, nil
}

func (h *held) row(r int) []bool {
	if h == nil {
		return nil
	}
	n := h.codes.Groups()
	return h.groups[r*n:][:n]
}

// restore gives held groups their own codes, scales and zero points after a search.
func (s *solver) restore() {
	for r := range s.n {
		groups := s.held.row(r)
		if !slices.Contains(groups, true) {
			continue
		}
		own, at := s.held.codes.Row(r), r*s.groups
		for g, is := range groups {
			if !is {
				continue
			}
			s.scales[at+g] = own.Scales[g]
			if s.zeros != nil {
				s.zeros[at+g] = own.Zeros[g]
			}
		}
		for a, j := range s.f.order {
			if groups[s.place[a]] {
				s.codes[r*s.k+a] = own.Codes[j]
			}
		}
	}
}

// pin makes the unknown i of a system of n equations 0.
func pin(a, b []float64, n, i int) {
	for j := range n {
		a[i*n+j], a[j*n+i] = 0, 0
	}
	a[i*n+i], b[i] = 1, 0
}
