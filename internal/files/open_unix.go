//go:build unix

package files

import "syscall"

// openFlags keeps the opening of a named pipe from waiting for a writer.
const openFlags = syscall.O_NONBLOCK
