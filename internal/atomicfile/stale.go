package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/filelock"
)

// removeStale removes the temporaries of dir/base that nobody is writing. What
// cannot be removed is left for another time: it is in nobody's way.
func removeStale(dir, base string) {
	entries, err := os.ReadDir(orDot(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if of, ok := TempOf(e.Name()); ok && of == base && e.Type().IsRegular() {
			removeIfFree(filepath.Join(dir, e.Name()))
		}
	}
}

// TempOf returns the base name of the target that a temporary of that name is for; ok is false if
// no File has a temporary of that name.
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
	// For writing, since locks on network file systems may ask for that; a temporary
	// with the mode of a read-only target cannot be opened so.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.Open(path)
	}
	if err != nil {
		return
	}
	defer f.Close()
	// If the path leads elsewhere now, the writer has just finished: the file that is
	// locked here may be the new target.
	if held, err := filelock.Try(f); err != nil || !held || !filelock.LeadsTo(path, f) {
		return
	}
	if !canRenameOpen {
		// Windows removes no file that anybody has open, so nobody can slip in.
		_ = f.Close()
	}
	_ = os.Remove(path)
}
