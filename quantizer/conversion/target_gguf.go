package conversion

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// ggufTarget is a .gguf file, or a set of shards, that is written.
type ggufTarget struct {
	*ggufOutput
	layout *gguf.Layout
}

func (o *ggufOutput) target(c *CalibratedCodes, hashes []string) (target, error) {
	pairs, err := o.metadata(c, hashes)
	if err != nil {
		return nil, err
	}
	tensors := make([]gguf.TensorInfo, len(o.model.Tensors))
	for i, t := range o.model.Tensors {
		tensors[i] = gguf.TensorInfo{Name: t.Name, Dims: t.Shape, Type: o.types[i]}
	}
	layout, err := gguf.NewLayout(pairs, tensors, o.opts.Split)
	return &ggufTarget{o, layout}, err
}

func (t *ggufTarget) sizes() (list []int64) {
	for _, s := range t.layout.Shards {
		list = append(list, s.Size)
	}
	return list
}

func (t *ggufTarget) paths(path string) []string       { return t.layout.Paths(path) }
func (t *ggufTarget) output(path string) (string, int) { return t.paths(path)[0], len(t.layout.Shards) }
func (t *ggufTarget) written(int64, []byte)            {} // the format has no checksums

func (t *ggufTarget) sinks(list []sink, it *quantized) ([]sink, error) {
	return append(list, &blockSink{target: t, it: it, rowBytes: int(it.kind.Size(it.cols))}), nil
}

// finish writes the headers, and the tensors that have no source.
func (t *ggufTarget) finish(j *job) error {
	for i, s := range t.layout.Shards {
		if _, err := j.out[i].WriteAt(s.Header, 0); err != nil {
			return err
		}
	}
	for i, m := range t.model.Tensors {
		if len(m.Values) == 0 {
			continue
		}
		place := t.layout.Places[i]
		if _, err := j.out[place.Shard].WriteAt(appendFloats(nil, m.Values, packing.ScaleF32), place.Offset); err != nil {
			return err
		}
	}
	return nil
}

// blockSink packs the rows of a quantized item into the blocks of a type.
type blockSink struct {
	target   *ggufTarget
	it       *quantized
	rowBytes int
	out      []byte
	scales   []float32 // one per block, where a group is several blocks
	scatter  scatter
}

func (s *blockSink) begin(rows int64) { buffer.Grow(&s.out, int(rows)*s.rowBytes) }

func (s *blockSink) pack(w *worker, first, n int) (row int, err error) {
	for i := range n {
		dst := s.out[(first+i)*s.rowBytes:][:s.rowBytes]
		r := w.rowCodes(int64(i))
		if r.Blocks != nil {
			copy(dst, r.Blocks)
			continue
		}
		if err := s.it.kind.Encode(dst, gguf.Fields{Codes: r.Codes, Scales: s.blockScales(r.Scales)}); err != nil {
			return i, s.explain(r.Scales, err)
		}
	}
	return 0, nil
}

// blockScales repeats the scales of groups that are several blocks.
func (s *blockSink) blockScales(scales []float32) []float32 {
	blocks := int(s.it.cols) / s.it.kind.BlockWeights()
	if len(scales) == blocks {
		return scales
	}
	buffer.Grow(&s.scales, blocks)
	for i := range s.scales {
		s.scales[i] = scales[i*len(scales)/blocks]
	}
	return s.scales
}

// explain names a scale that the type cannot hold.
func (s *blockSink) explain(scales []float32, err error) error {
	for g, v := range scales {
		if s.it.kind == gguf.Q1_0 {
			v /= 2
		}
		if floats.F16ToF32(floats.F16FromF32(v)) != v {
			return fmt.Errorf("group %d has the scale %g, which is no F16 number, as %s needs: quantize the checkpoint again with --target gguf", g, scales[g], s.it.kind)
		}
	}
	return err
}

func (s *blockSink) write(w *worker, u unit) error {
	for _, r := range s.target.regions[s.it.index][u.slice] {
		row := u.first * blockRows
		from, to := r.rows(row, row+u.rows(s.it))
		if from >= to {
			continue
		}
		data := s.out[(from-row)*int64(s.rowBytes):][:(to-from)*int64(s.rowBytes)]
		if err := s.scatter.write(w, s.target, r, data, from, s.rowBytes); err != nil {
			return err
		}
	}
	return nil
}

