package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// Weights reads a tensor of any dtype as float32: Slices matrices of Rows outputs x Cols inputs.
// Weights applies FP8 block scales and transposes matrices that the checkpoint stores as inputs x
// outputs. Rows are numbered over all slices: row r of slice s is row s*Rows + r.
//
// Several goroutines may call methods at once. Weights is valid until the checkpoint is closed.
type Weights struct {
	Tensor Tensor
	// Slices is the product of all dimensions but the last two: the experts of a fused tensor.
	Slices int
	// Rows and Cols are the shape of a slice. A tensor of a single dimension is a single row.
	Rows, Cols int
	// Scale holds the block scales of FP8 weights; nil if the checkpoint has none.
	Scale *BlockScale

	ck         *Checkpoint
	view       []byte
	bits       int // per element
	transposed bool
	exponents  Tensor // scales of MXFP4
}

// WeightsOptions holds facts about a tensor that its header does not state.
type WeightsOptions struct {
	// Block is the size of a block of FP8 weights in rows and columns, config.json's
	// quantization_config.weight_block_size. Default (0): 128.
	Block [2]int
	// Transposed: the checkpoint stores each slice as Cols x Rows. Default: Rows x Cols.
	Transposed bool
}

// Weights prepares the reading of t. A dtype that does not hold weights, block scales of an unknown
// format, and block scales of a transposed tensor are an *UnsupportedError. Block scales that do
// not fit the tensor are a *FormatError.
func (c *Checkpoint) Weights(t Tensor, o WeightsOptions) (*Weights, error) {
	w, err := c.plain(t)
	if err != nil {
		return nil, err
	}
	w.transposed = o.Transposed
	if t.Dtype == f4 {
		return w, w.openMXFP4(o.Transposed)
	}
	if isFP8(t.Dtype) {
		if w.Scale, err = c.BlockScales(t.Name, o.Block); err != nil {
			return nil, err
		}
	}
	if o.Transposed {
		if w.Scale != nil {
			return nil, c.unsupported(t, "it has block scales ("+quote(w.Scale.Name)+") and is stored inputs x outputs")
		}
		w.Rows, w.Cols = w.Cols, w.Rows
	}
	return w, nil
}

// plain is Weights without block scales and transposition.
func (c *Checkpoint) plain(t Tensor) (*Weights, error) {
	if !t.Dtype.IsFloat() {
		return nil, c.unsupported(t, "dtype "+t.DtypeName+" does not hold floating-point weights")
	}
	view, err := c.Bytes(t)
	if err != nil {
		return nil, err
	}
	all, cols := t.Matrix()
	w := &Weights{Tensor: t, Slices: 1, Rows: int(all), Cols: int(cols), ck: c, view: view, bits: t.Dtype.Bits()}
	if n := len(t.Shape); n >= 2 {
		w.Rows = int(t.Shape[n-2])
		w.Slices = int(all) / max(w.Rows, 1)
	}
	return w, nil
}

// Precision is the format of scales that holds the weights of the tensor: BF16, F16 or F32, or
// ScaleNone for other dtypes. FP8 weights with block scales are products that no such format holds.
func (t *Tensor) Precision() packing.ScaleDtype {
	switch t.Dtype {
	case packing.BF16, f4: // BF16 holds an E2M1 number times a power of two
		return packing.ScaleBF16
	case packing.F16:
		return packing.ScaleF16
	case packing.F32:
		return packing.ScaleF32
	}
	return packing.ScaleNone
}

// isFP8 reports whether tensors of dtype d may have block scales.
func isFP8(d packing.Dtype) bool { return d == packing.F8E4M3 || d == packing.F8E5M2 }

// Bytes returns the checkpoint's bytes of n rows from first on, without block scales, or nil if the
// checkpoint stores the tensor transposed: rows are not contiguous then.
func (w *Weights) Bytes(first, n int) []byte {
	if w.transposed {
		return nil
	}
	width := w.Cols * w.bits / 8
	return w.view[first*width:][:n*width]
}

// Read converts n rows from first on to float32; len(dst) is n * Cols. ReadRows documents the
// conversion of each dtype; an FP8 value with a block scale is float32(value * scale). Rows of a
// transposed tensor must lie in the same slice.
//
// Read needs no Guard: a truncated file is a *FormatError. Rows of a remote file are fetched, in
// the memory of a whole slice if the tensor is transposed.
func (w *Weights) Read(dst []float32, first, n int) error {
	if first < 0 || n < 0 || n > w.Slices*w.Rows-first {
		return fmt.Errorf("safetensors: tensor %s has %d rows, not rows %d to %d", quote(w.Tensor.Name), w.Slices*w.Rows, first, first+n)
	}
	if len(dst) != n*w.Cols {
		return fmt.Errorf("safetensors: tensor %s: %d rows of %d values do not go into %d", quote(w.Tensor.Name), n, w.Cols, len(dst))
	}
	release, err := w.ck.fetch(w.Ranges(nil, first, n))
	if err != nil {
		return err
	}
	defer release()
	return w.ck.Guard(func() error {
		w.Widen(dst, first, n)
		return nil
	})
}

