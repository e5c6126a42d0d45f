package torchao

// GroupwiseShape is what must be known of a buffer of type 5; Header leaves out
// the rows and columns. The weight of index i is table[i], times a float32 scale
// for each group of columns of a row if there are scales. A table serves
// TableGroup weights, whole rows of them.
type GroupwiseShape struct {
	Bits       int  // of an index, 1 to 4
	Rows       int  // outputs
	Cols       int  // inputs, a multiple of 32 and of ScaleGroup
	ScaleGroup int  // columns that share a scale, a multiple of 32; also without scales
	TableGroup int  // weights that share a table, a multiple of 4*Cols and of ScaleGroup
	Scales     bool // the buffer has scales
	Bias       bool // the buffer has one bias per row
}

// GroupwiseWeights are the weights of a buffer of type 5, row-major.
type GroupwiseWeights struct {
	Indices []uint8   // Rows x Cols, each below 2^Bits
	Tables  []float32 // a table of 2^Bits finite numbers for each TableGroup weights begun
	Scales  []float32 // Rows x Cols/ScaleGroup, normal numbers; nil without scales
	Bias    []float32 // Rows, finite; nil without bias
}

const (
	// groupwiseRows is the number of rows of a panel of type 5.
	groupwiseRows = 4
	// groupwiseCols is the number of columns that a unit holds of each.
	groupwiseCols = 32
	// groupwiseEntries is the number of float32 of the table at the start of a
	// panel, 0 past the last entry.
	groupwiseEntries = 16
)

// Validate reports as *InputError what type 5 cannot hold.
func (s GroupwiseShape) Validate() error {
	if err := checkShape(s.Bits, s.Rows, s.Cols); err != nil {
		return err
	}
	if err := s.Header().Validate(); err != nil {
		return err
	}
	switch {
	case s.Cols%s.ScaleGroup != 0:
		return inputError("scale group", -1, "%d does not divide the %d columns", s.ScaleGroup, s.Cols)
	case s.TableGroup%(groupwiseRows*s.Cols) != 0:
		return inputError("table group", -1, "%d, want a multiple of the %d weights of %d rows", s.TableGroup, groupwiseRows*s.Cols, groupwiseRows)
	}
	return nil
}

// Header returns TorchAO's header for the shape.
func (s GroupwiseShape) Header() Header {
	return Header{
		Type: TypeGroupwiseLUT, Bits: s.Bits, ScaleGroup: s.ScaleGroup, TableGroup: s.TableGroup,
		Scales: s.Scales, Bias: s.Bias, Tile: groupwiseTile,
	}
}

// Size is the size of the buffer with its header, of a valid shape.
func (s GroupwiseShape) Size() int64 { return HeaderSize + int64(s.panels())*int64(s.panelBytes()) }

func (s GroupwiseShape) panels() int { return (s.Rows + groupwiseRows - 1) / groupwiseRows }

func (s GroupwiseShape) panelBytes() int {
	size := 4*groupwiseEntries + s.Cols/groupwiseCols*16*s.Bits + s.scales()*4*groupwiseRows
	if s.Bias {
		size += 4 * groupwiseRows
	}
	return size
}

// scales is the number of scales of a row.
func (s GroupwiseShape) scales() int {
	if !s.Scales {
		return 0
	}
	return s.Cols / s.ScaleGroup
}

// tables is the number of tables.
func (s GroupwiseShape) tables() int { return (s.Rows*s.Cols-1)/s.TableGroup + 1 }

// table returns the table of the rows of panel p.
func (s GroupwiseShape) table(tables []float32, p int) []float32 {
	entries := 1 << s.Bits
	return tables[groupwiseRows*p*s.Cols/s.TableGroup*entries:][:entries]
}

// place says which index is code i of the unit of panel p that begins at column
// c: 4 columns of each of the 4 rows follow each other. It is negative past the
// last row.
func (s GroupwiseShape) place(p, c, i int) int {
	row := groupwiseRows*p + i/4%4
	if row >= s.Rows {
		return -1
	}
	return row*s.Cols + c + i/16*4 + i%4
}

