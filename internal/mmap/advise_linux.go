package mmap

import "golang.org/x/sys/unix"

func adviseHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

func release(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
