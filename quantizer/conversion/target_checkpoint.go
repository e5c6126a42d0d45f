package conversion

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// scatterRows is how many outputs are turned at a time where the checkpoint has a matrix as in x out.
const scatterRows = 512

// checkpointTarget is a checkpoint that is written. Its files are, in this order: config.json and the
// index, the weights, all others. They appear from the last to the first.
type checkpointTarget struct {
	*checkpointOutput
	first   []sideFile // config.json and the index
	last    []sideFile
	samples []*rowSums // by the items' index; nil: unquantized
}

func (o *checkpointOutput) target(c *CalibratedCodes, hashes []string) (target, error) {
	t := &checkpointTarget{checkpointOutput: o, samples: make([]*rowSums, len(o.items))}
	for _, f := range o.beside {
		if f.name == configName {
			t.first = append(t.first, f)
		} else {
			t.last = append(t.last, f)
		}
	}
	if index := o.layout.Index(); index != nil {
		t.first = append(t.first, fileOf(safetensors.IndexName, index))
	}
	if o.opts.Format != "" {
		_, origin, err := o.from.provenance(c, hashes)
		if err != nil {
			return nil, err
		}
		if origin != nil {
			t.last = append(t.last, fileOf(provenanceFile, origin))
		}
	}
	for it := range o.quantized() {
		t.samples[it.index] = &rowSums{rows: it.rows}
	}
	return t, nil
}

func (t *checkpointTarget) sizes() (list []int64) {
	for _, f := range t.first {
		list = append(list, f.size)
	}
	for _, s := range t.layout.Shards {
		list = append(list, s.Size)
	}
	for _, f := range t.last {
		list = append(list, f.size)
	}
	return list
}

func (t *checkpointTarget) paths(dir string) (list []string) {
	for _, f := range t.first {
		list = append(list, filepath.Join(dir, f.name))
	}
	for _, s := range t.layout.Shards {
		list = append(list, filepath.Join(dir, s.Name))
	}
	for _, f := range t.last {
		list = append(list, filepath.Join(dir, f.name))
	}
	return list
}

// output is the directory.
func (t *checkpointTarget) output(dir string) (string, int) { return dir, len(t.layout.Shards) }

func (t *checkpointTarget) written(int64, []byte) {} // the format has no checksums

func (t *checkpointTarget) sinks(list []sink, it *quantized) ([]sink, error) {
	return append(list, &codesSink{target: t, it: it}), nil
}

// put writes bytes at an offset of one of the specs' tensors.
func (t *checkpointTarget) put(w *worker, spec int, off int64, b []byte) error {
	p := t.layout.Places[spec]
	if off < 0 || off+int64(len(b)) > p.Size {
		return fmt.Errorf("tensor %q has %d bytes, not %d to %d", t.specs[spec].Name, p.Size, off, off+int64(len(b)))
	}
	return w.write(len(t.first)+p.Shard, b, p.Offset+off)
}

// finish writes the headers, the parts that no row fills, and the files beside the weights.
func (t *checkpointTarget) finish(j *job) error {
	for i, s := range t.layout.Shards {
		if _, err := j.out[len(t.first)+i].WriteAt(s.Header, 0); err != nil {
			return err
		}
	}
	for _, list := range t.tensors {
		for _, s := range list {
			if err := t.constants(j, s); err != nil {
				return err
			}
		}
	}
	for i, f := range t.first {
		if err := f.write(io.NewOffsetWriter(j.out[i], 0)); err != nil {
			return err
		}
	}
	for i, f := range t.last {
		if err := f.write(io.NewOffsetWriter(j.out[len(t.first)+len(t.layout.Shards)+i], 0)); err != nil {
			return err
		}
	}
	return nil
}

// constants writes the parts of a weight that no row fills.
func (t *checkpointTarget) constants(j *job, s stored) error {
	if s.layout == nil {
		return nil
	}
	for part := range s.layout.Parts {
		b := s.layout.Constant(part)
		if b == nil {
			continue
		}
		p := t.layout.Places[s.first+part]
		if int64(len(b)) != p.Size {
			return fmt.Errorf("tensor %q has %d bytes, not %d", t.specs[s.first+part].Name, p.Size, len(b))
		}
		if _, err := j.out[len(t.first)+p.Shard].WriteAt(b, p.Offset); err != nil {
			return err
		}
	}
	return nil
}

// codesSink turns the rows of a quantized item into the bytes of its parts.
type codesSink struct {
	target *checkpointTarget
	it     *quantized
	rows   []hfquant.Row // of the unit
	used   int
}

