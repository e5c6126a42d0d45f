package hfquant

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// compressed-tensors stores a linear layer M in two ways.
//
// int-quantized: M.weight I8 [N, K], the codes. pack-quantized: M.weight_packed I32 [N,
// ceil(K*bits/32)], each row a stream of codes plus 2^(bits-1); M.weight_shape [2] holds N and K.
//
// Both: M.weight_scale [N, groups]. Asymmetric: M.weight_zero_point, in int-quantized I8 [N,
// groups], in pack-quantized I32 [ceil(N*bits/32), groups], each column a stream. M.weight_g_idx
// I32 [K] is the group of each column. M.input_scale and the like say how activations are
// quantized.
//
// Source: compressors/pack_quantized and compressors/naive_quantized of compressed-tensors.

func findCompressed(f *finder) error {
	c, err := f.compressedConfig()
	if err != nil {
		return err
	}
	for _, t := range f.ck.Tensors() {
		module, last := splitName(t.Name)
		switch {
		case last == "bitmask":
			return f.unsupported(t.Name, "it belongs to a sparse weight, which is not read")
		case last == "weight_packed":
			err = f.addCompressed(c, module, PackQuantized, t)
		case last == "weight" && len(t.Shape) >= 2 && !t.Dtype.IsFloat():
			err = f.addCompressed(c, module, IntQuantized, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *finder) addCompressed(c *compressedConfig, module string, format Format, t safetensors.Tensor) error {
	group, err := c.group(f, module, t.Name)
	if err != nil {
		return err
	}
	if why := group.unread(c.Format); why != "" {
		return f.unsupported(t.Name, "%s", why)
	}
	w := &compressedWeight{bits: group.Weights.Bits}
	p := compressedParts{finder: f, weight: module + "weight", module: module, names: []string{t.Name}}
	shape := t.Shape
	if format == PackQuantized {
		name, _ := p.has("weight_shape")
		m, err := p.part(p.weight, name, []packing.Dtype{packing.I64, packing.I32}, []int64{2})
		if err != nil {
			return err
		}
		if shape, err = m.integers(p.ck); err != nil {
			return err
		}
	}
	if len(shape) != 2 || shape[0] <= 0 || shape[1] <= 0 || shape[0] > maxElements/shape[1] {
		return f.unsupported(t.Name, "shape %v, expected [rows, columns]", shape)
	}
	n, k := shape[0], shape[1]
	scheme := Scheme{Bits: w.bits}
	if group.strategy() == "group" {
		scheme.Group = *group.Weights.GroupSize
	}
	if scheme.Group > 0 && scheme.Group < k && k%scheme.Group != 0 {
		return f.unsupported(t.Name, "groups of %d columns do not divide rows of %d", scheme.Group, k)
	}
	if format == PackQuantized {
		w.packed, err = f.part(p.weight, t.Name, []packing.Dtype{packing.I32}, []int64{n, streamWords(k, w.bits)})
	} else {
		w.codes, err = f.part(p.weight, t.Name, []packing.Dtype{packing.I8}, []int64{n, k})
	}
	if err != nil {
		return err
	}
	if err := p.companions(w, group, &scheme, n, k); err != nil {
		return err
	}
	scheme.Scales = w.scales.dtype
	if w.zeros != nil || w.zeroColumns != nil {
		scheme.Zeros = IntZeros
	}
	f.q.Format = cmp.Or(f.q.Format, format)
	return f.add(Weight{Name: p.weight, Shape: []int64{n, k}, Scheme: scheme, codec: w}, p.names...)
}

// compressedParts collects the tensors of a weight apart from its codes.
type compressedParts struct {
	*finder
	weight, module string
	names          []string // of the tensors found
}

// has reports whether the checkpoint has the module's tensor called last, and claims the tensor.
func (p *compressedParts) has(last string) (string, bool) {
	name := p.module + last
	_, ok := p.ck.Lookup(name)
	if ok {
		p.names = append(p.names, name)
	}
	return name, ok
}

// companions sets scales, zero points and order of groups of w, and claims activations' tensors.
func (p *compressedParts) companions(w *compressedWeight, group *compressedGroup, s *Scheme, n, k int64) (err error) {
	groups := s.Groups(k)
	w.groups = groups
	shapes := [][]int64{{n, groups}}
	if groups == 1 {
		shapes = append(shapes, []int64{n})
	}
	if group.strategy() == "tensor" {
		shapes = [][]int64{{1}, {}}
	}
	name, _ := p.has("weight_scale")
	if w.scales, err = p.part(p.weight, name, scaleDtypes, shapes...); err != nil {
		return err
	}
	if err := p.zeros(w, group, shapes, n, groups); err != nil {
		return err
	}
	for _, last := range compressedActivations {
		p.has(last)
	}
	if name, ok := p.has("weight_g_idx"); ok {
		w.order, err = p.groupOrder(p.weight, name, k, s)
	}
	return err
}

// compressedActivations are the tensors of a layer that say how its activations are quantized, if
// not dynamically. No weight depends on these tensors.
var compressedActivations = []string{"input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point"}

// zeros sets the zero points of w. Those of symmetric weights, if any, are all zero.
func (p *compressedParts) zeros(w *compressedWeight, group *compressedGroup, shapes [][]int64, n, groups int64) error {
	symmetric := group.Weights.Symmetric == nil || *group.Weights.Symmetric
	name, ok := p.has("weight_zero_point")
	if symmetric && !ok {
		return nil
	}
	// Older versions stored the zero points of packed weights as int8 too.
	t, _ := p.ck.Lookup(name)
	if w.packed != nil && t.Dtype == packing.I32 && group.strategy() != "tensor" {
		m, err := p.part(p.weight, name, []packing.Dtype{packing.I32}, []int64{streamWords(n, w.bits), groups})
		if err != nil {
			return err
		}
		w.zeroColumns = &columns{view: m.view, cols: groups, bits: w.bits}
	} else {
		var err error
		if w.zeros, err = p.part(p.weight, name, []packing.Dtype{packing.I8}, shapes...); err != nil {
			return err
		}
	}
	if !symmetric {
		return nil
	}
	for row := range n {
		for g := range groups {
			if w.zero(row, g) != 0 {
				return p.formatError(name, "it has zero points other than 0, but quantization_config says that %s is symmetric", quote(p.weight))
			}
		}
	}
	w.zeros, w.zeroColumns = nil, nil
	return nil
}

// compressedWeight reads the rows of a weight from either codes or packed.
type compressedWeight struct {
	bits   int
	codes  *matrix
	packed *matrix
	scales *matrix
	// Zero points: neither, int8 per group, or a stream of codes per column.
	zeros       *matrix
	zeroColumns *columns
	order       []int32 // see groupOrder
	groups      int64   // stored, of a row
}

// zero is the zero point of group g, in order of storage, of row n.
func (w *compressedWeight) zero(n, g int64) int8 {
	if w.zeroColumns != nil {
		return w.zeroColumns.at(n, g)
	}
	return w.zeros.int8(n, g)
}

func (w *compressedWeight) readCodes(row *Row, n int64) error {
	if w.packed != nil {
		unpackCodes(row.Codes, w.packed.row(n), w.bits)
		return nil
	}
	return w.codes.codes(row.Codes, w.bits, n)
}

func (w *compressedWeight) readGroups(row *Row, n int64) error {
	if err := w.scales.scales(row.Scales[:w.groups], n); err != nil {
		return err
	}
	reorder(row.Scales, w.order)
	for g := range min(len(row.Zeros), int(w.groups)) {
		row.Zeros[g] = w.zero(n, int64(g))
	}
	reorder(row.Zeros, w.order)
	return nil
}

// holdsIntQuantized refuses zero points: vLLM multiplies symmetric weights only.
func holdsIntQuantized(s Scheme, n, k int64) error {
	if s.Zeros != NoZeros {
		return errors.New("weights are symmetric")
	}
	return holdsIntegers(s, n, k)
}

func layoutIntQuantized(name string, n, k int64, s Scheme) *Layout {
	return &Layout{RowStep: 1, Parts: []Part{int8Codes(name, n, k), scalesPart(name+"_scale", n, k, s)}}
}

func layoutPackQuantized(name string, n, k int64, s Scheme) *Layout {
	l := &Layout{RowStep: 1, Parts: []Part{
		streamPart(name+"_packed", packing.I32, n, k, s),
		scalesPart(name+"_scale", n, k, s),
		{Name: name + "_shape", Dtype: packing.I64, Shape: []int64{2}, constant: func() []byte {
			return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(n)), uint64(k))
		}},
	}}
	if s.Zeros == IntZeros {
		groups := s.Groups(k)
		l.RowStep = codesOfWords(s.Bits)
		l.Parts = append(l.Parts, Part{
			Name: name + "_zero_point", Dtype: packing.I32, Shape: []int64{streamWords(n, s.Bits), groups},
			put: func(rows []Row, first int64, write func(off int64, b []byte) error) error {
				c := &columns{view: make([]byte, 4*groups*streamWords(int64(len(rows)), s.Bits)), cols: groups, bits: s.Bits}
				for i := range rows {
					for g, z := range rows[i].Zeros {
						c.set(int64(i), int64(g), z)
					}
				}
				return write(4*groups*(first*int64(s.Bits)/32), c.view)
			},
		})
	}
	return l
}
