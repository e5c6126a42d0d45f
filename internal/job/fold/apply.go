package fold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Options of a job. The zero value is ready to use.
type Options struct {
	// Threads is the number of goroutines; the result is the same for any. Default: GOMAXPROCS.
	Threads int
	// Progress is called with the bytes of the checkpoint done since the last call. Default: none.
	Progress func(n int64)
}

// shardBytes bounds the data of a file, as in Transformers.
const shardBytes = 5_000_000_000

// Apply folds the checkpoint in the directory src by a record and writes the result to dst. dst
// must not exist and appears when complete. Tensors that change become F32; all others keep their
// bytes.
//
// The error is a *MismatchError if the record was not made for src, and an *arch.UnsupportedError
// if the architecture does not allow the record's rotations.
func Apply(ctx context.Context, src, dst string, r *Record, o Options) error {
	if _, err := os.Lstat(dst); err == nil {
		return &fs.PathError{Op: "create", Path: dst, Err: fs.ErrExist}
	}
	if len(r.Steps) == 0 {
		return errors.New("fold: a record of no steps")
	}
	c := newChain(ctx, src, dst, o)
	defer c.close()
	for i := range r.Steps {
		if err := c.take(r.Steps[i].edits); err != nil {
			return err
		}
	}
	return os.Rename(c.from, dst)
}

func (s *Step) edits(ck *source) (*edits, error) {
	if s.Kind == KindRotate {
		return rotateEdits(ck, seeded(*s.Seed))
	}
	return scaleEdits(ck, s.Scalings)
}

func change(ctx context.Context, src, dst string, prepare func(*source) (*edits, error), o Options) error {
	ck, err := openSource(src)
	if err != nil {
		return err
	}
	defer ck.Close()
	e, err := prepare(ck)
	if err != nil {
		return err
	}
	w := &rewriter{ctx: ctx, Options: o, edits: e, ck: ck, pool: kernels.NewPool(o.Threads)}
	defer w.pool.Close()
	return w.run(dst)
}

type rewriter struct {
	Options
	*edits
	ctx     context.Context
	pool    *kernels.Pool
	ck      *source
	out     *safetensors.Writer
	names   []string // of the output, in the writer's order
	x       []float64
	bytes   []byte
	widened bool
}

func (w *rewriter) run(dst string) (err error) {
	if err := w.check(w.ck.Checkpoint); err != nil {
		return err
	}
	specs, err := w.plan()
	if err != nil {
		return err
	}
	config, err := w.config(specs)
	if err != nil {
		return err
	}
	if w.out, err = safetensors.Create(dst, specs, safetensors.WriteOptions{MaxShardBytes: shardBytes}); err != nil {
		return err
	}
	defer w.out.Abort()
	if err := w.copyFiles(dst, config); err != nil {
		return err
	}
	for i, name := range w.names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.tensor(i, name); err != nil {
			return err
		}
	}
	if err := w.ck.Unchanged(); err != nil {
		return err
	}
	return w.out.Commit()
}

// config is config.json with the statements that no longer hold removed or corrected.
func (w *rewriter) config(specs []safetensors.TensorSpec) ([]byte, error) {
	untied := w.untied && w.ck.tied
	widened := w.widened && !slices.ContainsFunc(specs, func(s safetensors.TensorSpec) bool { return s.Dtype.IsFloat() && s.Dtype.Bits() == 8 })
	config := w.ck.config
	if config == nil {
		return nil, nil
	}
	if widened { // the entry describes FP8, and no FP8 weights are left
		var err error
		if config, err = hfquant.WithoutQuantization(config); err != nil {
			return nil, err
		}
	}
	if !untied {
		return config, nil
	}
	return hfquant.Untied(config)
}