func (s *codesSink) begin(rows int64) {
	for int64(len(s.rows)) < rows {
		s.rows = append(s.rows, hfquant.Row{})
	}
	s.used = int(rows)
}

func (s *codesSink) pack(w *worker, first, n int) (row int, err error) {
	groups := int(s.it.stored.Groups(s.it.cols))
	for i := range n {
		from, to := w.rowCodes(int64(i)), &s.rows[first+i]
		to.Codes = append(to.Codes[:0], from.Codes...)
		to.Scales = repeat(to.Scales[:0], from.Scales, groups)
		to.Zeros = repeat(to.Zeros[:0], from.Zeros, groups)
		if s.it.stored.Zeros == hfquant.NoZeros {
			to.Zeros = nil
		}
		if err := s.check(to.Scales); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// repeat appends n values: each of values as often as a group holds smaller ones.
func repeat[T any](dst, values []T, n int) []T {
	if len(values) == 0 {
		return dst
	}
	for i := range n {
		dst = append(dst, values[i*len(values)/n])
	}
	return dst
}

// check finds a scale that the format's dtype cannot hold: one of a .gqf file of another target.
func (s *codesSink) check(scales []float32) error {
	if s.it.stored.Scales != packing.F16 || s.it.scheme.ScaleDtype == packing.ScaleF16 {
		return nil
	}
	for g, v := range scales {
		if floats.F16ToF32(floats.F16FromF32(v)) != v {
			return fmt.Errorf("group %d has the scale %g, which is no F16 number, as %s needs: quantize the checkpoint again with --target %s", g, v, s.target.opts.Format, quantizer.CheckpointTargetName(s.target.opts.Format))
		}
	}
	return nil
}

// write puts the unit's rows at their places, under every name of the item.
func (s *codesSink) write(w *worker, u unit) error {
	rows := s.rows[:s.used]
	first := u.first * blockRows
	s.target.samples[s.it.index].add(rows, first)
	for _, st := range s.target.tensors[s.it.index] {
		err := st.layout.Put(rows, first, func(part int, off int64, b []byte) error {
			return s.target.put(w, st.first+part, off, b)
		})
		if err != nil {
			return fmt.Errorf("%w: quantize the checkpoint again with --target %s", err, quantizer.CheckpointTargetName(s.target.opts.Format))
		}
	}
	return nil
}

// copy writes a unit of an unquantized item, under every name.
func (t *checkpointTarget) copy(w *worker, it *unquantized, u unit, r *unitResult) error {
	if it.as != packing.DtypeNone {
		return t.convert(w, it, u)
	}
	b, crc, err := w.job.piece(&it.entry, u.first, u.count, &w.piece)
	if err != nil {
		return err
	}
	r.crc = crc
	return t.putAll(w, it, u.first, b)
}

// putAll writes bytes of an unquantized item, under every name.
func (t *checkpointTarget) putAll(w *worker, it *unquantized, off int64, b []byte) error {
	for _, s := range t.tensors[it.index] {
		if err := t.put(w, s.first, off, b); err != nil {
			return err
		}
	}
	return nil
}

// convert writes rows of an item as another dtype.
func (t *checkpointTarget) convert(w *worker, it *unquantized, u unit) error {
	rowBytes := it.src.Size / (int64(it.slices) * it.rows)
	row, rows := u.first/rowBytes, u.count/rowBytes
	read, err := w.calibrated.reader(t.from, it)
	if err != nil {
		return err
	}
	x := buffer.Grow(&w.x, int(rows*it.cols))
	read(x, u.slice, row, rows)
	size := int64(it.as.Bits() / 8)
	if !it.transposed {
		w.converted = appendFloats(w.converted[:0], x, scaleDtype(it.as))
		return t.putAll(w, it, (int64(u.slice)*it.rows+row)*it.cols*size, w.converted)
	}
	line := buffer.Grow(&w.block, int(rows))
	for c := range it.cols {
		for i := range line {
			line[i] = x[int64(i)*it.cols+c]
		}
		w.converted = appendFloats(w.converted[:0], line, scaleDtype(it.as))
		if err := t.putAll(w, it, ((int64(u.slice)*it.cols+c)*it.rows+row)*size, w.converted); err != nil {
			return err
		}
	}
	return nil
}

// scaleDtype is an unquantized dtype as a dtype of scales.
func scaleDtype(d packing.Dtype) packing.ScaleDtype {
	switch d {
	case packing.F16:
		return packing.ScaleF16
	case packing.BF16:
		return packing.ScaleBF16
	}
	return packing.ScaleF32
}
