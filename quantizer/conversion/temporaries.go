package conversion

import (
	"io"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/atomicfile"
)

// temporaries are the files of a job until they appear at their paths. They lie in one directory.
type temporaries struct {
	files     []*atomicfile.File
	dir, made string // the directory, and the uppermost one that had to be made for it; "": none
	done      bool
}

// createTemporaries creates the files of a target, with their sizes.
func createTemporaries(t target, path string) (list *temporaries, err error) {
	paths := t.paths(path)
	list = &temporaries{dir: filepath.Dir(paths[0])}
	defer func() {
		if err != nil {
			list.Abort()
		}
	}()
	if list.made, err = makeDir(list.dir); err != nil {
		return list, err
	}
	if list.dir == filepath.Clean(path) { // the output is a directory
		atomicfile.RemoveStale(list.dir, func(string) bool { return true })
	}
	sizes := t.sizes()
	for i, path := range paths {
		f, err := atomicfile.Create(path)
		if err != nil {
			return list, err
		}
		list.files = append(list.files, f)
		if err := f.Truncate(sizes[i]); err != nil {
			return list, err
		}
	}
	return list, nil
}

// Abort removes the files that have not been committed, and the directory if it was made for them.
func (t *temporaries) Abort() {
	for _, f := range t.files {
		f.Abort()
	}
	if !t.done {
		removeMade(t.dir, t.made)
	}
}

// Commit makes the files appear. The first, by which a model is opened, appears last.
func (t *temporaries) Commit() error {
	for _, f := range t.files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	for i := len(t.files) - 1; i >= 0; i-- {
		if err := t.files[i].Commit(); err != nil {
			return err
		}
	}
	t.done = true
	return nil
}

func (t *temporaries) writers() []io.WriterAt {
	list := make([]io.WriterAt, len(t.files))
	for i, f := range t.files {
		list[i] = f
	}
	return list
}

func (t *temporaries) startWriteback(file int, off, n int64) { t.files[file].StartWriteback(off, n) }