// walk calls scales and indices for the scales of each group of columns of
// panel p and for each unit of indices, with the number of the group, the unit's
// first column and their place in the panel; and bias for the biases.
func (s GroupwiseShape) walk(panel []byte, scales, indices func(part []byte, at int), bias func(part []byte)) {
	at := 4 * groupwiseEntries
	for c := 0; c < s.Cols; c += groupwiseCols {
		if s.Scales && c%s.ScaleGroup == 0 {
			scales(panel[at:], c/s.ScaleGroup)
			at += 4 * groupwiseRows
		}
		indices(panel[at:], c)
		at += 16 * s.Bits
	}
	if s.Bias {
		bias(panel[at:])
	}
}

// PackGroupwise packs w into a header and a buffer of type 5. It fails with
// *InputError for what the type cannot hold.
func PackGroupwise(s GroupwiseShape, w *GroupwiseWeights) ([]byte, error) {
	if err := s.check(w); err != nil {
		return nil, err
	}
	data := make([]byte, s.Size())
	s.Header().Append(data[:0])
	for p := range s.panels() {
		panel, first := data[HeaderSize+p*s.panelBytes():][:s.panelBytes()], groupwiseRows*p
		rows := min(groupwiseRows, s.Rows-first)
		for i, v := range s.table(w.Tables, p) {
			putFloat(panel, i, v)
		}
		s.walk(panel, func(dst []byte, g int) {
			for r := range rows {
				putFloat(dst, r, w.Scales[(first+r)*s.scales()+g])
			}
		}, func(dst []byte, c int) {
			packIndices(s.Bits, dst, w.Indices, func(i int) int { return s.place(p, c, i) })
		}, func(dst []byte) {
			for r := range rows {
				putFloat(dst, r, w.Bias[first+r])
			}
		})
	}
	return data, nil
}

// UnpackGroupwise is the inverse of PackGroupwise. It fails with *FormatError or
// *UnsupportedError for bytes that PackGroupwise does not make for the shape,
// and with *InputError for a shape that is none.
func UnpackGroupwise(s GroupwiseShape, data []byte) (*GroupwiseWeights, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := checkFrame(s.Header().Append(nil), data, s.Size()-HeaderSize); err != nil {
		return nil, err
	}
	w := &GroupwiseWeights{Indices: make([]uint8, s.Rows*s.Cols), Tables: make([]float32, s.tables()<<s.Bits)}
	if s.Scales {
		w.Scales = make([]float32, s.Rows*s.scales())
	}
	for p := range s.panels() {
		panel, first := data[HeaderSize+p*s.panelBytes():][:s.panelBytes()], groupwiseRows*p
		rows := min(groupwiseRows, s.Rows-first)
		table := s.table(w.Tables, p)
		for i := range table {
			table[i] = getFloat(panel, i)
		}
		s.walk(panel, func(src []byte, g int) {
			for r := range rows {
				w.Scales[(first+r)*s.scales()+g] = getFloat(src, r)
			}
		}, func(src []byte, c int) {
			unpackIndices(s.Bits, w.Indices, src, func(i int) int { return s.place(p, c, i) })
		}, func(src []byte) {
			for r := range rows {
				w.Bias = append(w.Bias, getFloat(src, r))
			}
		})
	}
	again, err := PackGroupwise(s, w)
	if err := checkAgain(data, again, err); err != nil {
		return nil, err
	}
	return w, nil
}

func (s GroupwiseShape) check(w *GroupwiseWeights) error {
	if err := s.Validate(); err != nil {
		return err
	}
	biases := 0
	if s.Bias {
		biases = s.Rows
	}
	if err := checkLength("tables", len(w.Tables), s.tables()<<s.Bits); err != nil {
		return err
	}
	if err := checkFinite("tables", w.Tables); err != nil {
		return err
	}
	return checkTableWeights(s.Bits, w.Indices, w.Scales, w.Bias, s.Rows*s.Cols, s.Rows*s.scales(), biases)
}
