// Package atomicfile writes a file so that its path shows either the previous content or the
// complete new content, whatever happens in between.
//
//	f, err := atomicfile.Create(path)
//	if err != nil { ... }
//	defer f.Abort() // does nothing after Commit
//	... f.WriteAt(p, off), from any number of goroutines ...
//	return f.Commit()
//
// Create opens a temporary file in the target's directory; Commit syncs the temporary, renames it
// over the target and syncs the directory. A failure, or the end of the process by any means,
// before the rename leaves the target unchanged.
//
// # Temporary files
//
// The temporary of target BASE is called ".BASE.gq-RANDOM.tmp", RANDOM being 16 hexadecimal digits,
// and is locked (flock; LockFileEx on Windows) as long as its writer lives. A killed process leaves
// its temporary behind. The next Create for the same target removes every such temporary with a
// free lock, and leaves temporaries of living writers alone. On a file system without locks nothing
// is removed.
//
// Between making a temporary and locking the file there is a moment in which another process may
// lock and remove the temporary. Hence both sides check, with the lock, that the path still leads
// to the locked file. If not, the writer starts over with another name, and the remover does
// nothing.
//
// # Attributes of the new file
//
// The new file has the permission bits of the target that the new file replaces, or 0666 less the
// umask, and the other attributes (owner, access lists, hard links) of a new file. If the target is
// a symbolic link, the file at the end of the link is replaced.
package atomicfile
