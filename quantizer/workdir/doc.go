// Package workdir keeps what a long job has finished, so that the job resumes after an interruption.
//
//	d, err := workdir.Open("model.gqf.calib") // locked until Close
//	if err != nil { ... }
//	defer d.Close()
//	if e := d.Get("layer-0", key); e != nil { ... use e ... }
//	err = d.Put("layer-0", key, func(w io.Writer) error { ... })
//
// A directory belongs to one job at a time: Open locks it and fails with a *LockedError while another
// process, or another part of this one, has it open. The lock ends with the process.
//
// # Entries
//
// An entry is a file that has a name and a key. The key is a hash of everything that the content
// depends on (see Key). The file NAME.work holds
//
//	8 bytes   "gqwork1\n"
//	32 bytes  SHA-256 of the entry's name and key
//	8 bytes   length of the content, little-endian
//	          the content
//	32 bytes  SHA-256 of all that precedes
//
// and appears complete or not at all. Get gives a content only if the name, the key, the length and
// the checksum are right. An entry of another job, an entry under another entry's name and a damaged
// entry are all absent for it: the job makes them again.
//
// # Trees
//
// A tree is a directory of files under a name and a key, for content that others have to read as files
// (a folded checkpoint). An entry of the same name is written when the tree is complete. It lists the
// size and the SHA-256 of every file, and Tree reads all of them before it uses a tree again. Loose gives
// a directory without an entry, for files that the job checks itself.
package workdir
