// Package workdir keeps what a long job has finished, so that the job resumes after an
// interruption.
//
//	d, err := workdir.Open("model.gqf.calib") // locked until Close
//	if err != nil { ... }
//	defer d.Close()
//	if e := d.Get("layer-0", key); e != nil { ... use e ... }
//	err = d.Put("layer-0", key, func(w io.Writer) error { ... })
//
// A directory belongs to a single job at a time: Open fails with a *LockedError while another
// process, or another part of the same process, has the lock. The lock ends with the process.
//
// # Entries
//
// An entry is a file with a name and a key. The key is a hash of everything that the content
// depends on (see Key). The file NAME.work holds
//
//	8 bytes   "gqwork1\n"
//	32 bytes  SHA-256 of the entry's name and key
//	8 bytes   length of the content, little-endian
//	          the content
//	32 bytes  SHA-256 of all that precedes
//
// and appears complete or not at all. Get returns content only if the name, the key, the length and
// the checksum are right. Entries of another job, renamed entries and damaged entries count as
// absent, and the job makes the content again.
//
// # Trees
//
// A tree is a directory of files under a name and a key, for content that others read as files (a
// folded checkpoint). A complete tree has an entry of the same name with the size and the SHA-256
// of every file. Tree reads all files before it uses a tree again. Loose gives a directory without
// an entry, for files that the job checks itself.
package workdir
