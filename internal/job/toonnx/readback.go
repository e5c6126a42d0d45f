package toonnx

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromonnx"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
)

// Check opens the graph as gq repack does, and compares sampled rows of all weights: codes and
// scales with the checksums of the rows that were written, unquantized weights with their source.
func (o *Output) Check(to write.Target, w *write.Written) error {
	t := to.(*target)
	names := write.Paths(t.Files(""))
	m, err := fromonnx.OpenAt(filepath.Dir(w.Temp(0)), t.modelName(), t.Config, func(name string) string {
		return filepath.Base(w.Temp(max(0, slices.Index(names, filepath.Join(folder, name)))))
	})
	if err != nil {
		return err
	}
	defer m.Close()
	for _, c := range t.contents {
		for _, i := range c.tensors {
			name := strings.TrimSuffix(t.model.Graph.Initializers[i].Name, ".codes")
			switch it := c.item.(type) {
			case *plan.Quantized:
				if c.part == codes {
					err = tocheckpoint.CompareWeight(m.Checkpoint, m.Quantized, name, it, t.samples[it.Index])
				}
			case *plan.Unquantized:
				err = t.compareRows(m.Checkpoint, name, it, w.Codes)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// compareRows compares rows of an unquantized tensor with the rows of its source.
func (o *Output) compareRows(ck *safetensors.Checkpoint, name string, it *plan.Unquantized, c *plan.Codes) error {
	read, err := write.SourceRows(o.from, c, it)
	if err != nil {
		return err
	}
	stored, ok := ck.Lookup(name)
	if !ok || stored.Numel() != it.Rows*it.Cols {
		return fmt.Errorf("tensor %q is missing or has another size: this is a defect of gq, please report it with the model's name", name)
	}
	view, err := ck.Bytes(stored)
	if err != nil {
		return err
	}
	source := func(dst []float32, row int) error {
		return o.from.Guard(func() error { read(dst, 0, int64(row), 1); o.edit(it, dst); return nil })
	}
	return ck.Guard(func() error {
		return togguf.CompareRows(name, int(it.Rows), int(it.Cols), true, source, func(dst []float32, row int) {
			safetensors.Widen(dst, view[4*int64(row)*it.Cols:][:4*it.Cols], packing.F32)
		})
	})
}
