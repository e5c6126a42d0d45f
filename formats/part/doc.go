// Package part reads and writes part files: the shares of a .gqf file that several workers make.
//
// A part file has a header, the data of its share, and a record (see [Record]) that says where the data
// belong in the .gqf file, which plan they are of, and what a merge needs beside them: checksums, sums
// of errors, and in part 0 everything that precedes the data region. With a shared file the data are
// at their places there, and the part file has none. docs/FORMAT.md specifies the bytes.
package part
