package synth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// unitBytes is the approximate size of the pieces that a worker generates and writes.
const unitBytes = 4 << 20

// Write makes the checkpoint that spec describes in dir, on all CPUs. dir is created if necessary
// and must not hold a checkpoint. progress, unless nil, is called from any worker, with the size of
// each written piece.
//
// The final names appear only after everything is written, config.json last.
func Write(ctx context.Context, dir string, spec Spec, progress func(n int64)) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	spec = spec.withDefaults()
	config, err := spec.config()
	if err != nil {
		return err
	}
	return WriteModel(ctx, dir, Model{Config: config, Tensors: spec.tensors(), Dtype: spec.Dtype, Seed: spec.Seed, MaxShardBytes: spec.MaxShardBytes}, progress)
}

// A Model is a model of any shape: its config.json and its tensors.
type Model struct {
	Config        []byte
	Tensors       []Tensor
	Dtype         packing.Dtype // of all tensors: F32, F16 or BF16
	Seed          uint64
	MaxShardBytes int64 // of the data in a file; 0: a single file
}

// WriteModel is [Write] for a model of any shape.
func WriteModel(ctx context.Context, dir string, m Model, progress func(n int64)) error {
	if err := checkEmpty(dir); err != nil {
		return err
	}
	specs := make([]safetensors.TensorSpec, len(m.Tensors))
	for i, t := range m.Tensors {
		specs[i] = t.spec(m.Dtype)
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{MaxShardBytes: m.MaxShardBytes})
	if err != nil {
		return err
	}
	defer w.Abort()
	g := &generator{model: m, w: w, progress: progress}
	if err := g.run(ctx); err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, "config.json"), m.Config)
}

// checkEmpty refuses a directory with a checkpoint: synthetic weights must not replace a model.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() == "config.json" || strings.Contains(e.Name(), ".safetensors") && !strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("%s holds a checkpoint already (%s): choose another directory", dir, e.Name())
		}
	}
	return nil
}

// A unit is a range of bytes of a tensor that begins and ends at values.
type unit struct {
	tensor     int
	begin, end int64
}

type generator struct {
	model    Model
	w        *safetensors.Writer
	progress func(n int64) // called by the workers; nil: not needed
}

func (g *generator) run(ctx context.Context) error {
	var units []unit // in the order of the data
	width := int64(g.model.Dtype.Bits() / 8)
	for i, t := range g.model.Tensors {
		size := t.Rows * t.Cols * width
		for begin := int64(0); begin < size; begin += unitBytes {
			units = append(units, unit{i, begin, min(size, begin+unitBytes)})
		}
	}
	return cpu.Parallel(ctx, cpu.Threads(0), len(units), func() func(i int) error {
		buf := make([]byte, unitBytes)
		return func(i int) error { return g.unit(units[i], buf[:units[i].end-units[i].begin]) }
	})
}

// unit generates and writes a unit in buf, of the unit's size.
func (g *generator) unit(u unit, buf []byte) error {
	t := &g.model.Tensors[u.tensor]
	key := tensorKey(g.model.Seed, t.Name)
	width := int64(g.model.Dtype.Bits() / 8)
	for b, at := buf, u.begin/width; len(b) > 0; {
		row, col := at/t.Cols, at%t.Cols
		n := min(int64(len(b)), (t.Cols-col)*width)
		t.fill(b[:n], g.model.Dtype, key, row, col)
		b, at = b[n:], at+n/width
	}
	if err := g.w.WriteAt(u.tensor, buf, u.begin); err != nil {
		return err
	}
	if g.progress != nil {
		g.progress(u.end - u.begin)
	}
	return nil
}
