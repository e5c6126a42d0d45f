package hfquant

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// ONNX Runtime multiplies with codes in a node MatMulNBits, and looks tokens up with
// GatherBlockQuantized. Package fromonnx presents a graph as a checkpoint. The weight M of shape
// [N, K], in blocks of B, is then
//
//	M.weight      U8 [N, bytes], each row a stream of unsigned codes, up to a whole block
//	M.scales      F32, F16 or BF16 [N, blocks]
//	M.zero_points U8 [N, bytes], each row a stream of unsigned zero points, or in the scales' dtype
//	              [N, blocks]; absent: the middle of the codes
//
// Source: docs/ContribOperators.md and contrib_ops/cpu/quantization of ONNX Runtime.

// LayoutONNX lays out a weight of shape [n, k] for package toonnx. The parts have no names.
func LayoutONNX(name string, n, k int64, s Scheme) *Layout {
	blocks := s.Groups(k)
	l := &Layout{RowStep: 1, name: name, shape: []int64{n, k}, scheme: s, Parts: []Part{
		onnxCodes(n, blocks*s.Group, s.Bits, func(r *Row) []int8 { return r.Codes }), scalesPart("", n, k, s),
	}}
	if s.Zeros == IntZeros {
		l.Parts = append(l.Parts, onnxCodes(n, blocks, s.Bits, func(r *Row) []int8 { return r.Zeros }))
	}
	return l
}

// onnxCodes is a part with at least width codes in a row. Behind the last code of a row are zeros.
func onnxCodes(n, width int64, bits int, of func(r *Row) []int8) Part {
	bytes := (width*int64(bits) + 7) / 8
	return Part{Dtype: packing.U8, Shape: []int64{n, bytes}, fill: func(dst []byte, r *Row) {
		codes := of(r)
		packCodes(dst, append(slices.Clip(codes), make([]int8, len(dst)*8/bits-len(codes))...), bits)
	}}
}

// ONNXWeight is what attributes of a node say about a weight.
type ONNXWeight struct {
	Module         string // "model.layers.0.mlp.up_proj"
	K, Bits, Block int64
}

// FindONNX lists the weights of nodes.
func FindONNX(ck *safetensors.Checkpoint, config []byte, list []ONNXWeight) (*Quantized, error) {
	f := &finder{ck: ck, q: &Quantized{Format: ONNX, Parts: map[string]int{}}}
	return f.q, f.run(func(f *finder) error {
		for _, w := range list {
			if err := f.addONNX(w); err != nil {
				return err
			}
		}
		return nil
	}, config)
}

func (f *finder) addONNX(w ONNXWeight) error {
	name := w.Module + ".weight"
	if !slices.Contains([]int64{2, 4, 8}, w.Bits) {
		return f.unsupported(name, "its node has codes of %d bits, expected 2, 4 or 8", w.Bits)
	}
	if w.Block < 16 || w.Block&(w.Block-1) != 0 || w.K <= 0 || w.K > math.MaxInt32 || w.Block > math.MaxInt32 {
		return f.formatError(name, "its node has blocks of %d of %d columns, expected a power of two from 16 on", w.Block, w.K)
	}
	n, _, err := f.dimensions(name, name)
	if err != nil {
		return err
	}
	scheme := Scheme{Bits: int(w.Bits), Group: w.Block}
	blocks := scheme.Groups(w.K)
	c := &onnxWeight{bits: int(w.Bits)}
	if c.codes, err = f.part(name, name, []packing.Dtype{packing.U8}, []int64{n, blocks * w.Block * w.Bits / 8}); err != nil {
		return err
	}
	if c.scales, err = f.part(name, w.Module+".scales", scaleDtypes, []int64{n, blocks}); err != nil {
		return err
	}
	parts := []string{name, w.Module + ".scales"}
	if t, ok := f.ck.Lookup(w.Module + ".zero_points"); ok {
		dtype, width := packing.U8, (blocks*w.Bits+7)/8
		if t.Dtype != packing.U8 {
			dtype, width = c.scales.dtype, blocks
		}
		if c.zeros, err = f.part(name, t.Name, []packing.Dtype{dtype}, []int64{n, width}); err != nil {
			return err
		}
		parts = append(parts, t.Name)
	}
	if w.Block >= w.K {
		scheme.Group = 0
	}
	if err := c.facts(&scheme, n, int(blocks)); err != nil {
		return err
	}
	return f.add(Weight{Name: name, Shape: []int64{n, w.K}, Scheme: scheme, codec: c}, parts...)
}

type onnxWeight struct {
	bits                 int
	codes, scales, zeros *matrix // zeros: nil if absent
}

// facts finds the narrowest dtype of scales without loss, and the least that zero points need.
func (w *onnxWeight) facts(s *Scheme, n int64, groups int) error {
	scales, zeros, exact := make([]float32, groups), make([]float32, groups), slices.Clone(scaleDtypes)
	low, high := limits(w.bits)
	for i := range n {
		if err := w.groups(scales, zeros, i); err != nil {
			return err
		}
		for g, v := range scales {
			exact = slices.DeleteFunc(exact, func(d packing.Dtype) bool { return !isExact(d, v) })
			switch z := zeros[g]; {
			case z != float32(int8(z)) || int(z) < low || int(z) > high:
				s.Zeros = Offsets
			case z != 0:
				s.Zeros = max(s.Zeros, IntZeros)
			}
		}
	}
	s.Scales = exact[0]
	return nil
}

// groups reads the scales of a row, and the zero points of signed codes.
func (w *onnxWeight) groups(scales, zeros []float32, n int64) error {
	if err := w.scales.scales(scales, n); err != nil || w.zeros == nil {
		return err
	}
	if w.zeros.dtype == packing.U8 {
		for g := range zeros {
			zeros[g] = float32(unsignedAt(w.zeros.row(n), int64(g), w.bits))
		}
	} else if err := w.zeros.scales(zeros, n); err != nil {
		return err
	}
	for g := range zeros {
		zeros[g] -= float32(int(1) << (w.bits - 1))
	}
	return nil
}

func (w *onnxWeight) readCodes(row *Row, n int64) error {
	unpackCodes(row.Codes, w.codes.row(n), w.bits)
	return nil
}

func (w *onnxWeight) readGroups(row *Row, n int64) error {
	zeros := make([]float32, len(row.Scales))
	if err := w.groups(row.Scales, zeros, n); err != nil {
		return err
	}
	for g := range row.Zeros {
		row.Zeros[g] = int8(zeros[g])
	}
	for g, s := range row.Scales[:len(row.Offsets)] {
		// The runtime rounds the products, too.
		if row.Offsets[g] = float32(-float32(zeros[g] * s)); !floats.Finite(row.Offsets[g]) {
			return fmt.Errorf("tensor %s: row %d: zero point %g of group %d times scale %g is beyond the float32 numbers: no .gqf file holds these weights", quote(w.zeros.name), n, zeros[g], g, s)
		}
	}
	return nil
}
