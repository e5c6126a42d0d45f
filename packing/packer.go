package packing

// A Packer packs and reads the panels of one payload of codes in any layout but LayoutPlain.
// [Lowbit] is one; package packing/layouts makes the Packer for a header.
//
// A Packer is immutable; many goroutines may use it at once. The argument data of a method is the
// whole payload after its packed header: len(Prefix()) + Panels()*PanelBytes() bytes, the header's
// DataSize. A panel is PanelBytes() bytes of the payload. Methods panic when a slice is too short
// or a row out of range, but never because of the bytes' values: damaged bytes give wrong weights,
// see CheckPanel.
type Packer interface {
	// Header returns the header that the Packer was made for.
	Header() Header
	// Prefix returns the bytes before the first panel: TorchAO's own header, or nil in the other
	// layouts. The caller must not change them.
	Prefix() []byte
	// Panels is the number of panels.
	Panels() int
	// PanelBytes is the size of a panel.
	PanelBytes() int
	// PanelRows is the number of rows of the matrix in a panel: nr, or fewer in the last panel.
	PanelRows(panel int) int
	// PackedCols is the row stride of Panel.Codes: the number of columns, rounded up as the layout
	// pads them.
	PackedCols() int
	// Groups is the number of groups in a row.
	Groups() int
	// NewPanel returns a panel of zeros with slices of the right lengths. Zeros and FloatZeros are
	// nil unless the header has zero points of their kind; Bias is nil unless the header has
	// FlagBias.
	NewPanel() *Panel
	// PackPanel packs p into dst, which has PanelBytes() bytes, and sets every byte of dst. It does
	// not check codes, scales and zero points, and does not allocate.
	PackPanel(dst []byte, p *Panel)
	// UnpackPanel unpacks all nr rows of a panel into p, whose slices have NewPanel's lengths. It
	// sets p.Rows to nr, because a panel does not record which of its rows are padding; PanelRows
	// computes it.
	UnpackPanel(p *Panel, src []byte)
	// Row reads one row without unpacking its panel: K codes, G scales and, if the layout has zero
	// points, G zero points. Any of the three may be nil. Zero points are in units of
	// Header.ZeroUnit. Floating-point zero points (ZeroF32) are rounded to integers, see
	// IntegerZero; FloatZeros of kleidiai.Packer reads them unrounded.
	Row(codes []int8, scales []float32, zeros []int8, data []byte, row int)
	// DequantizeRow reads one row as K weights: float32(float32(q-z) * scale) or, in
	// LayoutQAI4C32P, whose zero points are floating-point, float32(float32(q*scale) + zero).
	DequantizeRow(dst []float32, data []byte, row int)
	// Bias reads the bias of one row: 0 without FlagBias.
	Bias(data []byte, row int) float32
	// CheckPanel reports, as *PanelError, the first defect of panel i of the payload, whose bytes
	// are src. Unpacking and packing an accepted panel gives the same bytes.
	CheckPanel(i int, src []byte) error
}

// FloatSums is implemented by Packers whose panels store the float32 sum of each row's weights,
// which kernels multiply by the activations' zero point. A stored sum must be finite: the bits of a
// NaN differ between CPUs, and products with an infinity are useless. PackPanel does not check the
// sums.
type FloatSums interface {
	// PanelSum reads the sum of a row of a panel.
	PanelSum(panel []byte, row int) float32
}

var (
	_ Packer    = (*Lowbit)(nil)
	_ FloatSums = (*Lowbit)(nil)
)

// Panel holds the rows of one panel, unpacked. It has nr rows, G groups and PackedCols columns.
type Panel struct {
	// Rows is the number of rows of the matrix in this panel, 1..nr. PackPanel fills the other rows
	// as the layout demands (most repeat the last row) and ignores their entries in the slices.
	Rows int
	// Codes is nr x PackedCols: each row's codes in order of column, with 0 past the last column.
	Codes []int8
	// Scales is nr x G; each must be a scale of its dtype, see ScaleDtype.IsScale.
	Scales []float32
	// Zeros is nr x G zero points of kind ZeroInt8 or ZeroFraction, in units of Header.ZeroUnit; nil
	// for the other kinds.
	Zeros []int8
	// FloatZeros is nr x G zero points of kind ZeroF32, nil for the other kinds. Each is finite.
	FloatZeros []float32
	// Bias is nr values, or nil for none.
	Bias []float32
}
