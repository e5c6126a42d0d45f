// Package mmap maps regular files into memory for reading and turns the fault that a shrinking file
// causes into an error.
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
// Bytes is the file itself, not a copy. The slice is valid until Close, changes when somebody
// writes to the file, and reading the slice after Close is a fault. The memory is not writable. The
// page cache owns the memory, not the process, so a map of a file larger than the machine's memory
// is fine.
//
// # Faults
//
// If a mapped file becomes shorter, or its device fails, reading the lost part raises a signal
// (SIGBUS; on Windows an exception) that kills a Go program. Guard turns the signal into an error.
// The setting belongs to a goroutine: each goroutine that reads mapped bytes needs a Guard of its
// own. A system call with mapped bytes as argument (os.File.Write) reports EFAULT instead.
//
// Windows refuses to shorten a file that is mapped; failing devices remain.
//
// # Files that are elsewhere
//
// A [Region] looks like a File, but its bytes are brought in range by range, and dropped after use.
// These bytes are private memory of the process.
package mmap
