package embedding

import (
	"errors"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// Table looks up rows of an embedding. A Table is immutable and holds no copy of the rows. Many
// goroutines may use a Table at once.
type Table struct {
	h          packing.Header
	reader     rowReader
	data       []byte
	rows, cols int
}

type rowReader interface {
	DequantizeRow(dst []float32, data []byte, row int)
}

// Parts are the bytes of an embedding. The bytes must not change while the Table is used.
type Parts struct {
	// Data is the data after the packed header. Required.
	Data []byte
	// Scales and Zeros are the data of the companions of LayoutCodes and LayoutTorchAOEmbedding. All
	// other layouts have no companions.
	Scales, Zeros []byte
}

// UnsupportedError reports a tensor or payload that cannot serve as an embedding.
type UnsupportedError struct {
	Tensor string // name; empty from New
	Msg    string
}

func (e *UnsupportedError) Error() string {
	if e.Tensor == "" {
		return "embedding: " + e.Msg
	}
	return fmt.Sprintf("tensor %q: %s", e.Tensor, e.Msg)
}

// IDError reports an id that is not a row of the embedding.
type IDError struct {
	Position int   // index of the id in the batch; 0 for Lookup
	ID       int64 //
	Rows     int   // rows of the embedding
}

func (e *IDError) Error() string {
	return fmt.Sprintf("id %d at position %d: the embedding has rows 0 to %d", e.ID, e.Position, e.Rows-1)
}

// Open makes a Table of the tensor with the given name, or alias. Open uses the first variant that
// can serve lookups. Experts, tensors other than matrices, and unquantized embeddings of dtypes
// other than F32, F16 and BF16 are an [*UnsupportedError]; a damaged file is a [*gqf.FormatError].
//
// The Table reads the file in place: use the Table within [gqf.File.Guard], and not after Close.
func Open(f *gqf.File, name string) (*Table, error) {
	t, ok := f.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("no tensor %q in this file", name)
	}
	if len(t.Shape) != 2 || t.Experts != 1 || t.Transposed {
		return nil, &UnsupportedError{name, fmt.Sprintf("shape %v, %d slices, transposed %v: want a matrix with one row per id", t.Shape, t.Experts, t.Transposed)}
	}
	if err := t.Usable(); err != nil {
		return nil, err
	}
	var first *UnsupportedError
	for variant := 0; ; variant++ {
		weights, ok := t.Payload(variant, 0, gqf.KindWeights)
		if !ok {
			return nil, first // every tensor has a variant 0
		}
		if weights.Header.Layout == packing.LayoutBlocks {
			rows, err := t.Rows(variant, 0)
			if err != nil {
				return nil, err
			}
			return &Table{weights.Header, rows, nil, int(weights.Header.Rows), int(weights.Header.Cols)}, nil
		}
		var parts Parts
		var err error
		if parts.Data, err = f.Data(weights); err == nil {
			parts.Scales, parts.Zeros, err = t.Companions(variant, 0)
		}
		if err != nil {
			return nil, err
		}
		table, err := New(weights.Header, parts)
		var unsupported *UnsupportedError
		switch {
		case err == nil:
			return table, nil
		case !errors.As(err, &unsupported):
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		case first == nil:
			first = &UnsupportedError{name, unsupported.Msg}
		}
	}
}

// New makes a Table of a payload: h describes p.Data and the companions. New fails as h.Validate
// does, with [*packing.HeaderError] if the size of a part differs from h, and with
// [*UnsupportedError] for plain payloads of dtypes other than F32, F16 and BF16 and for payloads
// that this machine cannot address.
func New(h packing.Header, p Parts) (*Table, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	size, err := h.DataSize()
	if err != nil {
		return nil, err
	}
	if int64(len(p.Data)) != size {
		return nil, &packing.HeaderError{Field: "data size", Offset: offDataSize, Msg: fmt.Sprintf("%d bytes of data, the fields need %d", len(p.Data), size)}
	}
	if h.Rows > math.MaxInt || h.Cols > math.MaxInt {
		return nil, &UnsupportedError{Msg: fmt.Sprintf("%d x %d elements are more than this machine can address", h.Rows, h.Cols)}
	}
	reader, err := newReader(h, p)
	if err != nil {
		return nil, err
	}
	return &Table{h: h, reader: reader, data: p.Data, rows: int(h.Rows), cols: int(h.Cols)}, nil
}

const offDataSize = 40

func newReader(h packing.Header, p Parts) (rowReader, error) {
	if h.Layout == packing.LayoutPlain {
		return newUnquantized(h)
	}
	pk, err := layouts.New(h)
	var beyond *packing.UnsupportedError
	switch {
	case errors.As(err, &beyond):
		return nil, &UnsupportedError{Msg: err.Error()}
	case err != nil:
		return nil, err
	}
	if pk, err = layouts.WithCompanions(pk, p.Scales, p.Zeros); err != nil {
		return nil, &packing.HeaderError{Field: "data size", Offset: offDataSize, Msg: err.Error()}
	}
	return pk, nil
}

func (t *Table) Header() packing.Header { return t.h }

// Rows is the number of rows. Valid ids are below Rows.
func (t *Table) Rows() int { return t.rows }

// Cols is the number of columns: the length of a row.
func (t *Table) Cols() int { return t.cols }

// Lookup writes row id to dst, Cols() long. An id that is not a row is an [*IDError], and dst stays
// unchanged.
func (t *Table) Lookup(dst []float32, id int) error {
	if id < 0 || id >= t.rows {
		return &IDError{0, int64(id), t.rows}
	}
	if len(dst) != t.cols {
		return fmt.Errorf("embedding: %d values for a row of %d", len(dst), t.cols)
	}
	t.reader.DequantizeRow(dst, t.data, id)
	return nil
}

// LookupBatch writes the rows of all ids in order to dst, len(ids) x Cols(). An id that is not a
// row is an [*IDError], and dst stays unchanged.
func LookupBatch[ID ~int | ~int32 | ~int64](t *Table, dst []float32, ids []ID) error {
	for i, id := range ids {
		if id < 0 || uint64(id) >= uint64(t.rows) {
			return &IDError{i, int64(id), t.rows}
		}
	}
	if len(dst) != len(ids)*t.cols {
		return fmt.Errorf("embedding: %d values for %d rows of %d", len(dst), len(ids), t.cols)
	}
	for _, id := range ids {
		t.reader.DequantizeRow(dst[:t.cols], t.data, int(id))
		dst = dst[t.cols:]
	}
	return nil
}

type unquantized struct {
	dtype packing.Dtype
	cols  int
}

func newUnquantized(h packing.Header) (rowReader, error) {
	switch h.Dtype {
	case packing.F32, packing.F16, packing.BF16:
		return &unquantized{h.Dtype, int(h.Cols)}, nil
	}
	return nil, &UnsupportedError{Msg: fmt.Sprintf("an unquantized embedding of dtype %s, want F32, F16 or BF16", h.Dtype)}
}

func (u *unquantized) DequantizeRow(dst []float32, data []byte, row int) {
	size := u.cols * u.dtype.Bits() / 8
	src := data[row*size:][:size]
	switch u.dtype {
	case packing.BF16:
		vec.WidenBF16(dst, src)
	case packing.F16:
		vec.WidenF16(dst, src)
	case packing.F32:
		vec.WidenF32(dst, src)
	}
}
