package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/packing"
)

// A TensorSpec describes a tensor to be written.
type TensorSpec struct {
	Name  string        // not empty, valid UTF-8, not "__metadata__"
	Dtype packing.Dtype // any but packing.DtypeNone
	Shape []int64       // row-major; empty for a scalar
}

// WriteOptions are the options of Create.
type WriteOptions struct {
	// MaxShardBytes bounds the data in one file; a larger tensor gets its own file. Default (0): a
	// single file of any size.
	MaxShardBytes int64
	// Metadata is stored in each file as __metadata__. Default, also for a map without this key:
	// format = "pt", without which Transformers refuses the file.
	Metadata map[string]string
	// Beside is the number of bytes of other files that the caller will write into the directory:
	// the free space must be enough for them too. Default: 0.
	Beside int64
}

// A Writer writes a checkpoint: model.safetensors, or model-00001-of-0000N.safetensors and so on
// with model.safetensors.index.json. The final names appear only in Commit, the index last.
type Writer struct {
	dir     string
	beside  int64 // see WriteOptions
	shards  []*shard
	tensors []target // in the order of the specs
}

// A shard is one file to be written.
type shard struct {
	name   string
	file   *atomicfile.File
	header []byte // preceded by its length
	bytes  int64  // of data
}

// A target is the place of one tensor.
type target struct {
	TensorSpec
	shard   *shard
	offset  int64 // in its file
	size    int64
	written atomic.Int64 // bytes so far
}

// Create begins a checkpoint in dir, which it creates if necessary, and writes the headers. Tensors
// go into files in the order given. Within a file tensors with wider elements come first, so that
// all are aligned; otherwise the order stays. The same arguments and data give the same bytes.
//
// Create fails if dir has a checkpoint that would contradict the new one: an index, or
// model.safetensors if there will be several files. It replaces a single model.safetensors.
func Create(dir string, tensors []TensorSpec, opts WriteOptions) (*Writer, error) {
	w := &Writer{dir: dir, beside: opts.Beside, tensors: make([]target, len(tensors))}
	if err := w.plan(tensors, opts.MaxShardBytes); err != nil {
		return nil, err
	}
	metadata := map[string]string{"format": "pt"}
	for k, v := range opts.Metadata {
		metadata[k] = v
	}
	if err := w.place(metadata); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := w.checkDir(); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// plan checks the specs and distributes them over shards.
func (w *Writer) plan(tensors []TensorSpec, maxShardBytes int64) error {
	if maxShardBytes < 0 {
		return fmt.Errorf("safetensors: shards of at most %d bytes", maxShardBytes)
	}
	seen := make(map[string]bool, len(tensors))
	last := &shard{}
	w.shards = []*shard{last}
	for i, spec := range tensors {
		size, ok := dataSize(spec.Dtype, spec.Shape)
		if negative := slices.ContainsFunc(spec.Shape, func(d int64) bool { return d < 0 }); negative || !ok || spec.Dtype.Bits() == 0 {
			return fmt.Errorf("safetensors: tensor %s cannot be of dtype %s and shape %v", quote(spec.Name), spec.Dtype, spec.Shape)
		}
		if spec.Name == "" || spec.Name == "__metadata__" || seen[spec.Name] {
			return fmt.Errorf("safetensors: tensor name %s is empty, reserved or repeated", quote(spec.Name))
		}
		seen[spec.Name] = true
		if maxShardBytes > 0 && last.bytes > 0 && size > maxShardBytes-last.bytes {
			last = &shard{}
			w.shards = append(w.shards, last)
		}
		if last.bytes+size < 0 {
			return errors.New("safetensors: the tensors together exceed 2^63 bytes")
		}
		last.bytes += size
		t := &w.tensors[i]
		t.TensorSpec, t.shard, t.size = spec, last, size
	}
	for i, s := range w.shards {
		s.name = singleName
		if len(w.shards) > 1 {
			s.name = fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(w.shards), fileSuffix)
		}
	}
	return nil
}

