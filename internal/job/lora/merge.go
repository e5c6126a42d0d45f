package lora

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/rowmath"
	"github.com/lowbit-go/gq/packing"
)

// file is a file of the merged checkpoint, with the name of the checkpoint's file.
type file struct {
	m       *Merged
	header  []byte
	size    int64
	name    string
	tensors []stored // in order of offset
}

type stored struct {
	t      safetensors.Tensor // of the checkpoint
	change *change            // nil: the bytes are the checkpoint's
	offset int64              // in the merged file
	size   int64
}

// Records describe the adapters.
func (m *Merged) Records() []provenance.Adapter { return m.records }

// files plans the files of the merged checkpoint. Scales of FP8 weights that change are left out.
func (m *Merged) files() ([]*file, error) {
	record, err := json.Marshal(m.records)
	if err != nil {
		return nil, err
	}
	gone := map[string]bool{}
	for name := range m.changes {
		t, _ := m.base.Lookup(name)
		w, err := m.base.Weights(t, safetensors.WeightsOptions{Block: m.block})
		if err != nil {
			return nil, err
		}
		if w.Scale != nil {
			gone[w.Scale.Name] = true
		}
	}
	list := make([]*file, len(m.base.Files()))
	for i, from := range m.base.Files() {
		var specs []safetensors.TensorSpec
		f := &file{m: m, name: from.Name}
		for _, t := range m.base.Tensors() {
			if t.File != i || gone[t.Name] {
				continue
			}
			s := stored{t: t, change: m.changes[t.Name]}
			spec := safetensors.TensorSpec{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape}
			if s.change != nil {
				spec.Dtype = packing.F32
			}
			specs, f.tensors = append(specs, spec), append(f.tensors, s)
		}
		metadata := maps.Clone(from.Metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[provenance.AdaptersKey] = string(record)
		l, err := safetensors.NewLayout(specs, safetensors.WriteOptions{Metadata: metadata})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(m.base.Dir(), from.Name), err)
		}
		var b bytes.Buffer
		if err := l.WriteHeader(0, &b); err != nil {
			return nil, err
		}
		f.header, f.size = b.Bytes(), l.Shards[0].Size
		for k := range f.tensors {
			f.tensors[k].offset, f.tensors[k].size = l.Places[k].Offset, l.Places[k].Size
		}
		slices.SortFunc(f.tensors, func(a, b stored) int { return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size)) })
		list[i] = f
	}
	return list, nil
}

// Checkpoint opens the merged checkpoint. Its rows are merged when they are read. The caller closes
// it before m.
func (m *Merged) Checkpoint(ctx context.Context) (*safetensors.Checkpoint, error) {
	list, err := m.files()
	if err != nil {
		return nil, err
	}
	opts := safetensors.Options{Context: ctx}
	var paths []string
	for _, f := range list {
		paths = append(paths, filepath.Join(m.base.Dir(), f.name))
		opts.Remote = append(opts.Remote, safetensors.RemoteFile{
			Name: f.name, Size: f.size, Version: fmt.Sprintf("%x", sha256.Sum256(f.header)), ReadAt: f.readAt,
			Check: func(context.Context) error { return m.Unchanged() },
		})
	}
	return safetensors.OpenFiles(paths, opts)
}

