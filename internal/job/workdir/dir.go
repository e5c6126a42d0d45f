package workdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/filelock"
)

// A Dir is an open working directory. Several goroutines may call its methods for different names.
// A nil *Dir has no entries and keeps none.
type Dir struct {
	path string
	lock *os.File
}

const (
	lockName    = "job.lock"
	entrySuffix = ".work"
	treeSuffix  = ".tree"
)

// A LockedError says that another job is working in a directory.
type LockedError struct {
	Dir string
	PID int // of the process that has the directory; 0 if unreadable
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s: %s is working in this directory: wait until it has ended, or choose another output", e.Dir, who)
}

// A ForeignError says that a directory holds something that no job of gq put there.
type ForeignError struct{ Dir, Name string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s: it is not a working directory of gq: %s is in it; move it away, or choose another output", e.Dir, e.Name)
}

// Open opens and locks the working directory at path in an existing parent, and removes the
// unfinished files of killed jobs. A directory that is not gq's stays unchanged.
func Open(path string) (*Dir, error) {
	for range 100 {
		if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		temps, err := check(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last job has just removed the directory
		}
		if err != nil {
			return nil, err
		}
		d, err := open(path)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		for _, name := range temps {
			_ = os.Remove(filepath.Join(path, name)) // the next Put of that name tries again
		}
		return d, nil
	}
	return nil, fmt.Errorf("%s: it could not be locked: other processes keep removing it", path)
}

// Peek gives the entries of the working directory at path without locking: another job may own the
// directory. Only Get, GetJSON and Path may be called.
func Peek(path string) *Dir { return &Dir{path: path} }

// check checks that a directory holds only files of gq, and lists the temporary files.
func check(path string) (temps []string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		base, temp := atomicfile.TempOf(name)
		switch file := e.Type().IsRegular(); {
		case temp && file && strings.HasSuffix(base, entrySuffix):
			temps = append(temps, name)
		case file && (name == lockName || strings.HasSuffix(name, entrySuffix)):
		case e.IsDir() && strings.HasSuffix(name, treeSuffix):
		default:
			return nil, &ForeignError{path, name}
		}
	}
	return temps, nil
}

// open takes the lock; nil if the directory or its lock was removed meanwhile.
func open(path string) (*Dir, error) {
	name := filepath.Join(path, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held, err := filelock.Try(f)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: the file system cannot lock files: write to another one (%w)", path, err)
	case !held:
		locked := &LockedError{Dir: path}
		_, _ = fmt.Fscan(io.NewSectionReader(f, 0, 32), &locked.PID)
		err = locked
	case !filelock.LeadsTo(name, f):
		f.Close()
		return nil, nil
	default:
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Dir{path, f}, nil
}

func (d *Dir) Path() string { return d.path }

// Close unlocks the directory, and removes it if empty; kept reports whether the directory is still
// there, for the next job. Entries and trees must not be in use.
func (d *Dir) Close() (kept bool, err error) {
	if d.lock == nil {
		return false, nil
	}
	name := d.lock.Name()
	removed := os.Remove(name)
	err = d.lock.Close()
	d.lock = nil
	if removed != nil { // Windows removes no open file
		_ = os.Remove(name)
	}
	_ = os.Remove(d.path) // fails unless empty
	if _, e := os.Lstat(d.path); !errors.Is(e, fs.ErrNotExist) {
		return true, errors.Join(err, e)
	}
	return false, err
}

// Remove removes the directory with its content. Entries and trees must not be in use.
func (d *Dir) Remove() error {
	err := d.Retain(func(string) bool { return false })
	if err == nil {
		_, err = d.Close()
	}
	return err
}

// Retain removes entries and trees, none of them in use, except those with names that keep reports.
func (d *Dir) Retain(keep func(name string) bool) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	// Entries first: a tree without its entry is incomplete.
	for _, trees := range []bool{false, true} {
		for _, e := range entries {
			name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), entrySuffix), treeSuffix)
			if e.Name() == lockName || e.IsDir() != trees || keep(name) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(d.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dir) Size() (n int64) {
	_ = filepath.WalkDir(d.path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // what cannot be read does not count
		}
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
