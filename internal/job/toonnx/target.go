package toonnx

import (
	"bufio"
	"io"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
)

// target is a directory that is written: the model, the files with weights, and all others.
type target struct {
	*Output
	hashes  []string
	last    []write.SideFile
	samples []*tocheckpoint.Samples
}

func (o *Output) Target(c *plan.Codes, hashes []string, found []write.ItemResult) (write.Target, error) {
	return o.lay(c, hashes, found)
}

func (o *Output) lay(c *plan.Codes, hashes []string, found []write.ItemResult) (*target, error) {
	t := &target{Output: o, hashes: hashes, last: slices.Clip(o.beside), samples: tocheckpoint.SamplesOf(o.Plan)}
	_, origin, err := o.from.Provenance(c, hashes, found)
	if origin != nil {
		t.last = append(t.last, write.FileOf(provenance.ProvenanceFile, origin))
	}
	return t, err
}

// Paths refuses a directory that holds a checkpoint, or another model's files.
func (o *Output) Paths(dir string) ([]string, error) {
	t, err := o.Target(&plan.Codes{}, nil, nil)
	if err != nil {
		return nil, err
	}
	return write.Paths(t.Files(dir)), tocheckpoint.CheckDir(dir, o.beside)
}

func (t *target) Files(dir string) (list []write.File) {
	add := func(size int64, name ...string) {
		list = append(list, write.File{Path: filepath.Join(append([]string{dir}, name...)...), Size: size})
	}
	add(int64(len(t.model.Encode())), folder, t.modelName())
	for i, size := range t.data {
		add(size, folder, t.dataName(i))
	}
	for _, f := range t.last {
		add(f.Size, f.Name)
	}
	return list
}

func (t *target) Shards() (n int, dir bool) { return len(t.data), true }

// Finish writes the tables of rotations, the model, and the other files.
func (t *target) Finish(files []io.WriterAt, c *plan.Codes, found []write.ItemResult) error {
	hashes := make([]uint64, len(t.contents))
	for i, p := range t.contents {
		file := files[1+p.file]
		switch {
		case p.item == nil:
			if err := t.writeRotations(io.NewOffsetWriter(file, p.off), &p); err != nil {
				return err
			}
		case p.part == packed:
			var h onnx.PackedHash
			if _, err := io.Copy(&h, io.NewSectionReader(file.(io.ReaderAt), p.off, p.size)); err != nil {
				return err
			}
			hashes[i] = h.Sum()
		}
	}
	t.setHashes(hashes)
	if _, err := files[0].WriteAt(t.model.Encode(), 0); err != nil {
		return err
	}
	complete, err := t.lay(c, t.hashes, found)
	if err != nil {
		return err
	}
	return write.WriteFiles(files[1+len(t.data):], complete.last)
}

// writeRotations writes the cosines or sines of a rope.
func (t *target) writeRotations(w io.Writer, p *content) error {
	r, n := &t.c.Ropes[p.rope], context(t.c)
	freqs := r.Frequencies(n)
	out := bufio.NewWriterSize(w, write.UnitBytes)
	for position := range n {
		row, other := r.AppendRotation(nil, nil, freqs, position)
		if p.part == sines {
			row = other
		}
		out.Write(write.AppendFloats(nil, row, packing.ScaleF32)) // Flush returns the error
	}
	return out.Flush()
}

func (t *target) Sinks(list []write.RowSink, it *plan.Quantized) ([]write.RowSink, error) {
	put := func(w *write.Worker, rows []hfquant.Row, first int64) error {
		return it.Layout.Put(rows, first, func(p int, off int64, b []byte) error { return t.put(w, it, part(p), off, b) })
	}
	list = append(list, &tocheckpoint.CodesSink{It: it, Target: "onnx", Samples: t.samples[it.Index], Put: put})
	for _, i := range t.byItem[it.Index] {
		if p := t.contents[i].packer; p != nil {
			list = append(list, &panelSink{target: t, it: it, packer: p, nr: int(t.opts.Tile.NR)})
		}
	}
	return list, nil
}

