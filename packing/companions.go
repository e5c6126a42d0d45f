package packing

import "fmt"

// Companions are the scales, in the header's scale dtype, and the int8 zero points, if any, of a
// LayoutCodes or LayoutTorchAOEmbedding payload. Both are payloads of their own, row-major,
// Groups() values a row.
type Companions struct {
	rows, groups  int
	dtype         ScaleDtype
	positive      bool
	zero          bool // a scale may be 0
	scales, zeros []byte
}

// NewCompanions reads the companions of a payload with header h in place; the bytes must not
// change. A companion of the wrong size is an error. Check checks the values.
func NewCompanions(h Header, scales, zeros []byte) (Companions, error) {
	c := Companions{int(h.Rows), int(h.Groups()), h.ScaleDtype, h.Flags&FlagPositiveScales != 0, h.HoldsZeroScales(), scales, zeros}
	n := c.rows * c.groups
	wantScales, wantZeros := n*c.dtype.Bytes(), 0
	if h.ZeroKind.IsInt8() {
		wantZeros = n
	}
	if len(scales) != wantScales || len(zeros) != wantZeros {
		return Companions{}, fmt.Errorf("packing: companions of %d bytes of scales and %d bytes of zero points, want %d and %d", len(scales), len(zeros), wantScales, wantZeros)
	}
	return c, nil
}

// Scale returns the scale of group g of a row.
func (c *Companions) Scale(row, g int) float32 {
	return c.dtype.get(c.scales[(row*c.groups+g)*c.dtype.Bytes():])
}

// Zero returns the zero point of group g of a row.
func (c *Companions) Zero(row, g int) int8 { return int8(c.zeros[row*c.groups+g]) }

// Row reads the scales of a row and, if there are any, its zero points. Either may be nil.
func (c *Companions) Row(scales []float32, zeros []int8, row int) {
	if scales == nil && zeros == nil {
		return
	}
	c.need()
	for g := range c.groups {
		if scales != nil {
			scales[g] = c.Scale(row, g)
		}
		if zeros != nil && len(c.zeros) > 0 {
			zeros[g] = c.Zero(row, g)
		}
	}
}

func (c *Companions) need() {
	if c.scales == nil {
		panic("packing: scales and zero points of this layout need WithCompanions")
	}
}

// Check reports the first invalid scale, as *PanelError with its offset in the companion: a scale
// beyond its dtype's range, or negative despite FlagPositiveScales. Every byte is a
// valid zero point.
func (c *Companions) Check() error {
	c.need()
	for i := range c.rows * c.groups {
		row, g, at := i/c.groups, i%c.groups, int64(i)*int64(c.dtype.Bytes())
		switch s := c.Scale(row, g); {
		case !c.dtype.IsScale(s) && !(s == 0 && c.zero):
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v, want a magnitude of %v to %v (%s)", row, g, s, c.dtype.Smallest(), c.dtype.Max(), c.dtype)}
		case s < 0 && c.positive:
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v in a payload of positive scales", row, g, s)}
		}
	}
	return nil
}
