package hfquant

// Layout says how a format stores one weight.
type Layout struct {
	Parts []Part
	// RowStep: Put takes rows from a multiple of RowStep on, and a multiple of RowStep rows unless
	// they are the last.
	RowStep int64

	encoder encoder
}

// encoder puts rows of one weight into the bytes of its parts.
type encoder interface {
	// put calls write for every range of bytes that rows first to first + len(rows) - 1 fill.
	put(rows []Row, first int64, write func(part int, off int64, b []byte) error) error
	// constant is the content of a part that no row fills, such as weight_shape; nil for the others.
	constant(part int) []byte
}

// NewLayout lays out the weight name of shape [N, K] in a format. It fails if the format cannot hold
// the scheme, and says what it holds.
func (f Format) NewLayout(name string, shape []int64, s Scheme) (*Layout, error) {
	return nil, nil
}

// Put turns rows first, first + 1, ... into bytes of the parts, and calls write for each contiguous
// range with the part's index, the offset in the part, and the bytes, which are valid during the
// call. It fails for a row that the format cannot hold exactly, such as a scale that is not in the
// scheme's dtype. Several goroutines may call Put at once.
func (l *Layout) Put(rows []Row, first int64, write func(part int, off int64, b []byte) error) error {
	return l.encoder.put(rows, first, write)
}

// Constant is the content of a part that Put does not write; nil for the others.
func (l *Layout) Constant(part int) []byte { return l.encoder.constant(part) }

// ModelWeight is a weight of a model, for Config.
type ModelWeight struct {
	Name   string
	Scheme *Scheme // nil: not quantized
	Linear bool    // the weight of a linear layer, else of an embedding or of no layer that a format knows
}

// Config returns config with the entry that says how the weights are quantized, and metadata for
// every safetensors file (nil: none). It fails if the format cannot say so.
func (f Format) Config(config []byte, weights []ModelWeight) (out []byte, metadata map[string]string, err error) {
	return nil, nil, nil
}
