//go:build unix

package mmap

import "golang.org/x/sys/unix"

// privateMemory has no pages of its own yet: the first write to a page makes zeros appear.
const privateMemory = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE

func reserve(size int) ([]byte, error) { return unix.Mmap(-1, 0, size, unix.PROT_NONE, privateMemory) }

func unreserve(b []byte) error { return unix.Munmap(b) }

func makeWritable(b []byte) error { return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE) }

func makeReadable(b []byte) error { return unix.Mprotect(b, unix.PROT_READ) }

// makeAbsent maps new memory over the range: unlike madvise, that frees the pages at once
// everywhere.
func makeAbsent(b []byte) error {
	_, err := unix.MmapPtr(-1, 0, base(b), uintptr(len(b)), unix.PROT_NONE, privateMemory|unix.MAP_FIXED)
	return err
}
