package tocheckpoint

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// scatterRows is how many outputs are turned at a time where the checkpoint has a matrix as in x
// out.
const scatterRows = 512

// Directory lists the files to write by their paths in the directory. First holds files that
// describe the weights. The files appear in reverse order, so First appears last.
type Directory struct {
	First   []write.SideFile
	Weights []write.File
	Last    []write.SideFile
}

func (d *Directory) Files(dir string) (list []write.File) {
	add := func(name string, size int64) {
		list = append(list, write.File{Path: filepath.Join(dir, name), Size: size})
	}
	for _, f := range d.First {
		add(f.Name, f.Size)
	}
	for _, f := range d.Weights {
		add(f.Path, f.Size)
	}
	for _, f := range d.Last {
		add(f.Name, f.Size)
	}
	return list
}

func (d *Directory) Shards() (n int, dir bool) { return len(d.Weights), true }

// WriteOthers writes all files but the weights.
func (d *Directory) WriteOthers(files []io.WriterAt) error {
	n := len(d.First)
	to := slices.Concat(files[:n], files[n+len(d.Weights):])
	for i, f := range slices.Concat(d.First, d.Last) {
		if err := f.Write(io.NewOffsetWriter(to[i], 0)); err != nil {
			return err
		}
	}
	return nil
}

// Target is a checkpoint that is written. Its first files are config.json and the index.
type Target struct {
	*Output
	Directory
	hashes  []string
	samples []*Samples
}

func (o *Output) Target(c *plan.Codes, hashes []string, found []write.ItemResult) (write.Target, error) {
	t := &Target{Output: o, hashes: hashes, samples: SamplesOf(o.Plan)}
	for _, f := range o.beside {
		if f.Name == assets.ConfigName {
			t.First = append(t.First, f)
		} else {
			t.Last = append(t.Last, f)
		}
	}
	for _, s := range o.Layout.Shards {
		t.Weights = append(t.Weights, write.File{Path: s.Name, Size: s.Size})
	}
	if index := o.Layout.Index(); index != nil {
		t.First = append(t.First, write.FileOf(safetensors.IndexName, index))
	}
	if o.opts.Format != "" {
		_, origin, err := o.from.Provenance(c, hashes, found)
		if err != nil {
			return nil, err
		}
		if origin != nil {
			t.Last = append(t.Last, write.FileOf(provenance.ProvenanceFile, origin))
		}
	}
	return t, nil
}

func (t *Target) Sinks(list []write.RowSink, it *plan.Quantized) ([]write.RowSink, error) {
	return append(list, &CodesSink{It: it, Target: quantizer.CheckpointTarget(t.opts.Format).Name, Samples: t.samples[it.Index], Put: t.putRows(it)}), nil
}

