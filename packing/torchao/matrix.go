package torchao

import (
	"bytes"

	"github.com/lowbit-go/gq/packing"
)

// New prepares packing and reading of a payload in the layout of TorchAO that h
// names: NewLinear, NewEmbedding or NewKleidiAI.
func New(h packing.Header) (packing.Packer, error) {
	var p packing.Packer
	var err error
	switch h.Layout {
	case packing.LayoutTorchAOEmbedding:
		p, err = NewEmbedding(h)
	case packing.LayoutTorchAOKleidiAI:
		p, err = NewKleidiAI(h)
	default:
		p, err = NewLinear(h)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Matrix is a quantized matrix, row-major. With the rows, columns (K) and groups
// (G) of a packed header:
type Matrix struct {
	Codes  []int8    // rows x K, each in -2^(bits-1) .. 2^(bits-1)-1
	Scales []float32 // rows x G, normal numbers of the scale dtype; not of an embedding
	Zeros  []int8    // rows x G where the layout stores zero points, else nil
	Bias   []float32 // rows, finite; nil without packing.FlagBias
}

// Pack packs a whole matrix into TorchAO's header and buffer for h, which
// describes one of the three layouts. Of an embedding these are the codes alone:
// its scales and zero points are companions, see Embedding.
//
// It fails with *InputError for what the layout cannot hold, such as a code out
// of range (TorchAO lets its bits leak into neighbours), and as New does.
func Pack(h packing.Header, m *Matrix) ([]byte, error) {
	p, err := New(h)
	if err != nil {
		return nil, err
	}
	if err := m.check(p); err != nil {
		return nil, err
	}
	prefix, size := p.Prefix(), p.PanelBytes()
	data := make([]byte, len(prefix)+p.Panels()*size)
	copy(data, prefix)
	panel, row, k, g := p.NewPanel(), 0, p.PackedCols(), p.Groups()
	for i := range p.Panels() {
		n := p.PanelRows(i)
		panel.Rows = n
		copy(panel.Codes, m.Codes[row*k:][:n*k]) // K is PackedCols in all three
		if m.Scales != nil {
			copy(panel.Scales, m.Scales[row*g:][:n*g])
		}
		if m.Zeros != nil {
			copy(panel.Zeros, m.Zeros[row*g:][:n*g])
		}
		if m.Bias != nil {
			copy(panel.Bias, m.Bias[row:][:n])
		}
		p.PackPanel(data[len(prefix)+i*size:][:size], panel)
		row += n
	}
	return data, nil
}

// Unpack is the inverse of Pack: it checks data, as Check does, against the
// shape that h records, and unpacks the matrix.
func Unpack(h packing.Header, data []byte) (*Matrix, error) {
	p, err := New(h)
	if err != nil {
		return nil, err
	}
	if err := Check(p, data); err != nil {
		return nil, err
	}
	panel, k, g := p.NewPanel(), p.PackedCols(), p.Groups()
	apart := h.Layout == packing.LayoutTorchAOEmbedding
	m := &Matrix{}
	for i := range p.Panels() {
		n := p.PanelRows(i)
		p.UnpackPanel(panel, data[HeaderSize+i*p.PanelBytes():][:p.PanelBytes()])
		m.Codes = append(m.Codes, panel.Codes[:n*k]...)
		if apart {
			continue
		}
		m.Scales = append(m.Scales, panel.Scales[:n*g]...)
		if panel.Zeros != nil {
			m.Zeros = append(m.Zeros, panel.Zeros[:n*g]...)
		}
		if panel.Bias != nil {
			m.Bias = append(m.Bias, panel.Bias[:n]...)
		}
	}
	return m, nil
}

// Check reports the first thing about data that p cannot have packed:
// *FormatError for a wrong size or header, *UnsupportedError for a header that
// this package does not know, *packing.PanelError for the rest.
func Check(p packing.Packer, data []byte) error {
	prefix, size := p.Prefix(), p.PanelBytes()
	if err := checkFrame(prefix, data, int64(p.Panels())*int64(size)); err != nil {
		return err
	}
	for i := range p.Panels() {
		if err := p.CheckPanel(i, data[len(prefix)+i*size:][:size]); err != nil {
			return err
		}
	}
	return nil
}

// checkFrame checks that data is the header and size bytes behind it.
func checkFrame(header, data []byte, size int64) error {
	if _, err := ParseHeader(data); err != nil {
		return err
	}
	if !bytes.Equal(data[:HeaderSize], header) {
		at := 0
		for data[at] == header[at] {
			at++
		}
		at &^= 3 // the int32's first byte
		return formatError(int64(at), "the header says %d, this shape needs %d", getInt(data[at:], 0), getInt(header[at:], 0))
	}
	if want := HeaderSize + size; int64(len(data)) != want {
		return formatError(min(want, int64(len(data))), "%d bytes, this shape needs %d", len(data), want)
	}
	return nil
}

// check reports what p cannot pack.
func (m *Matrix) check(p packing.Packer) error {
	h := p.Header()
	rows, k, groups := int(h.Rows), int(h.Cols), int(h.Rows)*p.Groups()
	if h.Layout == packing.LayoutTorchAOEmbedding {
		groups = 0
	}
	zeros, bias := 0, 0
	if h.ZeroKind != packing.ZeroNone {
		zeros = groups
	}
	if h.Flags&packing.FlagBias != 0 {
		bias = rows
	}
	for _, c := range []struct {
		field     string
		got, want int
	}{
		{"codes", len(m.Codes), rows * k}, {"scales", len(m.Scales), groups},
		{"zeros", len(m.Zeros), zeros}, {"bias", len(m.Bias), bias},
	} {
		if err := checkLength(c.field, c.got, c.want); err != nil {
			return err
		}
	}
	for i, q := range m.Codes {
		if half := 1 << (h.Bits - 1); int(q) < -half || int(q) >= half {
			return inputError("codes", i, "%d at row %d column %d, codes of %d bits are %d to %d", q, i/k, i%k, h.Bits, -half, half-1)
		}
	}
	for i, s := range m.Scales {
		if !h.ScaleDtype.IsNormal(s) || h.ScaleDtype.Round(s) != s {
			return inputError("scales", i, "%v, want a normal %s number", s, h.ScaleDtype)
		}
		if s < 0 && h.Flags&packing.FlagPositiveScales != 0 {
			return inputError("scales", i, "%v in a payload of positive scales", s)
		}
	}
	return checkFinite("bias", m.Bias)
}

func checkLength(field string, got, want int) error {
	if got != want {
		return inputError(field, -1, "%d values, this shape has %d", got, want)
	}
	return nil
}

// checkFinite reports the first infinity or NaN.
func checkFinite(field string, x []float32) error {
	for i, v := range x {
		if !isFinite(v) {
			return inputError(field, i, "%v is not a finite number", v)
		}
	}
	return nil
}
