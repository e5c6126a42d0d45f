// Package atomicfile writes a file so that its path shows either the previous content or the
// complete new content, whatever happens in between.
//
//	f, err := atomicfile.Create(path)
//	if err != nil { ... }
//	defer f.Abort() // does nothing after Commit
//	... f.WriteAt(p, off), from any number of goroutines ...
//	return f.Commit()
//
// Create opens a temporary file in the target's directory; Commit syncs it, renames it over the
// target and syncs the directory. A failure, or the end of the process by any means, before the
// rename leaves the target as it was.
//
// # Temporary files
//
// The temporary of target BASE is called ".BASE.gq-RANDOM.tmp", RANDOM being 16 hexadecimal digits,
// and is locked (flock; LockFileEx on Windows) as long as its writer lives. A killed process leaves
// it behind. The next Create for the same target removes every temporary of that name whose lock it
// can take, and keeps those that another process is writing. On a file system without locks nothing
// is removed.
//
// Between making a temporary and locking it there is a moment in which another process may lock and
// remove it. Hence both sides check, once they have the lock, that the path still leads to the file
// they locked; the writer starts over with another name if not, the remover leaves it alone.
//
// # Attributes of the new file
//
// The new file has the permission bits of the target that it replaces, or 0666 less the umask. It
// has the other attributes (owner, access lists, hard links) of a new file. If the target is a
// symbolic link, the file that it leads to is replaced.
package atomicfile
