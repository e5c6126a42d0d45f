package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/filelock"
)

// RemoveStale removes the temporaries in a directory that no process is writing and that clean reports
// true for, given the base name of the target. Create does so for its own target; the names of the files
// of an output may depend on the job, so that Create does not find the temporaries of a killed job. A
// later call removes a temporary that cannot be removed now.
func RemoveStale(dir string, clean func(base string) bool) {
	entries, err := os.ReadDir(orDot(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if of, ok := TempOf(e.Name()); ok && clean(of) && e.Type().IsRegular() {
			removeIfFree(filepath.Join(dir, e.Name()))
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

// removeIfFree removes the temporary at path if no writer has it locked.
func removeIfFree(path string) {
	// Open for writing, because locks on network file systems may need it. A temporary with the
	// mode of a read-only target cannot be opened for writing.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.Open(path)
	}
	if err != nil {
		return
	}
	defer f.Close()
	// If the path leads elsewhere now, the writer has just finished: the file that is locked here
	// may be the new target.
	if held, err := filelock.Try(f); err != nil || !held || !filelock.LeadsTo(path, f) {
		return
	}
	if !canRenameOpen {
		// Windows removes no file that anybody has open, so nobody can slip in.
		_ = f.Close()
	}
	_ = os.Remove(path)
}
