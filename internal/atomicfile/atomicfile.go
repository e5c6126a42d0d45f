package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/lowbit-go/gq/internal/filelock"
)

// A File is a file being written. Several goroutines may call WriteAt and StartWriteback; Commit
// must come after the last of these calls.
type File struct {
	path   string // as given to Create, for messages
	target string // path with symbolic links resolved
	temp   string
	file   *os.File

	mu   sync.Mutex // for done, and held through Commit and Abort
	done bool       // committed or aborted
}

// Create begins writing the file at path with a new temporary in the same directory, and removes
// temporaries that killed processes left behind for this path. The path must not be a directory or
// another special file. Errors are *fs.PathError with path.
func Create(path string) (*File, error) {
	target, mode, exists, err := resolve(path)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	dir, base := filepath.Split(target)
	RemoveStale(dir, func(of string) bool { return of == base })
	for range 100 {
		f := &File{path: path, target: target, temp: filepath.Join(dir, tempName(base))}
		f.file, err = os.OpenFile(f.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "create", Path: path, Err: fmt.Errorf("directory %s: %w", cmp.Or(dir, "."), Cause(err))}
		}
		// Another process that cleans up may have been quicker than the lock.
		if held, err := filelock.Try(f.file); err == nil && (!held || !filelock.LeadsTo(f.temp, f.file)) {
			f.Abort()
			continue
		}
		if exists { // the umask took bits off
			if err := f.file.Chmod(mode); err != nil {
				f.Abort()
				return nil, &fs.PathError{Op: "create", Path: path, Err: Cause(err)}
			}
		}
		return f, nil
	}
	return nil, &fs.PathError{Op: "create", Path: path, Err: errors.New("no temporary file could be locked: other processes keep removing them")}
}

// Check returns the error that Create has for path, without the attempt to make a temporary.
func Check(path string) error {
	if _, _, _, err := resolve(path); err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

// WriteFile makes data the content of the file at path, with Create and Commit.
func WriteFile(path string, data []byte) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Commit()
}

// resolve finds the file that Create must replace: the target of symbolic links, its permission
// bits, and whether a file exists there.
func resolve(path string) (target string, mode fs.FileMode, exists bool, err error) {
	if path == "" {
		return "", 0, false, errors.New("the path is empty")
	}
	if os.IsPathSeparator(path[len(path)-1]) {
		return "", 0, false, errors.New("the path names a directory")
	}
	target = path
	st, err := os.Lstat(path)
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		if target, err = filepath.EvalSymlinks(path); err != nil {
			return "", 0, false, fmt.Errorf("the symbolic link leads nowhere: %w", Cause(err))
		}
		st, err = os.Lstat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := cmp.Or(filepath.Dir(target), ".")
		switch st, err := os.Stat(dir); {
		case err != nil:
			return "", 0, false, fmt.Errorf("directory %s: %w", dir, Cause(err))
		case !st.IsDir():
			return "", 0, false, fmt.Errorf("%s is not a directory", dir)
		}
		return target, 0o666, false, nil
	case err != nil:
		return "", 0, false, Cause(err)
	case st.IsDir():
		return "", 0, false, errors.New("is a directory: name a file in it")
	case !st.Mode().IsRegular():
		return "", 0, false, errors.New("is not a regular file, so it cannot be replaced")
	}
	return target, st.Mode().Perm(), true, nil
}

func (f *File) Path() string { return f.path }

// Temp returns the temporary's path, with the content so far, until Commit or Abort.
func (f *File) Temp() string { return f.temp }

func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(p, off)
	return n, f.explain("write", err)
}

// ReadAt reads what was written.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// Truncate sets the file's size in bytes; bytes that were never written read as zeros.
func (f *File) Truncate(size int64) error {
	return f.explain("resize", f.file.Truncate(size))
}

// StartWriteback asks the system to begin writing the n bytes at off to the disk, without waiting,
// so that Commit's sync has less to do. The call is a hint: only Linux has such a function.
func (f *File) StartWriteback(off, n int64) { startWriteback(f.file, off, n) }

// Sync puts the content on the disk, so that Commit has less to do that may fail.
func (f *File) Sync() error { return f.explain("sync", f.file.Sync()) }

// Commit makes the file appear at its path. If Commit returns no error, the content and the name
// are on the disk. After an error from the rename or an earlier step, the target is unchanged and
// the temporary is gone. The File cannot be used after Commit.
func (f *File) Commit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return &fs.PathError{Op: "commit", Path: f.path, Err: fs.ErrClosed}
	}
	if err := f.file.Sync(); err != nil {
		f.discard()
		return f.explain("sync", err)
	}
	if err := f.rename(); err != nil {
		f.discard()
		return f.explain("replace", err)
	}
	f.done = true
	return f.explain("sync the directory of", syncDir(filepath.Dir(f.target)))
}

// rename moves the temporary to the target and closes the file, holding the lock through the rename
// if open files can be renamed. Windows renames no open files, but others cannot remove open files
// there either, and the gap is a moment.
func (f *File) rename() error {
	if !canRenameOpen {
		if err := f.file.Close(); err != nil {
			return err
		}
		return rename(f.temp, f.target)
	}
	if err := rename(f.temp, f.target); err != nil {
		return err
	}
	// The content is synced: a failure to close does no harm.
	_ = f.file.Close()
	return nil
}

// Abort removes the temporary and leaves the target unchanged. After Commit or Abort, Abort does
// nothing and can be deferred.
func (f *File) Abort() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.discard()
}

func (f *File) discard() {
	if f.done {
		return
	}
	f.done = true
	// Close first: Windows does not remove open files. The next Create may remove the rest.
	_ = f.file.Close()
	_ = os.Remove(f.temp)
}

// explain replaces the temporary's path by the target's path in an error.
func (f *File) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.path, Err: Cause(err)}
}

// Cause returns the error of the operating system in an error that names paths.
func Cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

const (
	tempPrefix = "."
	tempInfix  = ".gq-"
	tempDigits = 16
	tempSuffix = ".tmp"
)

func tempName(base string) string {
	return fmt.Sprintf("%s%s%s%0*x%s", tempPrefix, base, tempInfix, tempDigits, rand.Uint64(), tempSuffix)
}

// CommitSet makes files appear that belong together. Readers open the first file: the first
// disappears before any other file changes, and appears last. So the set is at any moment the
// former set, incomplete without its first file, or the new set.
func CommitSet(list []*File) error {
	for _, f := range list {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if len(list) > 1 {
		first := list[0]
		if err := remove(first.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return first.explain("replace", err)
		}
		if err := syncDir(filepath.Dir(first.target)); err != nil {
			return first.explain("sync the directory of", err)
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		if err := list[i].Commit(); err != nil {
			if len(list) > 1 {
				err = fmt.Errorf("%w: the %d files are not complete: run the command again", err, len(list))
			}
			return err
		}
	}
	return nil
}

// remove is os.Remove; tests replace the variable.
var remove = os.Remove
