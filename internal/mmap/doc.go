// Package mmap maps regular files into memory for reading and turns the fault that
// a shrinking file causes into an error.
//
//	f, err := mmap.Open(path)
//	if err != nil { ... }
//	defer f.Close()
//	err = mmap.Guard(func() error {
//		use(f.Bytes())
//		return nil
//	})
//	var fault *mmap.FaultError
//	if errors.As(err, &fault) { ... fault.Name was truncated at fault.Offset or before ... }
//
// # Lifetime
//
// Bytes is the file itself, not a copy: it is valid until Close, changes when
// somebody writes to the file, and reading it after Close is a fault. The memory
// is not writable. It belongs to the page cache, so it is not private memory of
// the process, and a map of a file larger than the machine's memory is fine.
//
// # Faults
//
// If the file becomes shorter while it is mapped, or its device fails, reading the
// lost part raises a signal (SIGBUS; on Windows an exception) that kills a Go
// program. Guard makes it an error. The setting it uses belongs to a goroutine:
// each goroutine that reads mapped bytes needs a Guard of its own. A system call
// that is handed mapped bytes (os.File.Write) reports EFAULT instead.
//
// Windows refuses to shorten a file that is mapped; failing devices remain.
//
// # Files that are elsewhere
//
// A [Region] looks like a File, but its bytes are brought into it range by range, and
// dropped after use. They are private memory of the process.
package mmap
