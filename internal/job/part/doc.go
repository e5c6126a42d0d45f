// Package part reads and writes part files: the shares of a .gqf file that several workers make.
//
// A part file has a header, the data of its share, and a record. The record (see [Record]) says
// where the data belong in the .gqf file, and what a merge needs: checksums, sums of errors, and in
// part 0 everything that precedes the data region. encode.go has the order of all fields. Only
// the version of gq that made a part reads the file.
package part
