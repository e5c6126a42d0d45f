package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	layout  *Layout
	files   []*atomicfile.File // of the shards
	written []atomic.Int64     // bytes of each tensor so far
}

// Create begins a checkpoint in dir, which it creates if necessary, and writes the headers. Tensors
// lie in files as NewLayout places them. The same arguments and data give the same bytes.
//
// Create fails if dir has a checkpoint that would contradict the new one: an index, or
// model.safetensors if there will be several files. It replaces a single model.safetensors.
func Create(dir string, tensors []TensorSpec, opts WriteOptions) (*Writer, error) {
	layout, err := NewLayout(tensors, opts)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, beside: opts.Beside, layout: layout, written: make([]atomic.Int64, len(tensors))}
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

// checkDir refuses to write beside files that would make the result ambiguous.
func (w *Writer) checkDir() error {
	old := []string{IndexName}
	if len(w.layout.Shards) > 1 {
		old = append(old, SingleName)
	}
	for _, name := range old {
		path := filepath.Join(w.dir, name)
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "create", Path: path, Err: errors.New("another checkpoint is in the way; remove it or choose another directory")}
		}
	}
	total := w.beside
	for _, s := range w.layout.Shards {
		total += s.Size
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
	for _, s := range w.layout.Shards {
		f, err := atomicfile.Create(filepath.Join(w.dir, s.Name))
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
		if err := f.Truncate(s.Size); err != nil {
			return err
		}
		if _, err := f.WriteAt(s.Header, 0); err != nil {
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
	t := w.layout.Places[i]
	if off < 0 || int64(len(p)) > t.Size-off {
		return fmt.Errorf("safetensors: bytes %d to %d do not lie in tensor %s, which has %d", off, off+int64(len(p)), quote(w.layout.name(i)), t.Size)
	}
	f := w.files[t.Shard]
	if _, err := f.WriteAt(p, t.Offset+off); err != nil {
		return err
	}
	if len(p) >= writebackFrom {
		f.StartWriteback(t.Offset+off, int64(len(p)))
	}
	w.written[i].Add(int64(len(p)))
	return nil
}

// Commit syncs the files and renames them to their final names. It fails if a tensor is incomplete.
// After a failure it removes files without a final name.
func (w *Writer) Commit() error {
	defer w.Abort()
	for i, t := range w.layout.Places {
		if n := w.written[i].Load(); n != t.Size {
			return fmt.Errorf("safetensors: %d bytes of tensor %s were written, not %d", n, quote(w.layout.name(i)), t.Size)
		}
	}
	for _, f := range w.files {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	index := w.layout.Index()
	if index == nil {
		return nil
	}
	return atomicfile.WriteFile(filepath.Join(w.dir, IndexName), index)
}

// Abort removes the written files. It does nothing after Commit or Abort.
func (w *Writer) Abort() {
	for _, f := range w.files {
		f.Abort()
	}
}
