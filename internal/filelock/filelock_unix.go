//go:build linux || darwin

package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

func try(f *os.File, exclusive bool) (held bool, err error) {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var lockErr error
	if err := conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), how)
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