// Ranges appends the ranges of the checkpoint that Widen reads for n rows from first on: for a
// transposed tensor, whole slices.
func (w *Weights) Ranges(list []Range, first, n int) []Range {
	width := int64(w.Cols) * int64(w.bits) / 8
	if w.transposed && n > 0 {
		first, n = first/w.Rows*w.Rows, w.Rows
	}
	if w.exponents.Size > 0 {
		list = append(list, w.exponents.Range(int64(first*w.Scale.across), int64(n*w.Scale.across)))
	}
	return append(list, w.Tensor.Range(int64(first)*width, int64(n)*width))
}

// Widen is Read without checks. Call Widen inside Checkpoint.Guard, when Ranges are fetched.
func (w *Weights) Widen(dst []float32, first, n int) {
	if w.transposed {
		w.gather(dst, first, n)
		return
	}
	Widen(dst[:n*w.Cols], w.Bytes(first, n), w.Tensor.Dtype)
	if w.Scale == nil {
		return
	}
	for i := range n {
		w.Scale.apply(dst[i*w.Cols:][:w.Cols], first+i)
	}
}

// gather reads n outputs, from number first on, of slices that are stored as Cols x Rows. Each
// stored row has a value for every output, so memory is read in order.
func (w *Weights) gather(dst []float32, first, n int) {
	slice, row := first/w.Rows, first%w.Rows
	line := make([]float32, n)
	for k := range w.Cols {
		size := w.bits / 8
		at := ((slice*w.Cols+k)*w.Rows + row) * size
		Widen(line, w.view[at:][:n*size], w.Tensor.Dtype)
		for i, v := range line {
			dst[i*w.Cols+k] = v
		}
	}
}

// ReadRows converts rows row0 .. row0+rows-1 of t, seen as a matrix (Tensor.Matrix), to float32.
// len(dst) is rows times columns. The dtype must be a float type that can be quantized
// (packing.Dtype.IsFloat). F64 is rounded to nearest, ties to even, and overflows to infinity; the
// other dtypes are exact. FP8 values are read without block scales; Weights applies block scales.
//
// ReadRows needs no Guard: a truncated file is a *FormatError. Rows of a remote file are fetched.
func (c *Checkpoint) ReadRows(dst []float32, t Tensor, row0, rows int) error {
	w, err := c.plain(t)
	if err != nil {
		return err
	}
	return w.Read(dst, row0, rows)
}

// Widen converts len(dst) little-endian values in src, of a dtype with Dtype.IsFloat, to float32.
// Call Widen inside Guard if src is a view of a checkpoint.
func Widen(dst []float32, src []byte, d packing.Dtype) {
	switch d {
	case packing.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case packing.F32:
		vec.WidenF32(dst, src)
	case packing.F16:
		vec.WidenF16(dst, src)
	case packing.BF16:
		vec.WidenBF16(dst, src)
	case packing.F8E4M3:
		dst = dst[:len(src)] // avoids bounds checks below
		for i, b := range src {
			dst[i] = floats.F8E4M3ToF32(b)
		}
	case packing.F8E5M2:
		dst = dst[:len(src)] // avoids bounds checks below
		for i, b := range src {
			dst[i] = floats.F8E5M2ToF32(b)
		}
	case f4:
		for i := range dst {
			dst[i] = floats.E2M1ToF32(src[i/2] >> (i % 2 * 4))
		}
	}
}

// scaleSuffix is appended to the name of weights for the name of their block scales: X.weight and
// X.weight_scale_inv. Despite the name a scale is a factor. (This is DeepSeek-V3's format;
// config.json has quantization_config.weight_block_size.)
const scaleSuffix = "_scale_inv"

// A BlockScale holds the scales of an FP8 tensor. Each matrix [rows, cols] of the tensor (its last
// two dimensions) is divided into blocks, possibly smaller at the edges, with a factor each.
type BlockScale struct {
	Name         string // name of the tensor of scales
	rows         int    // of a matrix
	block        [2]int // rows, columns
	down, across int    // blocks of a matrix: ceil(rows/block[0]), ceil(cols/block[1])
	scales       []float32
	exponents    []byte // in place of scales: of MXFP4, a block of a row for each
}