// place sets the offset of each tensor in its file and makes the headers.
func (w *Writer) place(metadata map[string]string) error {
	members := make(map[*shard][]*target, len(w.shards))
	for i := range w.tensors {
		t := &w.tensors[i]
		members[t.shard] = append(members[t.shard], t)
	}
	for _, s := range w.shards {
		slices.SortStableFunc(members[s], func(a, b *target) int { return cmp.Compare(b.Dtype.Bits(), a.Dtype.Bits()) })
		var err error
		if s.header, err = makeHeader(members[s], metadata); err != nil {
			return err
		}
		for _, t := range members[s] {
			t.offset += int64(len(s.header))
		}
	}
	return nil
}

// checkDir refuses to write beside files that would make the result ambiguous.
func (w *Writer) checkDir() error {
	old := []string{indexName}
	if len(w.shards) > 1 {
		old = append(old, singleName)
	}
	for _, name := range old {
		path := filepath.Join(w.dir, name)
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "create", Path: path, Err: errors.New("another checkpoint is in the way; remove it or choose another directory")}
		}
	}
	total := w.beside
	for _, s := range w.shards {
		total += int64(len(s.header)) + s.bytes
	}
	free, err := atomicfile.FreeSpace(w.dir)
	if err != nil {
		return err
	}
	if free < total {
		return &fs.PathError{Op: "create", Path: w.dir, Err: fmt.Errorf("the checkpoint needs %d bytes, but only %d are free", total, free)}
	}
	return nil
}

// open creates the files and writes the headers.
func (w *Writer) open() error {
	for _, s := range w.shards {
		var err error
		if s.file, err = atomicfile.Create(filepath.Join(w.dir, s.name)); err != nil {
			return err
		}
		if err := s.file.Truncate(int64(len(s.header)) + s.bytes); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(s.header, 0); err != nil {
			return err
		}
	}
	return nil
}

// writebackFrom is the size of a piece from which the system is asked to write it out at once, so
// that the sync of Commit finds less to do.
const writebackFrom = 1 << 20

// WriteAt writes p to the bytes off to off+len(p) of the data of tensor i, as Create's specs number
// it. Each byte must be written exactly once, in any order and by any number of goroutines.
func (w *Writer) WriteAt(i int, p []byte, off int64) error {
	t := &w.tensors[i]
	if off < 0 || int64(len(p)) > t.size-off {
		return fmt.Errorf("safetensors: bytes %d to %d do not lie in tensor %s, which has %d", off, off+int64(len(p)), quote(t.Name), t.size)
	}
	if _, err := t.shard.file.WriteAt(p, t.offset+off); err != nil {
		return err
	}
	if len(p) >= writebackFrom {
		t.shard.file.StartWriteback(t.offset+off, int64(len(p)))
	}
	t.written.Add(int64(len(p)))
	return nil
}

// Commit syncs the files and renames them to their final names. It fails if a tensor is incomplete.
// After a failure it removes files without a final name.
func (w *Writer) Commit() error {
	defer w.Abort()
	for i := range w.tensors {
		t := &w.tensors[i]
		if n := t.written.Load(); n != t.size {
			return fmt.Errorf("safetensors: %d bytes of tensor %s were written, not %d", n, quote(t.Name), t.size)
		}
	}
	for _, s := range w.shards {
		if err := s.file.Commit(); err != nil {
			return err
		}
	}
	if len(w.shards) == 1 {
		return nil
	}
	f, err := atomicfile.Create(filepath.Join(w.dir, indexName))
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.WriteAt(w.index(), 0); err != nil {
		return err
	}
	return f.Commit()
}

// Abort removes the written files. It does nothing after Commit or Abort.
func (w *Writer) Abort() {
	for _, s := range w.shards {
		if s.file != nil {
			s.file.Abort()
		}
	}
}