// Unchanged reports files of the checkpoint and of adapters that changed since they were opened.
func (m *Merged) Unchanged() error {
	for _, ck := range append([]*safetensors.Checkpoint{m.base}, m.adapters...) {
		if err := ck.Unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// readAt fills dst with the bytes of the merged file from off on.
func (f *file) readAt(ctx context.Context, dst []byte, off int64) error {
	if off < 0 || off+int64(len(dst)) > f.size {
		return fmt.Errorf("%s: bytes %d to %d of %d", f.name, off, off+int64(len(dst)), f.size)
	}
	if off < int64(len(f.header)) {
		copy(dst, f.header[off:])
	}
	i, _ := slices.BinarySearchFunc(f.tensors, off, func(s stored, off int64) int { return cmp.Compare(s.offset+s.size, off+1) })
	end := off + int64(len(dst))
	for ; i < len(f.tensors) && f.tensors[i].offset < end; i++ {
		s := &f.tensors[i]
		from, to := max(off, s.offset), min(end, s.offset+s.size)
		if from >= to {
			continue
		}
		if err := f.m.read(ctx, dst[from-off:to-off], s, from-s.offset); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// mergeBytes bounds the merged rows that a goroutine holds, unless a row is larger.
const mergeBytes = 1 << 20

// read fills dst with bytes of a tensor from off on.
func (m *Merged) read(ctx context.Context, dst []byte, s *stored, off int64) error {
	if s.change == nil {
		release, err := m.base.Fetch(ctx, s.t.Range(off, int64(len(dst))))
		if err != nil {
			return err
		}
		defer release()
		return m.base.Guard(func() error { return m.base.ReadAt(s.t, dst, off) })
	}
	w := s.change.from
	width := int64(4 * w.Cols)
	step := max(1, int(mergeBytes/max(1, width)))
	var x []float32
	var b []byte
	for len(dst) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, skip := int(off/width), int(off%width)
		n := min(step, int((off+int64(len(dst))+width-1)/width)-first)
		x = slices.Grow(x[:0], n*w.Cols)[:n*w.Cols]
		if err := s.change.rows(x, first, n); err != nil {
			return err
		}
		b = b[:0]
		for i, v := range x {
			if !floats.Finite(v) {
				return fmt.Errorf("tensor %q: row %d, column %d is %v after the adapter is merged: expected a finite number", s.t.Name, first+i/w.Cols, i%w.Cols, v)
			}
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		done := copy(dst, b[skip:])
		dst, off = dst[done:], off+int64(done)
	}
	return nil
}

// rows computes n merged rows from row first on.
func (c *change) rows(dst []float32, first, n int) error {
	if err := c.from.Read(dst, first, n); err != nil {
		return err
	}
	cols := c.from.Cols
	sum := make([]float32, n*cols)
	for _, d := range c.deltas {
		left, right, rank, err := d.factors(first, n)
		if err != nil {
			return err
		}
		clear(sum)
		rowmath.Sets.Chosen().MulAdd(sum, cols, left, rank, right, cols, n, rank, cols)
		for i, v := range sum {
			dst[i] += float32(v * d.scale)
		}
		if d.magnitude == nil {
			continue
		}
		for i := range n {
			row := dst[i*cols:][:cols]
			square := 0.0
			for _, v := range row {
				square += float64(float64(v) * float64(v))
			}
			factor := d.magnitude[first+i] / float32(math.Sqrt(square))
			for k, v := range row {
				row[k] = float32(v * factor)
			}
		}
	}
	return nil
}

// factors reads n rows of the left factor, n x rank, and all of the right factor, rank x columns.
func (d *delta) factors(first, n int) (left, right []float32, rank int, err error) {
	rank = d.a.Rows
	left = make([]float32, n*rank)
	if !d.swapped {
		right = make([]float32, rank*d.a.Cols)
		if err = d.b.Read(left, first, n); err == nil {
			err = d.a.Read(right, 0, rank)
		}
		return left, right, rank, err
	}
	// (B A)' = A' B'
	right = make([]float32, rank*d.b.Rows)
	column, turned := make([]float32, n), make([]float32, d.b.Rows*rank)
	err = d.guard(func() error {
		for j := range rank { // of an embedding, a row of A has a value for each token
			b := d.a.Bytes(j, 1)
			size := len(b) / d.a.Cols
			safetensors.Widen(column, b[first*size:][:n*size], d.a.Tensor.Dtype)
			for i, v := range column {
				left[i*rank+j] = v
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, 0, err
	}
	err = d.b.Read(turned, 0, d.b.Rows)
	for i, v := range turned {
		right[i%rank*d.b.Rows+i/rank] = v
	}
	return left, right, rank, err
}

// Size is the number of bytes of the merged checkpoint's files.
func (m *Merged) Size() (n int64, err error) {
	list, err := m.files()
	for _, f := range list {
		n += f.size
	}
	return n, err
}

// Write stores the merged checkpoint in the directory dir, with config.json, tokenizer and so on.
// progress is told of bytes.
func (m *Merged) Write(ctx context.Context, dir string, threads int, progress func(n int64)) error {
	list, err := m.files()
	if err != nil {
		return err
	}
	total := int64(0)
	index := map[string]string{}
	for _, f := range list {
		total += f.size
		for _, s := range f.tensors {
			index[s.t.Name] = f.name
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if free, err := atomicfile.FreeSpace(dir); err == nil && free < total {
		return fmt.Errorf("%s: the merged checkpoint needs %d bytes, but only %d are free", dir, total, free)
	}
	for _, f := range list {
		path := filepath.Join(dir, f.name)
		if err := f.write(ctx, path, threads, progress); err != nil {
			return err
		}
		// two copies of the same weights are the same to gq serve
		if st, err := os.Stat(filepath.Join(m.base.Dir(), f.name)); err == nil {
			if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
				return err
			}
		}
	}
	if len(list) > 1 {
		b, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{}, "weight_map": index}, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, safetensors.IndexName), b, 0o666)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range append([]string{assets.ConfigName}, assets.AssetFiles()...) {
		b, err := assets.ReadAsset(m.base.Dir(), name)
		if err == nil && b != nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			return err
		}
	}
	return m.Unchanged()
}

func (f *file) write(ctx context.Context, path string, threads int, progress func(n int64)) (err error) {
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, to.Close()) }()
	const piece = 4 << 20
	return cpu.Parallel(ctx, cpu.Threads(threads), int((f.size+piece-1)/piece), func() func(i int) error {
		b := make([]byte, piece)
		return func(i int) error {
			off := int64(i) * piece
			p := b[:min(piece, f.size-off)]
			if err := f.readAt(ctx, p, off); err != nil {
				return err
			}
			_, err := to.WriteAt(p, off)
			if err == nil {
				progress(int64(len(p)))
			}
			return err
		}
	})
}
