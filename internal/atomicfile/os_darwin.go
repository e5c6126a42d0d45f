package atomicfile

import (
	"io/fs"
	"math"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

func startWriteback(*os.File, int64, int64) {}

func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	hi, lo := bits.Mul64(st.Bavail, uint64(st.Bsize))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return int64(lo), nil
}
