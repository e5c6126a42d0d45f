package togguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
)

// target is a .gguf file, or a set of shards, that is written.
type target struct {
	*Output
	hashes []string
	layout *gguf.Layout

	mu  sync.Mutex
	sum uint32 // CRC register of the data of all shards, as of one file
}

func (o *Output) Target(c *plan.Codes, hashes []string, found []write.ItemResult) (write.Target, error) {
	layout, err := o.lay(c, hashes, found)
	return &target{Output: o, hashes: hashes, layout: layout}, err
}

func (o *Output) lay(c *plan.Codes, hashes []string, found []write.ItemResult) (*gguf.Layout, error) {
	pairs, err := o.metadata(c, hashes, found)
	if err != nil {
		return nil, err
	}
	tensors := make([]gguf.TensorInfo, len(o.Model.Tensors))
	for i, t := range o.Model.Tensors {
		tensors[i] = gguf.TensorInfo{Name: t.Name, Dims: t.Shape, Type: o.types[i]}
	}
	return gguf.NewLayout(pairs, tensors, o.opts.Split)
}

func (t *target) Files(path string) (list []write.File) {
	for i, p := range t.layout.Paths(path) {
		list = append(list, write.File{Path: p, Size: t.layout.Shards[i].Size})
	}
	return list
}

func (t *target) Shards() (n int, dir bool) { return len(t.layout.Shards), false }

// write writes data to a shard, and adds them to the sum, by which the shards' id depends on what
// they hold.
func (t *target) write(w *write.Worker, file int, b []byte, off int64) error {
	if len(t.layout.Shards) > 1 {
		rest := -off - int64(len(b))
		for _, s := range t.layout.Shards[file:] {
			rest += s.Size
		}
		register := crc32c.Combine(^crc32c.Update(0xFFFFFFFF, b), 0, rest)
		t.mu.Lock()
		t.sum ^= register
		t.mu.Unlock()
	}
	return w.Write(file, b, off)
}

func (t *target) Sinks(list []write.RowSink, it *plan.Quantized) ([]write.RowSink, error) {
	return append(list, &blockSink{target: t, it: it, rowBytes: int(it.Kind.Size(it.Cols))}), nil
}

// Finish writes the headers, and the tensors that have no source.
func (t *target) Finish(files []io.WriterAt, c *plan.Codes, found []write.ItemResult) error {
	layout, err := t.lay(c, t.hashes, found)
	if err != nil {
		return err
	}
	layout.NameSet(binary.LittleEndian.AppendUint32(nil, t.sum))
	for i, s := range layout.Shards {
		if _, err := files[i].WriteAt(s.Header, 0); err != nil {
			return err
		}
	}
	for i, m := range t.Model.Tensors {
		if len(m.Values) == 0 {
			continue
		}
		place := t.layout.Places[i]
		if _, err := files[place.Shard].WriteAt(write.AppendFloats(nil, m.Values, packing.ScaleF32), place.Offset); err != nil {
			return err
		}
	}
	return nil
}

// blockSink packs the rows of a quantized item into the blocks of a type.
type blockSink struct {
	target   *target
	it       *plan.Quantized
	rowBytes int
	out      []byte
	scales   []float32 // one per block, where a group is several blocks
	scatter  scatter
}

func (s *blockSink) Begin(rows int64) { buffer.Grow(&s.out, int(rows)*s.rowBytes) }

func (s *blockSink) Pack(b *write.Block, first, n int) (row int, err error) {
	for i := range n {
		dst := s.out[(first+i)*s.rowBytes:][:s.rowBytes]
		r := b.Row(int64(i))
		if r.Blocks != nil {
			copy(dst, r.Blocks)
			continue
		}
		if err := s.it.Kind.Encode(dst, gguf.Fields{Codes: r.Codes, Scales: s.blockScales(r.Scales)}); err != nil {
			return i, s.explain(r.Scales, err)
		}
	}
	return 0, nil
}

// blockScales repeats the scales of groups that are several blocks.
func (s *blockSink) blockScales(scales []float32) []float32 {
	blocks := int(s.it.Cols) / s.it.Kind.BlockWeights()
	if len(scales) != blocks {
		s.scales = plan.Repeat(s.scales[:0], scales, blocks, blocks/len(scales))
		return s.scales
	}
	return scales
}

func (s *blockSink) explain(scales []float32, err error) error {
	for g, v := range scales {
		if s.it.Kind == gguf.Q1_0 {
			v /= 2
		}
		if floats.F16ToF32(floats.F16FromF32(v)) != v {
			return fmt.Errorf("group %d has the scale %g, which is no F16 number, as %s needs: quantize the checkpoint again with --target gguf", g, scales[g], s.it.Kind)
		}
	}
	return err
}

