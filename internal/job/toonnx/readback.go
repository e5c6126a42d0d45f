package toonnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/onnx"
)

// Check reads the files back, and looks at the directory again: another job may have finished in
// it.
func (o *Output) Check(t write.Target, w *write.Written) error {
	if err := tocheckpoint.CheckDir(w.Path, o.beside); err != nil {
		return err
	}
	if err := o.readBack(w); err != nil {
		return fmt.Errorf("%s was not written: read back, %w", w.Path, err)
	}
	return nil
}

// written is a complete directory that is read back.
type written struct {
	model   *onnx.Model
	tensors map[string]*onnx.Tensor
	files   map[string]*os.File // with weights, by name
}

// readBack reads the model as a consumer does, follows its nodes to the weights, and compares
// sampled rows with the source.
func (o *Output) readBack(w *write.Written) (err error) {
	data, err := files.Read(w.Temp(0), files.MaxModelFile)
	if err != nil {
		return err
	}
	b := &written{tensors: map[string]*onnx.Tensor{}, files: map[string]*os.File{}}
	if b.model, err = onnx.Decode(data); err != nil {
		return err
	}
	for i := range o.data {
		f, err := os.Open(w.Temp(1 + i))
		if err != nil {
			return err
		}
		defer f.Close()
		b.files[o.dataName(i)] = f
	}
	if err := b.check(); err != nil {
		return err
	}

	for _, c := range o.contents {
		if c.item == nil || c.part != codes && c.part != values {
			continue
		}

		for _, t := range c.tensors {
			if err := o.compare(b, &c, o.model.Graph.Initializers[t].Name, w.Codes); err != nil {
				return err
			}
		}
	}
	return nil
}

// check follows the names of the graph. Each input of a node must be there before the node runs,
// and each external tensor must lie in a file.
func (b *written) check() error {
	g := &b.model.Graph
	known := map[string]bool{"": true}
	for _, v := range g.Inputs {
		known[v.Name] = true
	}
	for i := range g.Initializers {
		t := &g.Initializers[i]
		known[t.Name], b.tensors[t.Name] = true, t
		location, off, err := t.Place()
		switch {
		case err != nil:
			return err
		case location == "":
			continue
		case b.files[location] == nil:
			return fmt.Errorf("tensor %q lies in %q: that is no file of the model", t.Name, location)
		}
		st, err := b.files[location].Stat()
		if err == nil && off+t.Bytes() > st.Size() {
			err = fmt.Errorf("tensor %q has %d bytes at offset %d of %q: the file ends at %d", t.Name, t.Bytes(), off, location, st.Size())
		}
		if err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		for _, name := range n.Inputs {
			if !known[name] {
				return fmt.Errorf("node %q reads %q before a node makes it: this is a defect of gq, please report it with the model's name", n.Name, name)
			}
		}
		for _, name := range n.Outputs {
			known[name] = true
		}
	}
	for _, v := range g.Outputs {
		if !known[v.Name] {
			return fmt.Errorf("no node makes the output %q: this is a defect of gq, please report it with the model's name", v.Name)
		}
	}
	return nil
}

// compare compares rows of a tensor with the rows of its source.
func (o *Output) compare(b *written, c *content, name string, chosen *plan.Codes) error {
	u, exact := c.item.(*plan.Unquantized)
	rows, cols := 0, 0
	var stored func(dst []float32, row int) error
	var source func(dst []float32, slice int, row, n int64)
	var err error
	if exact {
		rows, cols = int(u.Rows), int(u.Cols)
		source, err = write.SourceRows(o.from, chosen, u)
		stored = func(dst []float32, row int) error { return b.floats(dst, name, row*cols) }
	} else {
		q := c.item.(*plan.Quantized)
		rows, cols = int(q.Rows), int(q.Cols)
		source, err = o.from.Rows(q)
		reader := b.weights(name)
		if reader == nil {
			return fmt.Errorf("no node reads tensor %q: this is a defect of gq, please report it with the model's name", name)
		}
		stored = reader.row
	}
	if err != nil {
		return err
	}
	var failed error
	read := func(dst []float32, row int) error {
		err := o.from.Guard(func() error { source(dst, 0, int64(row), 1); return nil })
		addOne(dst, c.plusOne)
		return err
	}
	err = togguf.CompareRows(c.item.Common().Name(), rows, cols, exact || !o.from.Facts().Weights, read, func(dst []float32, row int) {
		failed = errors.Join(failed, stored(dst, row))
	})
	return errors.Join(failed, err)
}

// floats reads float32 numbers of a tensor, from element first on.
func (b *written) floats(dst []float32, name string, first int) error {
	raw := make([]byte, 4*len(dst))
	err := b.read(raw, name, 4*int64(first))
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return err
}

// read reads bytes of a tensor.
func (b *written) read(dst []byte, name string, off int64) error {
	t := b.tensors[name]
	if t == nil {
		return fmt.Errorf("tensor %q is missing", name)
	}
	location, at, err := t.Place()
	if err == nil {
		_, err = b.files[location].ReadAt(dst, at+off)
	}
	return err
}

// quantizedWeights reads the weights of a node.
type quantizedWeights struct {
	*written
	codes, scales, zeros string
	bits, block          int
}

// weights finds the node that reads codes, and its other tensors; nil if there is none.
func (b *written) weights(codes string) *quantizedWeights {
	for _, n := range b.model.Graph.Nodes {
		w := &quantizedWeights{written: b, codes: codes, bits: int(n.Integer("bits", 0)), block: int(n.Integer("block_size", 0)), scales: n.Input(2), zeros: n.Input(3)}
		if n.Op == "MatMulNBits" && n.Input(1) == codes || n.Op == "GatherBlockQuantized" && n.Input(0) == codes {
			return w
		}
	}
	return nil
}

// row reads a row of weights: code minus zero point, times the scale.
func (w *quantizedWeights) row(dst []float32, row int) error {
	blocks := (len(dst) + w.block - 1) / w.block
	raw, of := make([]byte, blocks*w.block*w.bits/8), make([]float32, blocks)
	zero := make([]byte, (blocks*w.bits+7)/8)
	err := errors.Join(w.read(raw, w.codes, int64(row*len(raw))), w.floats(of, w.scales, row*blocks))
	half := 1 << (w.bits - 1)
	if w.zeros != "" {
		err = errors.Join(err, w.read(zero, w.zeros, int64(row*len(zero))))
	}
	at := func(b []byte, i int) int { return int(b[i*w.bits/8]>>(i*w.bits%8)) & (1<<w.bits - 1) }
	for k := range dst {
		z := half
		if w.zeros != "" {
			z = at(zero, k/w.block)
		}
		dst[k] = float32(at(raw, k)-z) * of[k/w.block]
	}
	return err
}
