package mmap

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

func reserve(size int) ([]byte, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE, windows.PAGE_NOACCESS)
	if err != nil {
		return nil, err
	}
	// The indirection satisfies vet, as in mapFile.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), size), nil
}

func unreserve(b []byte) error {
	return windows.VirtualFree(uintptr(base(b)), 0, windows.MEM_RELEASE)
}

func makeWritable(b []byte) error {
	_, err := windows.VirtualAlloc(uintptr(base(b)), uintptr(len(b)), windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return err
}

func makeReadable(b []byte) error {
	var before uint32
	return windows.VirtualProtect(uintptr(base(b)), uintptr(len(b)), windows.PAGE_READONLY, &before)
}

func makeAbsent(b []byte) error {
	return windows.VirtualFree(uintptr(base(b)), uintptr(len(b)), windows.MEM_DECOMMIT)
}
