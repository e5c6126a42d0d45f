//go:build linux || darwin

package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// canRenameOpen: open files can be renamed and removed.
const canRenameOpen = true

// rename is os.Rename; tests replace the variable.
var rename = os.Rename

// renameDir moves a directory to a path that may be an empty directory.
var renameDir = unix.Rename

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrPermission) {
		return nil // a directory may be writable without being readable
	}
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // file systems that do not know the operation
	}
	return err
}
