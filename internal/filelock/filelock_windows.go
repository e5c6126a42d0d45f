package filelock

import (
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// lockOffset is the offset of the locked byte, past any content: a lock on Windows keeps others
// from reading and writing the locked bytes.
const lockOffset = 1 << 62

func try(f *os.File, exclusive bool) (held bool, err error) {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		at := windows.Overlapped{Offset: lockOffset & math.MaxUint32, OffsetHigh: lockOffset >> 32}
		lockErr = windows.LockFileEx(windows.Handle(fd), how, 0, 1, 0, &at)
	}); err != nil {
		return false, err
	}
	if lockErr == windows.ERROR_LOCK_VIOLATION || lockErr == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return lockErr == nil, lockErr
}