// put writes bytes at an offset of a part of an item.
func (t *target) put(w *write.Worker, it plan.Item, p part, off int64, b []byte) error {
	for _, i := range t.byItem[it.Common().Index] {
		if c := &t.contents[i]; c.part == p {
			return w.Write(1+c.file, b, c.off+off)
		}
	}
	return nil
}

// panelSink packs the rows of a quantized item as kernels read them.
type panelSink struct {
	*target
	it     *plan.Quantized
	packer packing.Packer
	nr     int
	panels []byte // of the unit
	scales []float32
}

func (s *panelSink) Begin(rows int64) {
	buffer.Grow(&s.panels, (int(rows)+s.nr-1)/s.nr*s.packer.PanelBytes())
}

func (s *panelSink) Pack(b *write.Block, first, n int) (row int, err error) {
	blocks, size := int(s.it.Stored.Groups(s.it.Cols)), s.packer.PanelBytes()
	for r := 0; r < n; r += s.nr {
		s.scales = s.scales[:0]
		for i := range s.nr {
			s.scales = tocheckpoint.AppendStored(s.scales, b.Row(int64(r+i)).Scales, s.it)
		}
		s.packer.PackPanel(s.panels[(first+r)/s.nr*size:][:size], &packing.Panel{Rows: min(s.nr, n-r), Codes: b.Codes[r*b.Stride:][:s.nr*b.Stride], Scales: s.scales[:s.nr*blocks]})
	}
	return 0, nil
}

func (s *panelSink) Write(w *write.Worker, u write.Unit) error {
	return s.put(w, s.it, packed, u.First*write.BlockRows/int64(s.nr)*int64(s.packer.PanelBytes()), s.panels)
}

// CopyUnits cuts an unquantized item into whole rows. An item that is left out is only summed.
func (o *Output) CopyUnits(list *write.Units, it *plan.Unquantized) {
	switch {
	case len(o.byItem[it.Index]) > 0:
		rowBytes := it.Src.Size / (int64(it.Slices) * it.Rows)
		list.Cut(write.Unit{Item: it}, it.Rows*rowBytes, max(1, write.UnitBytes/rowBytes)*rowBytes)
	case o.from.Facts().Weights:
		list.Cut(write.Unit{Item: it}, it.Src.Size, write.UnitBytes)
	}
}

// rowCopier writes unquantized items as float32.
type rowCopier struct {
	*target
	x   []float32
	out []byte
}

func (t *target) Copier() func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	return (&rowCopier{target: t}).copy
}

func (c *rowCopier) copy(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	if err := w.Sum(it, u, r); err != nil || len(c.byItem[it.Index]) == 0 {
		return err
	}
	read, err := c.rows(w.Codes(), it)
	if err != nil {
		return err
	}
	rowBytes := it.Src.Size / it.Rows
	row, rows := u.First/rowBytes, u.Count/rowBytes
	x := buffer.Grow(&c.x, int(rows*it.Cols))
	read(x, row, rows)
	c.out = write.AppendFloats(c.out[:0], x, packing.ScaleF32)
	return c.put(w, it, values, 4*row*it.Cols, c.out)
}

// rows returns a function that reads rows of an unquantized item as the graph has them: a norm that
// adds 1 to its gains gets them with 1 added.
func (o *Output) rows(c *plan.Codes, it *plan.Unquantized) (func(dst []float32, row, n int64), error) {
	read, err := write.SourceRows(o.from, c, it)
	plusOne := slices.ContainsFunc(o.byItem[it.Index], func(i int) bool { return o.contents[i].plusOne })
	return func(dst []float32, row, n int64) {
		read(dst, 0, row, n)
		for i := 0; plusOne && i < len(dst); i++ {
			dst[i]++
		}
	}, err
}
