//go:build linux || darwin

package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// canRenameOpen: open files can be renamed and removed.
const canRenameOpen = true

// tryLock takes the exclusive lock of f without waiting; it is released when f is
// closed or the process ends. held is false if another open file has it.
func tryLock(f *os.File) (held bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
			if lockErr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return false, err
	}
	if lockErr == unix.EWOULDBLOCK {
		return false, nil
	}
	return lockErr == nil, lockErr
}

func rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes the names in dir durable.
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