func (s *blockSink) Write(w *write.Worker, u write.Unit) error {
	for _, r := range s.target.Regions[s.it.Index][u.Slice] {
		row := u.First * write.BlockRows
		from, to := r.rows(row, row+u.Rows(s.it))
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
func (r *Region) rows(from, to int64) (int64, int64) {
	return max(from, int64(r.From)), min(to, int64(r.End()))
}

// scatter writes rows in the order that llama.cpp has them.
type scatter struct {
	order  []int // numbers of rows in the part, of the rows to write
	sorted []byte
	row    []byte
}

// write puts rows from on of a slice, which are data, at their places in the region's tensor.
func (s *scatter) write(w *write.Worker, t *target, r Region, data []byte, from int64, rowBytes int) error {
	n := len(data) / rowBytes
	size := int64(rowBytes)
	place := t.layout.Places[r.Tensor]
	if r.Turned > 0 {
		return s.turn(w, t, r, data, from, n)
	}
	s.columns(&r, t.types[r.Tensor], data, rowBytes)
	if r.Same() {
		return t.write(w, place.Shard, data, place.Offset+(r.row+from-int64(r.From))*size)
	}
	// Rows that are neighbours in llama.cpp's order are written together.
	s.order = s.order[:0]
	for i := range n {
		if row, ok := r.Find(int(from) + i); ok {
			s.order = append(s.order, row)
		}
	}
	slices.Sort(s.order)
	buffer.Grow(&s.sorted, len(s.order)*rowBytes)
	for i, row := range s.order {
		copy(s.sorted[i*rowBytes:][:rowBytes], data[(int64(r.Row(row))-from)*size:])
	}
	for i := 0; i < len(s.order); {
		end := i + 1
		for end < len(s.order) && s.order[end] == s.order[end-1]+1 {
			end++
		}
		if err := t.write(w, place.Shard, s.sorted[i*rowBytes:end*rowBytes], place.Offset+(r.row+int64(s.order[i]))*size); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// turn writes n rows from on transposed: elements of neighbouring rows are neighbours.
func (s *scatter) turn(w *write.Worker, t *target, r Region, data []byte, from int64, n int) error {
	place, size := t.layout.Places[r.Tensor], int(t.types[r.Tensor].Size(1))
	buffer.Grow(&s.sorted, len(data))
	for c := range r.Turned {
		for i := range n {
			copy(s.sorted[(c*n+i)*size:][:size], data[(i*r.Turned+c)*size:])
		}
	}
	for c := range r.Turned {
		at := (int(r.row)+c)*r.Rows + int(from) - r.From
		if err := t.write(w, place.Shard, s.sorted[c*n*size:][:n*size], place.Offset+int64(at*size)); err != nil {
			return err
		}
	}
	return nil
}

// columns puts the blocks of each row into llama.cpp's order of columns.
func (s *scatter) columns(r *Region, kind gguf.TensorType, data []byte, rowBytes int) {
	if r.Columns.Head == 0 {
		return
	}
	block := kind.BlockWeights()
	size := int(kind.Size(int64(block)))
	buffer.Grow(&s.row, rowBytes)
	for ; len(data) > 0; data = data[rowBytes:] {
		copy(s.row, data)
		for i := range rowBytes / size {
			copy(data[i*size:][:size], s.row[r.Columns.At(i*block)/block*size:])
		}
	}
}

// CopyUnits cuts an unquantized item into whole rows.
func (o *Output) CopyUnits(list *write.Units, it *plan.Unquantized) {
	rowBytes := it.Cols * int64(it.Src.Dtype.Bits()) / 8
	for s := range it.Slices {
		list.Cut(write.Unit{Item: it, Slice: s}, it.Rows*rowBytes, max(1, write.UnitBytes/rowBytes)*rowBytes)
	}
}

type rowCopier struct {
	*target
	scatter scatter
	x       []float32
	out     []byte
}

func (t *target) Copier() func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	return (&rowCopier{target: t}).copy
}

func (c *rowCopier) copy(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	if err := w.Sum(it, u, r); err != nil {
		return err
	}
	rowBytes := it.Cols * int64(it.Src.Dtype.Bits()) / 8
	row, rows := u.First/rowBytes, u.Count/rowBytes
	for _, r := range c.Regions[it.Index][u.Slice] {
		from, to := r.rows(row, row+rows)
		if from >= to {
			continue
		}
		kind := c.types[r.Tensor]
		data, err := c.sameBytes(w, it, u.Slice, from, to, r, kind)
		if err == nil && data == nil {
			data, err = c.convert(w, it, u.Slice, from, to, r, kind)
		}
		if err == nil {
			err = c.scatter.write(w, c.target, r, data, from, int(kind.Size(it.Cols)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameBytes returns the source's bytes of rows, if the tensor has the same; else nil.
func (c *rowCopier) sameBytes(w *write.Worker, it *plan.Unquantized, slice int, from, to int64, r Region, kind gguf.TensorType) ([]byte, error) {
	same := map[packing.Dtype]gguf.TensorType{packing.F32: gguf.F32, packing.F16: gguf.F16, packing.BF16: gguf.BF16}
	if of, ok := same[it.Src.Dtype]; !ok || of != kind || r.Add != 0 || r.Decay || r.Factor != 0 || r.Columns.Head != 0 || it.Transposed {
		return nil, nil
	}
	size, first := kind.Size(it.Cols), int64(slice)*it.Rows
	data, _, err := w.Bytes(&it.Entry, (first+from)*size, (to-from)*size, &c.out)
	return data, err
}

// convert reads rows as float32 and returns them, as the region stores values, in another type.
func (c *rowCopier) convert(w *write.Worker, it *plan.Unquantized, slice int, from, to int64, r Region, kind gguf.TensorType) ([]byte, error) {
	read, err := write.SourceRows(c.from, w.Codes(), it)
	if err != nil {
		return nil, err
	}
	x := buffer.Grow(&c.x, int((to-from)*it.Cols))
	read(x, slice, from, to-from)
	r.Store(x)
	c.out = write.AppendFloats(c.out[:0], x, scaleDtypes[kind])
	return c.out, nil
}

var scaleDtypes = map[gguf.TensorType]packing.ScaleDtype{gguf.F32: packing.ScaleF32, gguf.F16: packing.ScaleF16, gguf.BF16: packing.ScaleBF16}

func (o *Output) Paths(path string) ([]string, error) {
	if o.opts.Split == 0 {
		return []string{path}, nil
	}
	t, err := o.Target(&plan.Codes{}, nil, nil)
	if err != nil {
		return nil, err
	}
	return write.Paths(t.Files(path)), nil
}
