package packing

import (
	"fmt"
	"math"
	"slices"
)

// PanelError reports a damaged panel.
type PanelError struct {
	Panel  int
	Offset int64 // of the wrong field, or of its block, in the payload's data
	Msg    string
}

func (e *PanelError) Error() string {
	return fmt.Sprintf("panel %d (data byte %d): %s", e.Panel, e.Offset, e.Msg)
}

// panelRow is an unpacked row.
type panelRow struct {
	codes  []int8 // K32
	scales []float32
	zeros  []int8 // nil if there are none
}

// newPanelRow allocates at most twice the memory of the packed panel, so checking a hostile file
// needs little more memory than its size.
func (l *Lowbit) newPanelRow() *panelRow {
	row := &panelRow{codes: make([]int8, l.packedCols), scales: make([]float32, l.groups)}
	if l.zeros {
		row.zeros = make([]int8, l.groups)
	}
	return row
}

// read unpacks row r of a panel.
func (row *panelRow) read(l *Lowbit, panel []byte, r int) {
	l.rowCodes(codeBytes(row.codes), panel, r)
	l.scales(row.scales, panel, r)
	if l.zeros {
		l.zeroPoints(row.zeros, panel, r)
	}
}

// CheckPanel reports the first defect of panel i of the payload, whose bytes are src, as
// *PanelError. Defects are:
//   - a scale whose magnitude its dtype cannot hold, or a scale that is not positive despite
//     FlagPositiveScales
//   - a bias that is not finite, or a bias other than 0 without FlagBias
//   - codes other than 0 past the last column
//   - a stored sum that differs from the sum of the weights, or is not finite
//   - a row past the last one that does not repeat the last one
//
// Unpacking and packing an accepted panel gives the same bytes.
func (l *Lowbit) CheckPanel(i int, src []byte) error {
	l.CheckIndex(i, src)
	scratch := l.scratch.Get().(*[2]*panelRow)
	defer l.scratch.Put(scratch)
	row, rows := scratch[0], l.PanelRows(i)
	for r := range rows {
		row.read(l, src, r)
		if err := l.checkRow(i, src, r, row); err != nil {
			return err
		}
	}
	for r := rows; r < l.nr; r++ {
		if err := l.checkCopy(i, src, r, row, scratch[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkRow checks row r of panel i, which is unpacked in row.
func (l *Lowbit) checkRow(i int, panel []byte, r int, row *panelRow) error {
	dtype := l.h.ScaleDtype
	for g, s := range row.scales {
		at := l.recordStart(g) + r*dtype.Bytes()
		if !dtype.IsScale(s) {
			return l.PanelErrorf(i, at, "the scale of row %d group %d is %v, want a magnitude of %v to %v (%s)", r, g, s, dtype.Smallest(), dtype.Max(), dtype)
		}
		if s < 0 && l.h.Flags&FlagPositiveScales != 0 {
			return l.PanelErrorf(i, at, "the scale of row %d group %d is %v in a payload of positive scales", r, g, s)
		}
	}
	for k, q := range row.codes[l.k:] {
		if q != 0 {
			return l.PanelErrorf(i, l.blockStart(l.k/32), "row %d has code %d past its %d columns, at column %d", r, q, l.k, l.k+k)
		}
	}
	stored, sum := l.tail(panel, r), l.sum(codeBytes(row.codes), row.scales, row.zeros)
	if math.Float32bits(stored) != math.Float32bits(sum) {
		return l.PanelErrorf(i, l.tailStart+4*r, "the sum of row %d is %v, its codes make %v", r, stored, sum)
	}
	if math.IsNaN(float64(stored)) || math.IsInf(float64(stored), 0) {
		return l.PanelErrorf(i, l.tailStart+4*r, "the sum of row %d is %v, want a finite number", r, stored)
	}
	bias, at := l.tail(panel, l.nr+r), l.tailStart+4*(l.nr+r)
	if math.IsNaN(float64(bias)) || math.IsInf(float64(bias), 0) {
		return l.PanelErrorf(i, at, "the bias of row %d is %v", r, bias)
	}
	if l.h.Flags&FlagBias == 0 && math.Float32bits(bias) != 0 {
		return l.PanelErrorf(i, at, "the bias of row %d is %v in a payload without one", r, bias)
	}
	return nil
}

// checkCopy checks that row r of panel i repeats the last row of the matrix, which is unpacked in
// last. It overwrites row.
func (l *Lowbit) checkCopy(i int, panel []byte, r int, last, row *panelRow) error {
	fail := func(offset int, what string) error {
		return l.PanelErrorf(i, offset, "row %d has another %s than the matrix's last row, which it repeats", r, what)
	}
	row.read(l, panel, r)
	for k, q := range row.codes {
		if q != last.codes[k] {
			return fail(l.blockStart(k/32), fmt.Sprintf("code at column %d", k))
		}
	}
	for g, s := range row.scales {
		if math.Float32bits(s) != math.Float32bits(last.scales[g]) {
			return fail(l.recordStart(g)+r*l.h.ScaleDtype.Bytes(), fmt.Sprintf("scale in group %d", g))
		}
	}
	if !slices.Equal(row.zeros, last.zeros) {
		return fail(l.recordStart(0)+l.nr*l.h.ScaleDtype.Bytes()+r, "zero point")
	}
	end := l.PanelRows(i) - 1
	for j, what := range []string{"sum", "bias"} {
		if at := j*l.nr + r; math.Float32bits(l.tail(panel, at)) != math.Float32bits(l.tail(panel, j*l.nr+end)) {
			return fail(l.tailStart+4*at, what)
		}
	}
	return nil
}