// copyFiles writes config.json and copies the model's other files, such as the tokenizer.
func (w *rewriter) copyFiles(dst string, config []byte) error {
	if config != nil {
		if err := atomicfile.WriteFile(filepath.Join(dst, "config.json"), config); err != nil {
			return err
		}
	}
	for _, name := range assets.AssetFiles() {
		data, err := assets.ReadAsset(w.ck.Dir(), name)
		if err == nil && data != nil {
			err = atomicfile.WriteFile(filepath.Join(dst, name), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *rewriter) plan() (specs []safetensors.TensorSpec, err error) {
	gone := map[string]bool{} // scales of FP8 weights that change
	for _, t := range w.ck.Tensors() {
		if w.matrices[t.Name] == nil {
			continue
		}
		weights, err := w.ck.weights(t.Name)
		if err != nil {
			return nil, err
		}
		if weights.Scale != nil {
			gone[weights.Scale.Name], w.widened = true, true
		}
	}
	for _, t := range w.ck.Tensors() {
		if gone[t.Name] {
			continue
		}
		spec := safetensors.TensorSpec{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape}
		if w.matrices[t.Name] != nil || w.vectors[t.Name] != nil {
			spec.Dtype = packing.F32
		}
		specs = append(specs, spec)
	}
	for name, from := range w.added {
		t, _ := w.ck.Lookup(from)
		specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: t.Shape})
	}
	slices.SortFunc(specs, func(a, b safetensors.TensorSpec) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range specs {
		w.names = append(w.names, s.Name)
	}
	return specs, nil
}

func (w *rewriter) tensor(i int, name string) error {
	from := name
	if src := w.added[name]; src != "" {
		from = src
	}
	t, _ := w.ck.Lookup(from)
	if w.Progress != nil {
		defer w.Progress(t.Size)
	}
	switch {
	case w.matrices[name] != nil:
		return w.matrix(i, t, w.matrices[name])
	case w.vectors[name] != nil:
		return w.vector(i, t, w.vectors[name])
	}
	view, err := w.ck.Bytes(t)
	if err != nil {
		return err
	}
	return w.ck.Guard(func() error { return w.out.WriteAt(i, view, 0) })
}

func (w *rewriter) vector(i int, t safetensors.Tensor, list []vectorEdit) error {
	v := make([]float32, t.Numel())
	rows, _ := t.Matrix()
	if err := w.ck.ReadRows(v, t, 0, int(rows)); err != nil {
		return err
	}
	x := make([]float64, len(v))
	for k := range v {
		x[k] = float64(v[k])
	}
	for _, v := range list {
		v.f(x)
	}
	b := make([]byte, 4*len(x))
	if bad := narrow(b, x); bad >= 0 {
		return w.notFinite(t, 0, bad)
	}
	return w.out.WriteAt(i, b, 0)
}

func (w *rewriter) notFinite(t safetensors.Tensor, row, col int) error {
	return fmt.Errorf("%s: tensor %q: element %d of row %d is not finite when it is folded", w.ck.Files()[t.File].Name, t.Name, col, row)
}

func (w *rewriter) matrix(i int, t safetensors.Tensor, ed *edit) error {
	weights, err := w.ck.weights(t.Name)
	if err != nil {
		return err
	}
	rows, cols := t.Matrix()
	for _, s := range ed.segments(int(rows), int(cols)) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, k := s.to-s.from, int(cols)
		x := buffer.Grow(&w.x, n*k)
		if err := w.rows(x, weights, ed, s.from, k); err != nil {
			return err
		}
		if s.out != nil {
			w.columns(x, n, k, s.out)
		}
		b := buffer.Grow(&w.bytes, 4*n*k)
		const piece = 1 << 16
		err := w.pool.Pieces(len(x), piece, func(_, from, to int) error {
			bad := narrow(b[4*from:4*to], x[from:to])
			if bad < 0 {
				return nil
			}
			return w.notFinite(t, s.from+(from+bad)/k, (from+bad)%k)
		})
		if err != nil {
			return err
		}
		if err := w.out.WriteAt(i, b, 4*int64(s.from)*cols); err != nil {
			return err
		}
	}
	return nil
}

// rows reads rows from row from on, as many as x holds, and applies the edits of rows.
func (w *rewriter) rows(x []float64, weights *safetensors.Weights, ed *edit, from, k int) error {
	const piece = 16 // rows
	return w.pool.Pieces(len(x)/k, piece, func(_, first, end int) error {
		line, scratch := make([]float32, k), make([]float64, k)
		for r := first; r < end; r++ {
			if err := weights.Read(line, from+r, 1); err != nil {
				return err
			}
			row := x[r*k:][:k]
			for c, v := range line {
				row[c] = float64(v)
			}
			ed.row(row, from+r, scratch)
		}
		return nil
	})
}

func (w *rewriter) columns(x []float64, n, k int, r *rotation) {
	const panel = 16 // columns: two cache lines of a row
	w.pool.Run((k+panel-1)/panel, func(_, part int) {
		from := part * panel
		m := min(panel, k-from)
		lines, scratch := make([]float64, m*n), make([]float64, n)
		for i := range n {
			for c := range m {
				lines[c*n+i] = x[i*k+from+c]
			}
		}
		for c := range m {
			r.turn(lines[c*n:][:n], scratch)
		}
		for i := range n {
			for c := range m {
				x[i*k+from+c] = lines[c*n+i]
			}
		}
	})
}
