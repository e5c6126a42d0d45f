package atomicfile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// canRenameOpen: package os opens files so that nobody can rename or remove the files.
const canRenameOpen = false

// rename is os.Rename with patience: a virus scanner, or a Create that looks for stale temporaries,
// may have the temporary open for a moment.
var rename = func(from, to string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := os.Rename(from, to)
		busy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !busy || wait > time.Second {
			return err
		}
		time.Sleep(wait)
	}
}

// renameDir moves a directory to a path that may be an empty directory.
func renameDir(from, to string) error {
	_ = windows.Rmdir(to) // removes no file, and no directory that holds files
	return rename(from, to)
}

// syncDir does nothing: Windows has no such operation.
func syncDir(string) error { return nil }

func startWriteback(*os.File, int64, int64) {}

// FreeSpace returns how many bytes this user may still write to the volume that holds dir.
func FreeSpace(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(min(free, math.MaxInt64)), nil
}
