package toonnx

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"

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
	hashes []string
	last   []write.SideFile
}

func (o *Output) Target(c *plan.Codes, hashes []string, found []write.ItemResult) (write.Target, error) {
	return o.lay(c, hashes, found)
}

func (o *Output) lay(c *plan.Codes, hashes []string, found []write.ItemResult) (*target, error) {
	t := &target{Output: o, hashes: hashes, last: o.beside[:len(o.beside):len(o.beside)]}
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
	for i, f := range complete.last {
		if err := f.Write(io.NewOffsetWriter(files[1+len(t.data)+i], 0)); err != nil {
			return err
		}
	}
	return nil
}

// rotationRows is how many positions of a table are computed at a time.
const rotationRows = 1024

// writeRotations writes the cosines or sines of a rope.
func (t *target) writeRotations(w io.Writer, p *content) error {
	r, n := &t.c.Ropes[p.rope], context(t.c)
	freqs := r.Frequencies(n)
	var cos, sin []float32
	for position := 0; position < n; {
		cos, sin = cos[:0], sin[:0]
		for end := min(n, position+rotationRows); position < end; position++ {
			cos, sin = r.AppendRotation(cos, sin, freqs, position)
		}
		if p.part == sines {
			cos, sin = sin, cos
		}
		if _, err := w.Write(write.AppendFloats(nil, cos, packing.ScaleF32)); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) Sinks(list []write.RowSink, it *plan.Quantized) ([]write.RowSink, error) {
	s := &codesSink{target: t, it: it, blocks: int(it.Stored.Groups(it.Cols))}
	s.rowBytes[codes] = s.blocks * int(blockBytes(it.Stored))
	s.rowBytes[scales] = 4 * s.blocks
	if it.Stored.Zeros != hfquant.NoZeros {
		s.rowBytes[zeros] = int(zeroBytes(it))
	}
	for _, i := range t.byItem[it.Index] {
		s.packer = cmp.Or(s.packer, t.contents[i].packer)
	}
	return append(list, s), nil
}

// codesSink turns the rows of a quantized item into the bytes of its tensors.
type codesSink struct {
	*target
	it       *plan.Quantized
	blocks   int               // of a row
	rowBytes [zeros + 1]int    // by part
	out      [zeros + 1][]byte // of the unit
	scales   []float32         // of a block of rows
	packer   packing.Packer    // nil: no packed weights
	panels   []byte            // of the unit
	panel    packing.Panel
}

func (s *codesSink) Begin(rows int64) {
	for p := range s.out {
		buffer.Grow(&s.out[p], int(rows)*s.rowBytes[p])
	}
	if s.packer != nil {
		nr := int64(s.opts.Tile.NR)
		buffer.Grow(&s.panels, int((rows+nr-1)/nr)*s.packer.PanelBytes())
	}
}

func (s *codesSink) Pack(b *write.Block, first, n int) (row int, err error) {
	part := func(p part, i int) []byte { return s.out[p][(first+i)*s.rowBytes[p]:][:s.rowBytes[p]] }
	of := buffer.Grow(&s.scales, write.BlockRows*s.blocks)
	for i := range n {
		r := b.Row(int64(i))
		packBits(part(codes, i), r.Codes, s.it.Stored.Bits)
		for g := range s.blocks {
			of[i*s.blocks+g] = r.Scales[s.group(g)]
		}
		write.AppendFloats(part(scales, i)[:0], of[i*s.blocks:][:s.blocks], packing.ScaleF32)
		if s.rowBytes[zeros] == 0 {
			continue
		}
		if err := s.packZeros(part(zeros, i), r.Zeros); err != nil {
			return i, err
		}
	}
	if s.packer != nil {
		s.packPanels(b, first, n)
	}
	return 0, nil
}

// group is the number of the group that holds a block.
func (s *codesSink) group(block int) int {
	if s.it.Scheme.Group == 0 || int64(s.it.Scheme.Group) >= s.it.Cols {
		return 0
	}
	return block * int(s.it.Stored.Group) / s.it.Scheme.Group
}

// packBits stores codes as unsigned numbers, the first in the lowest bits of a byte. Behind the
// last code it stores zeros.
func packBits(dst []byte, list []int8, bits int) {
	per, half := 8/bits, 1<<(bits-1)
	for i := range dst {
		b := 0
		for j := range per {
			q := half
			if at := i*per + j; at < len(list) {
				q += int(list[at])
			}
			b |= q << (j * bits)
		}
		dst[i] = byte(b)
	}
}

// packZeros stores the zero points of a row.
func (s *codesSink) packZeros(dst []byte, list []int8) error {
	half := 1 << (s.it.Stored.Bits - 1)
	of := make([]int8, s.blocks)
	for g := range of {
		of[g] = list[s.group(g)]
		if int(of[g]) < -half || int(of[g]) >= half {
			return fmt.Errorf("group %d has the zero point %d, and ONNX Runtime holds %d to %d: quantize the checkpoint again with --target onnx", s.group(g), of[g], -half, half-1)
		}
	}
	packBits(dst, of, s.it.Stored.Bits)
	return nil
}

// packPanels packs a block of n rows.
func (s *codesSink) packPanels(b *write.Block, first, n int) {
	nr, size := s.opts.Tile.NR, s.packer.PanelBytes()
	for r := 0; r < n; r += int(nr) {
		s.panel = packing.Panel{Rows: min(int(nr), n-r), Codes: b.Codes[r*b.Stride:][:int(nr)*b.Stride], Scales: s.scales[r*s.blocks:][:int(nr)*s.blocks]}
		s.packer.PackPanel(s.panels[(first+r)/int(nr)*size:][:size], &s.panel)
	}
}

// Write puts the unit's rows at their places.
func (s *codesSink) Write(w *write.Worker, u write.Unit) error {
	for _, i := range s.byItem[s.it.Index] {
		c, row := &s.contents[i], u.First*write.BlockRows
		data, off := s.panels, int64(0)
		if c.part == packed {
			off = row / int64(s.opts.Tile.NR) * int64(s.packer.PanelBytes())
		} else {
			data, off = s.out[c.part], row*int64(s.rowBytes[c.part])
		}
		if err := w.Write(1+c.file, data, c.off+off); err != nil {
			return err
		}
	}
	return nil
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
	if err := w.Sum(it, u, r); err != nil {
		return err
	}
	for _, i := range c.byItem[it.Index] {
		to := &c.contents[i]
		read, err := write.SourceRows(c.from, w.Codes(), it)
		if err != nil {
			return err
		}
		rowBytes := it.Src.Size / it.Rows
		row, rows := u.First/rowBytes, u.Count/rowBytes
		x := buffer.Grow(&c.x, int(rows*it.Cols))
		read(x, 0, row, rows)
		addOne(x, to.plusOne)
		c.out = write.AppendFloats(c.out[:0], x, packing.ScaleF32)
		if err := w.Write(1+to.file, c.out, to.off+4*row*it.Cols); err != nil {
			return err
		}
	}
	return nil
}

// addOne adds 1 to gains that a norm adds 1 to.
func addOne(x []float32, do bool) {
	for i := 0; do && i < len(x); i++ {
		x[i]++
	}
}
