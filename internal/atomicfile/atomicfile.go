package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/lowbit-go/gq/internal/filelock"
)

// A File is a file being written. WriteAt and StartWriteback may be called from
// several goroutines; Commit must come after the last of them.
type File struct {
	path   string // as given to Create, for messages
	target string // path with symbolic links resolved
	temp   string
	keep   bool // the temporary is not removed: it was adopted
	file   *os.File

	mu   sync.Mutex // for done, and held through Commit and Abort
	done bool       // committed or aborted
}

// Create begins writing the file at path: it removes temporaries that killed processes left behind
// for this path, and makes a new one beside it. The path must not be a directory or another special
// file. Errors are *fs.PathError with path.
func Create(path string) (*File, error) {
	target, mode, exists, err := resolve(path)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	dir, base := filepath.Split(target)
	RemoveStale(dir, func(of string) bool { return of == base })
	for range 100 {
		f := &File{path: path, target: target, temp: filepath.Join(dir, tempName(base))}
		f.file, err = os.OpenFile(f.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "create", Path: path, Err: fmt.Errorf("directory %s: %w", orDot(dir), cause(err))}
		}
		// Another process that cleans up may have been quicker than the lock.
		if held, err := filelock.Try(f.file); err == nil && (!held || !filelock.LeadsTo(f.temp, f.file)) {
			f.Abort()
			continue
		}
		if exists { // the umask took bits off
			if err := f.file.Chmod(mode); err != nil {
				f.Abort()
				return nil, &fs.PathError{Op: "create", Path: path, Err: cause(err)}
			}
		}
		return f, nil
	}
	return nil, &fs.PathError{Op: "create", Path: path, Err: errors.New("no temporary file could be locked: other processes keep removing them")}
}

// Adopt continues the file at path with an existing file as its temporary, which other processes may
// have written. Abort leaves it as it is.
func Adopt(path, temp string) (*File, error) {
	target, _, _, err := resolve(path)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	f := &File{path: path, target: target, temp: temp, keep: true}
	if f.file, err = os.OpenFile(temp, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if held, err := filelock.Try(f.file); err == nil && !held {
		f.Abort()
		return nil, &fs.PathError{Op: "open", Path: temp, Err: errors.New("another process completes this file")}
	}
	return f, nil
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
// bits, and whether it exists.
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
			return "", 0, false, fmt.Errorf("the symbolic link leads nowhere: %w", cause(err))
		}
		st, err = os.Lstat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := orDot(filepath.Dir(target))
		switch st, err := os.Stat(dir); {
		case err != nil:
			return "", 0, false, fmt.Errorf("directory %s: %w", dir, cause(err))
		case !st.IsDir():
			return "", 0, false, fmt.Errorf("%s is not a directory", dir)
		}
		return target, 0o666, false, nil
	case err != nil:
		return "", 0, false, cause(err)
	case st.IsDir():
		return "", 0, false, errors.New("is a directory: name a file in it")
	case !st.Mode().IsRegular():
		return "", 0, false, errors.New("is not a regular file, so it cannot be replaced")
	}
	return target, st.Mode().Perm(), true, nil
}

// Path returns the path that Create was given.
func (f *File) Path() string { return f.path }

// Temp returns the path of the temporary, which holds the content written so far. It may be read
// until Commit or Abort.
func (f *File) Temp() string { return f.temp }

// WriteAt writes p at the byte offset off, like io.WriterAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(p, off)
	return n, f.explain("write", err)
}

// ReadAt reads from a file of Adopt, like io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// Truncate sets the file's size in bytes; bytes that were never written read as zeros.
func (f *File) Truncate(size int64) error {
	return f.explain("resize", f.file.Truncate(size))
}

// StartWriteback asks the system to begin writing the n bytes at off to the disk, without waiting,
// so that Commit's sync has less to do. It is a hint: only Linux has such a call.
func (f *File) StartWriteback(off, n int64) { startWriteback(f.file, off, n) }

// Sync puts the content on the disk, so that Commit has less to do that may fail.
func (f *File) Sync() error { return f.explain("sync", f.file.Sync()) }

// Commit makes the file appear at its path. If it returns no error, the content and the name are on
// the disk. After an error from the rename or an earlier step, the target is unchanged and the
// temporary is gone. The File cannot be used after Commit.
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

// rename moves the temporary to the target and closes it. It holds the lock through the rename if
// open files can be renamed. On Windows they cannot, but others cannot remove them while they are
// open either, and the gap is a moment.
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

// Abort removes the temporary and leaves the target as it was. It does nothing after
// Commit or Abort, so it can be deferred.
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
	// Close first: Windows does not remove open files. The next Create removes a temporary that
	// cannot be removed now.
	_ = f.file.Close()
	if !f.keep {
		_ = os.Remove(f.temp)
	}
}

// explain replaces the temporary's path by the target's path in an error.
func (f *File) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.path, Err: cause(err)}
}

// cause strips the operation and path off an error of package os.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

func orDot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
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
