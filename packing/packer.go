package packing

// A Packer packs and reads the panels of one payload of codes in any layout
// but LayoutPlain. [Lowbit] is one; package packing/layouts makes the Packer
// that a header asks for.
//
// A Packer does not change and may be used by many goroutines at once. Methods
// that take data take the whole payload behind its packed header,
// len(Prefix()) + Panels()*PanelBytes() bytes, which is the header's DataSize;
// a panel is PanelBytes() bytes of it. They panic when a slice is too short or
// a row out of range, never for what the bytes hold: damaged bytes give other
// weights, see CheckPanel.
type Packer interface {
	// Header returns the header that the Packer was made for.
	Header() Header
	// Prefix is what stands before the first panel: TorchAO's own header, nil
	// for the other layouts. It must not be changed.
	Prefix() []byte
	// Panels is the number of panels.
	Panels() int
	// PanelBytes is the size of a panel.
	PanelBytes() int
	// PanelRows is the number of rows of a panel that are rows of the matrix:
	// nr, or less in the last panel.
	PanelRows(panel int) int
	// PackedCols is the row stride of Panel.Codes: the columns rounded up to
	// what the layout stores.
	PackedCols() int
	// Groups is the number of groups in a row.
	Groups() int
	// NewPanel returns a panel of zeros with slices of the right lengths; Zeros
	// and FloatZeros are nil unless the header has zero points of that kind,
	// Bias unless it has FlagBias.
	NewPanel() *Panel
	// PackPanel packs p into dst, PanelBytes() long, and sets every byte of
	// it. It does not check codes, scales and zero points, and does not
	// allocate.
	PackPanel(dst []byte, p *Panel)
	// UnpackPanel unpacks all nr rows of a panel into p, whose slices are as
	// NewPanel made them, and sets p.Rows to nr: a panel does not say which of
	// its rows are padding, PanelRows does.
	UnpackPanel(p *Panel, src []byte)
	// Row reads one row without unpacking its panel: K codes, G scales and, if
	// the layout has them, G zero points. Any of the three may be nil. Where
	// zero points are float32 (ZeroF32), zeros get the nearest whole ones, see
	// WholeZero; kleidiai.Packer has FloatZeros for those that are stored.
	Row(codes []int8, scales []float32, zeros []int8, data []byte, row int)
	// DequantizeRow reads one row as K weights. They are
	// float32(float32(q-z) * scale), but float32(float32(q*scale) + zero) in
	// LayoutQAI4C32P, which stores a float32 zero point, see ZeroF32.
	DequantizeRow(dst []float32, data []byte, row int)
	// Bias reads the bias of one row: 0 without FlagBias.
	Bias(data []byte, row int) float32
	// CheckPanel reports, as *PanelError, what PackPanel could not have made
	// of panel number i of the payload, whose bytes are src. What it accepts
	// is what PackPanel makes of what UnpackPanel reads.
	CheckPanel(i int, src []byte) error
}

// FloatSums is implemented by Packers whose panels store the float32 sum of each row's
// weights, in which kernels multiply the zero point of the activations. A stored sum must be
// finite: the bits of a NaN differ between CPUs, and products with an infinity are of no use.
// PackPanel does not check that either.
type FloatSums interface {
	// PanelSum reads the sum of a row of a panel.
	PanelSum(panel []byte, row int) float32
}

var (
	_ Packer    = (*Lowbit)(nil)
	_ FloatSums = (*Lowbit)(nil)
)

// Panel holds the rows of one panel unpacked. With nr rows, G groups and
// PackedCols columns:
type Panel struct {
	// Rows is the number of rows of the matrix in this panel, 1..nr. PackPanel
	// fills the rest as the layout demands (most repeat the last row) and does
	// not read what the slices hold for those rows.
	Rows int
	// Codes is nr x PackedCols, each row's codes in order of column, 0 past
	// the last column.
	Codes []int8
	// Scales is nr x G; every one must be a scale of its dtype, see ScaleDtype.IsScale.
	Scales []float32
	// Zeros is nr x G zero points of kind ZeroInt8, nil for the other kinds.
	Zeros []int8
	// FloatZeros is nr x G zero points of kind ZeroF32, nil for the other kinds.
	// Each is a finite number.
	FloatZeros []float32
	// Bias is nr values, or nil for none.
	Bias []float32
}
