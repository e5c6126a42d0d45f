package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/filelock"
)

// A Dir is a directory that is being written under a temporary name. Its files appear together.
type Dir struct {
	path, target, temp string
	lock               *os.File
}

// CreateDir begins the directory at path, where [CheckDir] has found nothing in the way, and
// removes the remains of killed processes' directories for this path.
func CreateDir(path string) (*Dir, error) {
	target := place(path)
	parent, base := filepath.Split(target)
	RemoveStale(parent, func(of string) bool { return of == base })
	d := &Dir{path: path, target: target, temp: filepath.Join(parent, tempName(base))}
	err := os.Mkdir(d.temp, 0o777)
	if st, e := os.Stat(target); e == nil && err == nil {
		err = os.Chmod(d.temp, st.Mode().Perm())
	}
	if err == nil && canRenameOpen {
		if d.lock, err = os.Open(d.temp); err == nil {
			_, _ = filelock.Try(d.lock) // a file system without locks: nobody removes the directory
		}
	}
	if err != nil {
		d.Abort()
		return nil, &fs.PathError{Op: "create", Path: path, Err: Cause(err)}
	}
	return d, nil
}

func place(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return path
}

// CheckDir returns an error if a Dir cannot take the place of what is at path: of anything but an
// empty directory, or of a directory that cannot be renamed. Nothing at path is no error.
func CheckDir(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && len(entries) > 0:
		err = fmt.Errorf("the directory holds files already (%s): choose an empty directory, or a new one", entries[0].Name())
	case err == nil:
		target := place(path)
		away := filepath.Join(filepath.Dir(target), tempName(filepath.Base(target)))
		if err = rename(target, away); err == nil {
			err = rename(away, target)
		}
		if err != nil {
			err = fmt.Errorf("a new directory cannot take its place (%w): name a directory in it", Cause(err))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, Cause(err))
	}
	return nil
}

// Create begins a file of the directory, or of a folder in it. Commit the file before the
// directory.
func (d *Dir) Create(name string) (*File, error) {
	path := filepath.Join(d.temp, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, &fs.PathError{Op: "create", Path: filepath.Join(d.path, name), Err: Cause(err)}
	}
	f, err := Create(path)
	if err == nil {
		f.path = filepath.Join(d.path, name) // for messages
	}
	return f, err
}

// Commit makes the directory appear, with files that are committed. An empty directory is replaced.
func (d *Dir) Commit() error {
	err := syncDir(d.temp) // with the names of folders
	if err == nil {
		err = renameDir(d.temp, d.target)
	}
	if err == nil {
		d.unlock()
		err = syncDir(filepath.Dir(d.target))
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: d.path, Err: Cause(err)}
	}
	return nil
}

// Abort removes the directory and its files. After Commit it does nothing.
func (d *Dir) Abort() {
	d.unlock()
	_ = os.RemoveAll(d.temp)
}

func (d *Dir) unlock() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// RemoveStale removes the temporaries in a directory that no process is writing and that clean
// reports true for, given the base name of the target. Create does so for its own target; the names
// of the files of an output may depend on the job, so that Create does not find the temporaries of
// a killed job. A later call removes a temporary that cannot be removed now.
func RemoveStale(dir string, clean func(base string) bool) {
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return
	}
	for _, e := range entries {
		of, ok := TempOf(e.Name())
		switch path := filepath.Join(dir, e.Name()); {
		case !ok || !clean(of):
		case e.IsDir():
			removeDirIfFree(path)
		case e.Type().IsRegular():
			removeIfFree(path)
		}
	}
}

// TempOf returns the base name of the target to which a temporary of that name belongs. ok is false
// if name is not the name of a temporary.
func TempOf(name string) (base string, ok bool) {
	name, ok = strings.CutSuffix(name, tempSuffix)
	at := strings.LastIndex(name, tempInfix)
	if !ok || at < 0 {
		return "", false
	}
	base, ok = strings.CutPrefix(name[:at], tempPrefix)
	digits := name[at+len(tempInfix):]
	return base, ok && len(digits) == tempDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// removeDirIfFree removes a killed [Dir] at path, except on Windows: directories have no locks
// there.
func removeDirIfFree(path string) {
	d, err := os.Open(path)
	if err != nil {
		return
	}
	defer d.Close()
	if held, err := filelock.Try(d); err == nil && held && filelock.LeadsTo(path, d) {
		_ = os.RemoveAll(path)
	}
}

// removeIfFree removes the temporary at path unless a writer holds its lock.
func removeIfFree(path string) {
	// Open for writing, because locks on network file systems may demand this. A temporary with the
	// mode of a read-only target cannot be opened for writing.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.Open(path)
	}
	if err != nil {
		return
	}
	defer f.Close()
	// If the path leads elsewhere, the writer has just finished: f may be the new target.
	if held, err := filelock.Try(f); err != nil || !held || !filelock.LeadsTo(path, f) {
		return
	}
	if !canRenameOpen {
		// Windows removes no file that anybody has open, so nobody can slip in.
		_ = f.Close()
	}
	_ = os.Remove(path)
}
