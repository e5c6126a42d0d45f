// Package files opens the files that a user names and keeps a job's outputs away from its inputs.
//
// Open and Read take regular files only: a named pipe or a device may never end, and opening may
// wait forever. Read has a limit and ends with its context. ReadStream is for standard input, where
// an option says "-".
//
// A Set holds the paths of a job, and refuses an output that is an input, or another output, by any
// name: through symbolic links, hard links, and names that differ by case.
//
// Recognize names a file's kind by its first bytes, so that an error can state the given kind as
// well as the expected kind.
package files
