package conversion

import (
	"io"

	"github.com/lowbit-go/gq/internal/atomicfile"
)

// temporaries are the files of a job until they appear at their paths.
type temporaries []*atomicfile.File

// createTemporaries creates the files of a target, with their sizes.
func createTemporaries(t target, path string) (list temporaries, err error) {
	defer func() {
		if err != nil {
			list.Abort()
		}
	}()
	sizes := t.sizes()
	for i, path := range t.paths(path) {
		f, err := atomicfile.Create(path)
		if err != nil {
			return list, err
		}
		list = append(list, f)
		if err := f.Truncate(sizes[i]); err != nil {
			return list, err
		}
	}
	return list, nil
}

// Abort removes the files that have not been committed.
func (t temporaries) Abort() {
	for _, f := range t {
		f.Abort()
	}
}

// Commit makes the files appear. The first shard, by which a model is opened, appears last.
func (t temporaries) Commit() error {
	for i := len(t) - 1; i >= 0; i-- {
		if err := t[i].Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (t temporaries) writers() []io.WriterAt {
	list := make([]io.WriterAt, len(t))
	for i, f := range t {
		list[i] = f
	}
	return list
}

func (t temporaries) startWriteback(file int, off, n int64) { t[file].StartWriteback(off, n) }
