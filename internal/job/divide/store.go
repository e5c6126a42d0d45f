package divide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
)

// A PartStore keeps the parts of a file, and the file that they make beside them: in a directory,
// or in an object store. Names are the file's name, or part.Path of that name.
type PartStore interface {
	// List finds the parts of the file, as part.List does.
	List(ctx context.Context, name string) (map[int][]bool, error)
	// Open opens a file for reading. The error wraps fs.ErrNotExist if the file is not there.
	Open(ctx context.Context, name string) (*StoredFile, error)
	// Create begins to write a file of size bytes, in which gaps are not written and read as zeros;
	// nil: none. The file replaces a former file when the sink is committed. Several processes may
	// write one part.
	Create(ctx context.Context, name string, size int64, gaps iter.Seq2[int64, int64]) (write.Sink, error)
	// RemoveParts removes the parts of the file, and what killed workers have left of their
	// attempts.
	RemoveParts(ctx context.Context, name string, of int) error
}

// A StoredFile is a file of a PartStore.
type StoredFile struct {
	io.ReaderAt
	Size  int64
	Close func() error
}

// partFiles keeps parts in the file system.
type partFiles struct{}

func (partFiles) List(_ context.Context, name string) (map[int][]bool, error) { return part.List(name) }

func (partFiles) Open(_ context.Context, name string) (*StoredFile, error) {
	f, st, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	return &StoredFile{f, st.Size(), f.Close}, nil
}

func (partFiles) Create(_ context.Context, name string, size int64, _ iter.Seq2[int64, int64]) (write.Sink, error) {
	dir := filepath.Dir(name)
	if free, err := atomicfile.FreeSpace(dir); err != nil || free < size {
		if err == nil {
			err = fmt.Errorf("%s: the file needs %d bytes, %s has %d free: free some space", name, size, dir, free)
		}
		return nil, err
	}
	f, err := atomicfile.Create(name)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		f.Abort()
		return nil, err
	}
	return f, nil
}

func (partFiles) RemoveParts(_ context.Context, name string, of int) error {
	dir, base := filepath.Split(name)
	atomicfile.RemoveStale(dir, func(target string) bool { return len(part.Sort(base, []string{target})) > 0 })
	for i := of - 1; i >= 0; i-- {
		if err := os.Remove(part.Path(name, i, of)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// startWriteback asks the system to begin writing bytes of a sink to the disk, if it is a file.
func startWriteback(s write.Sink, off, n int64) {
	if f, ok := s.(*atomicfile.File); ok {
		f.StartWriteback(off, n)
	}
}
