package atomicfile

import (
	"cmp"
	"io/fs"
	"math"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

func startWriteback(f *os.File, off, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// FreeSpace returns how many bytes this user may still write to the file system that holds dir.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize // unit of the block counts; 0 on old kernels
	unit = cmp.Or(unit, st.Bsize)
	hi, lo := bits.Mul64(st.Bavail, uint64(unit))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return int64(lo), nil
}
