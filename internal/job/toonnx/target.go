package toonnx

import (
	"bufio"
	"io"
	"path"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
)

// target is a directory that is written. Its first file is the model.
type target struct {
	*Output
	tocheckpoint.Directory
	hashes  []string
	samples []*tocheckpoint.Samples
}

func (o *Output) Target(c *plan.Codes, hashes []string, found []write.ItemResult) (write.Target, error) {
	t := &target{Output: o, hashes: hashes, samples: tocheckpoint.SamplesOf(o.Plan)}
	t.First, t.Last = []write.SideFile{write.FileOf(path.Join(folder, o.modelName()), o.model.Encode())}, slices.Clip(o.beside)
	for i, size := range o.data {
		t.Weights = append(t.Weights, write.File{Path: path.Join(folder, o.dataName(i)), Size: size})
	}
	_, origin, err := o.from.Provenance(c, hashes, found)
	if origin != nil {
		t.Last = append(t.Last, write.FileOf(provenance.ProvenanceFile, origin))
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

// Finish writes the tables of rotations, the model, and the other files.
func (t *target) Finish(files []io.WriterAt, c *plan.Codes, found []write.ItemResult) error {
	hashes := make([]uint64, len(t.contents))
	for i, p := range t.contents {
		var err error
		if file := files[1+p.file]; p.item == nil {
			err = t.writeRotations(io.NewOffsetWriter(file, p.off), &p)
		} else if p.part == packed {
			hashes[i], err = onnx.HashPacked(io.NewSectionReader(file.(io.ReaderAt), p.off, p.size))
		}
		if err != nil {
			return err
		}
	}
	t.setPlaces(hashes)
	complete, err := t.Target(c, t.hashes, found)
	if err != nil {
		return err
	}
	return complete.(*target).WriteOthers(files)
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
		err := it.Layout.Put(rows, first, func(p int, off int64, b []byte) error { return t.put(w, it, part(p), off, b) })
		for _, i := range t.byItem[it.Index] {
			if p := t.contents[i].packer; p != nil && err == nil {
				err = t.pack(w, it, p, rows, first)
			}
		}
		return err
	}
	return append(list, &tocheckpoint.CodesSink{It: it, Target: "onnx", Samples: t.samples[it.Index], Put: put}), nil
}

// pack writes rows as kernels read them, in panels with the height of the tile.
func (t *target) pack(w *write.Worker, it plan.Item, p packing.Packer, rows []hfquant.Row, first int64) error {
	nr, size := int(t.opts.Tile.NR), p.PanelBytes()
	out := make([]byte, (len(rows)+nr-1)/nr*size)
	var panel packing.Panel
	for i := 0; i < len(rows); i += nr {
		panel.Rows, panel.Codes, panel.Scales = min(nr, len(rows)-i), panel.Codes[:0], panel.Scales[:0]
		for j := range nr {
			row := &rows[min(i+j, len(rows)-1)]
			panel.Codes, panel.Scales = append(panel.Codes, row.Codes...), append(panel.Scales, row.Scales...)
		}
		p.PackPanel(out[i/nr*size:][:size], &panel)
	}
	return t.put(w, it, packed, first/int64(nr)*int64(size), out)
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

// CopyUnits cuts an unquantized item. An item that is left out is only summed.
func (o *Output) CopyUnits(list *write.Units, it *plan.Unquantized) {
	if len(o.byItem[it.Index]) > 0 || o.from.Facts().Weights {
		tocheckpoint.CopyUnits(list, it)
	}
}

func (t *target) Copier() func(w *write.Worker, it *plan.Unquantized, u write.Unit, r *write.Result) error {
	return (&tocheckpoint.RowCopier{From: t.from, Edit: t.edit, Put: func(w *write.Worker, it *plan.Unquantized, off int64, b []byte) error {
		return t.put(w, it, values, off, b)
	}}).Copy
}

// edit adds 1 to gains that a norm adds 1 to.
func (o *Output) edit(it *plan.Unquantized, x []float32) {
	for i := range x {
		if o.c.PlusOne && it.Role == gqf.RoleNorm {
			x[i]++
		}
	}
}
