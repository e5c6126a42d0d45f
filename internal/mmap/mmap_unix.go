//go:build unix

package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }

func adviseSequential(b []byte) { _ = unix.Madvise(b, unix.MADV_SEQUENTIAL) }

func willNeed(b []byte) { _ = unix.Madvise(b, unix.MADV_WILLNEED) }