// BlockScales finds the scales of the tensor called name, in the tensor with "_scale_inv" appended
// to that name. block is the number of rows and columns of a block; 0 means 128. The scales are
// F32, BF16 or F16. Their shape is the shape of the weights with the last two dimensions divided by
// the block and rounded up; a shape of [] or [1] means a single scale for the whole tensor.
//
// BlockScales returns nil without an error if the checkpoint has no scales for the tensor. Scales
// of another FP8 format (X.weight_scale, X.scale, X.qscale_weight) are an *UnsupportedError,
// because the values would be wrong without these scales. Scales that do not fit the weights are a
// *FormatError.
func (c *Checkpoint) BlockScales(name string, block [2]int) (*BlockScale, error) {
	b, s, err := c.FindBlockScales(name, block)
	if err != nil || b == nil {
		return nil, err
	}
	b.scales = make([]float32, s.Numel())
	rows, _ := s.Matrix()
	return b, c.ReadRows(b.scales, s, 0, int(rows))
}

// FindBlockScales is BlockScales without reading the scales: FindBlockScales only checks their fit,
// and returns the tensor of scales.
func (c *Checkpoint) FindBlockScales(name string, block [2]int) (b *BlockScale, scales Tensor, err error) {
	w, ok := c.Lookup(name)
	if !ok {
		return nil, Tensor{}, fmt.Errorf("safetensors: %s has no tensor %s", c.dir, quote(name))
	}
	if w.Dtype == f4 {
		s, ok := c.Lookup(name + mxSuffix)
		if !ok || w.DtypeName != mxfp4 {
			return nil, Tensor{}, nil
		}
		return &BlockScale{Name: s.Name, across: int(s.Shape[2])}, s, nil
	}
	s, ok := c.Lookup(name + scaleSuffix)
	if !ok {
		return nil, Tensor{}, c.noForeignScale(w)
	}
	if !isFP8(w.Dtype) {
		return nil, Tensor{}, c.unsupported(w, "it has block scales ("+quote(s.Name)+") but is of dtype "+w.DtypeName+", not FP8")
	}
	switch s.Dtype {
	case packing.F32, packing.BF16, packing.F16:
	default:
		return nil, Tensor{}, c.unsupported(s, "block scales of dtype "+s.DtypeName)
	}
	for i := range block {
		if block[i] < 0 {
			return nil, Tensor{}, fmt.Errorf("safetensors: blocks of %d x %d", block[0], block[1])
		}
		block[i] = cmp.Or(block[i], 128)
	}
	b = &BlockScale{Name: s.Name, block: block}
	return b, s, c.fit(b, w, s)
}

// noForeignScale fails if w is FP8 and has scales of a format that this package does not read:
// compressed-tensors, DeepSeek's own inference code, or Mistral.
func (c *Checkpoint) noForeignScale(w Tensor) error {
	if !isFP8(w.Dtype) {
		return nil
	}
	module := strings.TrimSuffix(w.Name, "weight")
	for _, name := range []string{w.Name + "_scale", module + "scale", module + "qscale_weight"} {
		if s, ok := c.Lookup(name); ok {
			return c.unsupported(w, "its FP8 values have scales in "+quote(s.Name)+"; only "+quote(w.Name+scaleSuffix)+" is read")
		}
	}
	return nil
}

// fit checks the shape of the scales s against the weights w and sets b's geometry.
func (c *Checkpoint) fit(b *BlockScale, w, s Tensor) error {
	n := len(w.Shape)
	rows, cols := w.Matrix()
	if n >= 2 {
		rows = w.Shape[n-2]
	}
	if len(s.Shape) == 0 || slices.Equal(s.Shape, []int64{1}) { // a single block for the whole tensor
		all, _ := w.Matrix()
		b.rows, b.block = int(all), [2]int{int(max(all, 1)), int(max(cols, 1))}
		b.down, b.across = 1, 1
		return nil
	}
	b.rows = int(rows)
	down, across := ceil(rows, b.block[0]), ceil(cols, b.block[1])
	b.down, b.across = int(down), int(across)
	if n < 2 || !slices.Equal(s.Shape, append(slices.Clone(w.Shape[:n-2]), down, across)) {
		return &FormatError{File: c.maps[s.File].Name(), Offset: s.at, Msg: fmt.Sprintf(
			"tensor %s of shape %v does not hold the scales of %s, shape %v, in blocks of %d x %d", quote(s.Name), s.Shape, quote(w.Name), w.Shape, b.block[0], b.block[1])}
	}
	return nil
}

func ceil(n int64, block int) int64 { return n/int64(block) + min(n%int64(block), 1) }

// apply multiplies row r, counted over all matrices, by the scales of its blocks.
func (b *BlockScale) apply(row []float32, r int) {
	if b.exponents != nil {
		b.applyExponents(row, r)
		return
	}
	first := (r/b.rows*b.down + r%b.rows/b.block[0]) * b.across
	for _, scale := range b.scales[first:][:b.across] {
		run := row[:min(b.block[1], len(row))]
		for i, v := range run {
			run[i] = float32(v * scale)
		}
		row = row[len(run):]
	}
}
