// Package filelock locks open files between processes: flock on Unix, LockFileEx on Windows.
//
// A lock belongs to the open file and ends with the file, so a killed process holds none. If other
// processes may remove the file, check after locking that the path still leads to the file: another
// process may have removed the file between the opening and the locking.
package filelock

import "os"

// Try takes the exclusive lock of f without waiting. held is false if another open file has the
// lock; err is not nil if the file system has no locks.
func Try(f *os.File) (held bool, err error) { return try(f, true) }

// TryShared takes a shared lock of f without waiting. Several open files may share a lock, but not
// while another holds the exclusive lock: then held is false. err is not nil if the file system has
// no locks.
func TryShared(f *os.File) (held bool, err error) { return try(f, false) }

// LeadsTo reports whether path names the open file f.
func LeadsTo(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	here, err := f.Stat()
	return err == nil && os.SameFile(there, here)
}
