package safetensors

import (
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// mxfp4 is the DtypeName of a tensor that the files store as blocks and scales of the OCP
// Microscaling Formats specification: X_blocks, U8 [experts, rows, cols/32, 16] with the first of
// two columns in the low half of a byte, and X_scales, U8 [experts, rows, cols/32] of E8M0. The
// tensor X has dtype F4, the bytes of X_blocks, and the shape that X has in an unquantized
// checkpoint of gpt-oss: [experts, cols, rows].
const mxfp4 = "MXFP4"

// f4 is the dtype of numbers of 4 bits, two to a byte.
var f4, _ = packing.ParseDtype("F4")

// MXFP4 reports whether the tensor is read from blocks and scales, exactly as BF16 would hold it.
func (t *Tensor) MXFP4() bool { return t.DtypeName == mxfp4 }

const (
	blocksSuffix = "_blocks"
	mxSuffix     = "_scales"
	mxBlock      = 32 // columns with a common scale
)

// joinBlocks replaces X_blocks by X where X_scales fits.
func (c *Checkpoint) joinBlocks() {
	var found []int // renamed last: Lookup needs the order of names
	for i := range c.tensors {
		t := &c.tensors[i]
		if t.Dtype == f4 && len(t.Shape) == 3 { // joined before, in a copy of the checkpoint
			if s, ok := c.Lookup(t.Name + mxSuffix); ok && s.Dtype == packing.U8 && slices.Equal(s.Shape, []int64{t.Shape[0], t.Shape[2], t.Shape[1] / mxBlock}) {
				t.DtypeName = mxfp4
			}
		}
		name, ok := strings.CutSuffix(t.Name, blocksSuffix)
		if !ok || t.Dtype != packing.U8 || len(t.Shape) != 4 || t.Shape[3] != mxBlock/2 {
			continue
		}
		s, ok := c.Lookup(name + mxSuffix)
		if _, taken := c.find(name); taken || !ok || s.Dtype != packing.U8 || !slices.Equal(s.Shape, t.Shape[:3]) {
			continue
		}
		found = append(found, i)
	}
	for _, i := range found {
		t := &c.tensors[i]
		t.Name, t.Dtype, t.DtypeName = strings.TrimSuffix(t.Name, blocksSuffix), f4, mxfp4
		t.Shape = []int64{t.Shape[0], t.Shape[2] * mxBlock, t.Shape[1]}
	}
	if found != nil {
		slices.SortFunc(c.tensors, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	}
}

// openMXFP4 finds the scales of a tensor, in its blocks' order of rows.
func (w *Weights) openMXFP4(transposed bool) error {
	b, s, err := w.ck.FindBlockScales(w.Tensor.Name, [2]int{})
	if err != nil {
		return err
	}
	if b == nil || !transposed {
		return w.ck.unsupported(w.Tensor, "F4 without MXFP4's scales, or not of experts that are stored inputs x outputs")
	}
	w.Rows, w.Cols, w.transposed, w.Scale = w.Cols, w.Rows, false, b
	b.exponents, err = w.ck.Bytes(s)
	w.exponents = s
	return err
}

// applyExponents multiplies row r, counted over all matrices, by powers of two. Products are exact,
// or infinite.
func (b *BlockScale) applyExponents(row []float32, r int) {
	for i, e := range b.exponents[r*b.across:][:b.across] {
		scale := floats.E8M0ToF32(e)
		for k, v := range row[i*mxBlock:][:mxBlock] {
			row[i*mxBlock+k] = v * scale
		}
	}
}
