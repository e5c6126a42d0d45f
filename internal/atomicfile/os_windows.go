package atomicfile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// canRenameOpen: package os opens files so that nobody can rename or remove them.
const canRenameOpen = false

// lockOffset is where the locked byte lies. Windows' locks keep others from reading
// and writing what they cover, so it is past any content.
const lockOffset = 1 << 62

// tryLock takes the exclusive lock of f without waiting; it is released when f is
// closed or the process ends. held is false if another open file has it.
func tryLock(f *os.File) (held bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		at := windows.Overlapped{Offset: lockOffset & math.MaxUint32, OffsetHigh: lockOffset >> 32}
		lockErr = windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	}); err != nil {
		return false, err
	}
	if lockErr == windows.ERROR_LOCK_VIOLATION || lockErr == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return lockErr == nil, lockErr
}

// rename is os.Rename with patience: a virus scanner, or a Create that looks whether
// the temporary is stale, may have it open for a moment.
func rename(from, to string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := os.Rename(from, to)
		busy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !busy || wait > time.Second {
			return err
		}
		time.Sleep(wait)
	}
}

// syncDir does nothing: Windows has no such operation.
func syncDir(string) error { return nil }

func startWriteback(*os.File, int64, int64) {}

// FreeSpace returns how many bytes this user may still write to the volume that
// holds dir.
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
