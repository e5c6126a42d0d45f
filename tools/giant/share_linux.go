package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// share makes n bytes of to, from an offset on, the first n bytes of from, on the same blocks.
func share(to, from *os.File, n, offset int64) error {
	return unix.IoctlFileCloneRange(int(to.Fd()), &unix.FileCloneRange{Src_fd: int64(from.Fd()), Src_length: uint64(n), Dest_offset: uint64(offset)})
}