// rows is the part of the source's rows from .. to that is in the region.
func (r *region) rows(from, to int64) (int64, int64) {
	return max(from, int64(r.From)), min(to, int64(r.From+r.Rows))
}

// scatter writes rows in the order that llama.cpp has them.
type scatter struct {
	order  []int64 // numbers of rows in the part, of the rows to write
	sorted []byte
}

// write puts rows from on of a slice, which are data, at their places in the region's tensor.
func (s *scatter) write(w *worker, t *ggufTarget, r region, data []byte, from int64, rowBytes int) error {
	n := len(data) / rowBytes
	size := int64(rowBytes)
	place := t.layout.Places[r.tensor]
	first := from - int64(r.From)
	if r.HeadDim == 0 {
		return w.write(place.Shard, data, place.Offset+(r.row+first)*size)
	}
	// Whole heads are contiguous again when their rows are sorted.
	s.order = s.order[:0]
	for i := range n {
		s.order = append(s.order, int64(r.PartRow(int(first)+i)))
	}
	slices.Sort(s.order)
	buffer.Grow(&s.sorted, len(data))
	for i, row := range s.order {
		copy(s.sorted[i*rowBytes:][:rowBytes], data[(int64(r.Row(int(row)))-first)*size:])
	}
	for i := 0; i < n; {
		end := i + 1
		for end < n && s.order[end] == s.order[end-1]+1 {
			end++
		}
		if err := w.write(place.Shard, s.sorted[i*rowBytes:end*rowBytes], place.Offset+(r.row+s.order[i])*size); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// copyUnits cuts an unquantized item into whole rows.
func (o *ggufOutput) copyUnits(list *unitList, it *unquantized) {
	rowBytes := it.cols * int64(it.src.Dtype.Bits()/8)
	for s := range it.slices {
		list.cut(unit{item: it, slice: s}, it.rows*rowBytes, max(1, unitBytes/rowBytes)*rowBytes)
	}
}

// copy writes rows of an unquantized item, as the tensor's type.
func (t *ggufTarget) copy(w *worker, it *unquantized, u unit, _ *unitResult) error {
	rowBytes := it.cols * int64(it.src.Dtype.Bits()/8)
	row, rows := u.first/rowBytes, u.count/rowBytes
	for _, r := range t.regions[it.index][u.slice] {
		from, to := r.rows(row, row+rows)
		if from >= to {
			continue
		}
		kind := t.types[r.tensor]
		data, err := t.sameBytes(w, it, u.slice, from, to, r, kind)
		if err == nil && data == nil {
			data, err = t.convert(w, it, u.slice, from, to, r.Add, kind)
		}
		if err == nil {
			err = w.scatter.write(w, t, r, data, from, int(kind.Size(it.cols)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameBytes returns the source's bytes of rows, if the tensor has the same; else nil.
func (t *ggufTarget) sameBytes(w *worker, it *unquantized, slice int, from, to int64, r region, kind gguf.TensorType) ([]byte, error) {
	same := map[packing.Dtype]gguf.TensorType{packing.F32: gguf.F32, packing.F16: gguf.F16, packing.BF16: gguf.BF16}
	if of, ok := same[it.src.Dtype]; !ok || of != kind || r.Add != 0 || it.transposed {
		return nil, nil
	}
	size, first := kind.Size(it.cols), int64(slice)*it.rows
	data, _, err := w.job.piece(&it.entry, (first+from)*size, (to-from)*size, &w.converted)
	return data, err
}

// convert reads rows as float32 and returns them, with add to each value, in another type.
func (t *ggufTarget) convert(w *worker, it *unquantized, slice int, from, to int64, add float32, kind gguf.TensorType) ([]byte, error) {
	read, err := w.calibrated.reader(t.from, it)
	if err != nil {
		return nil, err
	}
	x := buffer.Grow(&w.x, int((to-from)*it.cols))
	read(x, slice, from, to-from)
	for i := range x {
		x[i] = float32(x[i] + add)
	}
	w.converted = appendFloats(w.converted[:0], x, floatDtype(kind))
	return w.converted, nil
}

// floatDtype is an unquantized type as a dtype of scales.
func floatDtype(kind gguf.TensorType) packing.ScaleDtype {
	switch kind {
	case gguf.F16:
		return packing.ScaleF16
	case gguf.BF16:
		return packing.ScaleBF16
	}
	return packing.ScaleF32
}