// putRows returns a function that puts rows of an item at their places, under every name.
func (t *Target) putRows(it *plan.Quantized) func(w *write.Worker, rows []hfquant.Row, first int64) error {
	return func(w *write.Worker, rows []hfquant.Row, first int64) error {
		for _, st := range t.tensors[it.Index] {
			err := st.layout.Put(rows, first, func(part int, off int64, b []byte) error { return t.put(w, st.first+part, off, b) })
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// put writes bytes at an offset of one of the specs' tensors.
func (t *Target) put(w *write.Worker, spec int, off int64, b []byte) error {
	p := t.Layout.Places[spec]
	if off < 0 || off+int64(len(b)) > p.Size {
		return fmt.Errorf("tensor %q has %d bytes, not %d to %d", t.Specs[spec].Name, p.Size, off, off+int64(len(b)))
	}
	return w.Write(len(t.First)+p.Shard, b, p.Offset+off)
}

// Finish writes the headers, the parts that no row fills, and the directory's other files.
func (t *Target) Finish(files []io.WriterAt, c *plan.Codes, found []write.ItemResult) error {
	for i := range t.Layout.Shards {
		if err := t.Layout.WriteHeader(i, io.NewOffsetWriter(files[len(t.First)+i], 0)); err != nil {
			return err
		}
	}
	for _, list := range t.tensors {
		for _, s := range list {
			if err := t.constants(files, s); err != nil {
				return err
			}
		}
	}
	complete, err := t.Target(c, t.hashes, found)
	if err != nil {
		return err
	}
	return complete.(*Target).WriteOthers(files)
}

// constants writes the parts of a weight that no row fills.
func (t *Target) constants(files []io.WriterAt, s stored) error {
	if s.layout == nil {
		return nil
	}
	for part := range s.layout.Parts {
		b := s.layout.Constant(part)
		if b == nil {
			continue
		}
		p := t.Layout.Places[s.first+part]
		if int64(len(b)) != p.Size {
			return fmt.Errorf("tensor %q has %d bytes, not %d", t.Specs[s.first+part].Name, p.Size, len(b))
		}
		if _, err := files[len(t.First)+p.Shard].WriteAt(b, p.Offset); err != nil {
			return err
		}
	}
	return nil
}

// CodesSink turns the rows of a quantized item into the bytes of its parts.
type CodesSink struct {
	It      *plan.Quantized
	Target  string // that all codes fit, in messages
	Samples *Samples
	// Put puts rows of the matrix from row first on at their places.
	Put  func(w *write.Worker, rows []hfquant.Row, first int64) error
	rows []hfquant.Row // of the unit
	used int
}

func (s *CodesSink) Begin(rows int64) {
	for int64(len(s.rows)) < rows {
		s.rows = append(s.rows, hfquant.Row{})
	}
	s.used = int(rows)
}

func (s *CodesSink) Pack(b *write.Block, first, n int) (row int, err error) {
	for i := range n {
		from, to := b.Row(int64(i)), &s.rows[first+i]
		to.Codes = append(to.Codes[:0], from.Codes...)
		to.Scales = AppendStored(to.Scales[:0], from.Scales, s.It)
		to.Zeros = AppendStored(to.Zeros[:0], from.Zeros, s.It)
		if s.It.Stored.Zeros == hfquant.NoZeros {
			to.Zeros = nil
		}
		if err := s.check(to.Scales); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// AppendStored appends a row's scales or zero points for the groups that the format stores. Each
// is a part of a group of the scheme.
func AppendStored[T any](dst, values []T, it *plan.Quantized) []T {
	groups := it.Stored.Groups(it.Cols)
	return plan.Repeat(dst, values, int(groups), max(1, it.Scheme.Group/int(max(1, it.Stored.Group))))
}

// check finds a scale that the format's dtype cannot hold: one of a .gqf file of another target.
func (s *CodesSink) check(scales []float32) error {
	if s.It.Stored.Scales != packing.F16 || s.It.Scheme.ScaleDtype == packing.ScaleF16 {
		return nil
	}
	for g, v := range scales {
		if floats.F16ToF32(floats.F16FromF32(v)) != v {
			return fmt.Errorf("group %d has the scale %g, which is no F16 number, as %s needs: quantize the checkpoint again with --target %[3]s", g, v, s.Target)
		}
	}
	return nil
}

// Write puts the unit's rows at their places.
func (s *CodesSink) Write(w *write.Worker, u write.Unit) error {
	rows := s.rows[:s.used]
	first := u.First * write.BlockRows
	s.Samples.add(rows, first)
	if err := s.Put(w, rows, first); err != nil {
		return fmt.Errorf("%w: quantize the checkpoint again with --target %s", err, s.Target)
	}
	return nil
}

// RowCopier writes unquantized items, with buffers for rows that are converted.
type RowCopier struct {
	From write.Model
	// Put writes bytes of an item at an offset, under every name.
	Put     func(w *write.Worker, it *plan.Unquantized, off int64, b []byte) error
	Edit    func(it *plan.Unquantized, x []float32) // changes converted rows; nil: they stay
	x, line []float32
	out     []byte
}

func (t *Target) Copier() func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	return (&RowCopier{From: t.from, Put: t.putAll}).Copy
}

// Copy writes a unit of [CopyUnits].
func (c *RowCopier) Copy(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	if it.As != packing.DtypeNone {
		if err := w.Sum(it, u, r); err != nil {
			return err
		}
		return c.convert(w, it, u)
	}
	b, crc, err := w.Bytes(&it.Entry, u.First, u.Count, &c.out)
	if err != nil {
		return err
	}
	r.Crc = crc
	return c.Put(w, it, u.First, b)
}

// putAll writes bytes of an unquantized item, under every name.
func (t *Target) putAll(w *write.Worker, it *plan.Unquantized, off int64, b []byte) error {
	for _, s := range t.tensors[it.Index] {
		if err := t.put(w, s.first, off, b); err != nil {
			return err
		}
	}
	return nil
}

// convert writes rows of an item as another dtype.
func (c *RowCopier) convert(w *write.Worker, it *plan.Unquantized, u write.Unit) error {
	rowBytes := it.Src.Size / (int64(it.Slices) * it.Rows)
	row, rows := u.First/rowBytes, u.Count/rowBytes
	read, err := write.SourceRows(c.From, w.Codes(), it)
	if err != nil {
		return err
	}
	x := buffer.Grow(&c.x, int(rows*it.Cols))
	read(x, u.Slice, row, rows)
	if c.Edit != nil {
		c.Edit(it, x)
	}
	size := int64(it.As.Bits() / 8)
	if !it.Transposed {
		c.out = write.AppendFloats(c.out[:0], x, plan.ScaleDtype(it.As))
		return c.Put(w, it, (int64(u.Slice)*it.Rows+row)*it.Cols*size, c.out)
	}
	line := buffer.Grow(&c.line, int(rows))
	for k := range it.Cols {
		for i := range line {
			line[i] = x[int64(i)*it.Cols+k]
		}
		c.out = write.AppendFloats(c.out[:0], line, plan.ScaleDtype(it.As))
		if err := c.Put(w, it, ((int64(u.Slice)*it.Cols+k)*it.Rows+row)*size, c.out); err != nil {
			return err
		}
	}
	return nil
}

func (o *Output) CopyUnits(list *write.Units, it *plan.Unquantized) { CopyUnits(list, it) }

// CopyUnits cuts an unquantized item into bytes, or into whole rows if they are converted.
func CopyUnits(list *write.Units, it *plan.Unquantized) {
	if it.As == packing.DtypeNone {
		list.Cut(write.Unit{Item: it}, it.Src.Size, write.UnitBytes)
		return
	}
	rowBytes := it.Src.Size / (int64(it.Slices) * it.Rows)
	step := max(1, write.UnitBytes/rowBytes)
	if it.Transposed {
		step = scatterRows
	}
	for s := range it.Slices {
		list.Cut(write.Unit{Item: it, Slice: s}, it.Rows*rowBytes, step*rowBytes)
	}
}
