package gqf

import (
	"fmt"
	"io/fs"
	"strings"
)

// FormatError says that a file is not a valid .gqf file, and where.
type FormatError struct {
	File    string // path as given to Open; empty for OpenBytes
	Section string // "header", the name of a front section, "front gap", "data", or empty
	Offset  int64  // absolute byte offset of what is wrong
	Msg     string // what is wrong
	Err     error  // cause, or nil
}

// Error gives file, offset, section and message in one line.
func (e *FormatError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "byte %d", e.Offset)
	if e.Section != "" {
		fmt.Fprintf(&b, " (%s)", e.Section)
	}
	b.WriteString(": ")
	b.WriteString(e.Msg)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// ForeignError says that a file is not a .gqf file at all, by its first bytes.
type ForeignError struct {
	File   string // path as given to Open; empty for OpenBytes
	What   string // what it is, with an article: "a GGUF file"
	Advice string // what to do; may be empty
}

// Error says in one line what the file is and what to do.
func (e *ForeignError) Error() string {
	s := "this is " + e.What + ", not a .gqf file"
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	if e.File != "" {
		s = e.File + ": " + s
	}
	return s
}

// UnsupportedError says that a file may well be valid, but that this reader does
// not read it: it is of a newer version, or beyond a limit of [Options].
type UnsupportedError struct {
	File string // path as given to Open; empty for OpenBytes
	Msg  string // what is not supported and what to do
}

// Error gives file and message in one line.
func (e *UnsupportedError) Error() string {
	if e.File == "" {
		return e.Msg
	}
	return e.File + ": " + e.Msg
}

// NoAssetError reports that a file has no asset of a name; errors.Is finds fs.ErrNotExist.
type NoAssetError struct{ File, Asset string }

func (e *NoAssetError) Error() string {
	return fmt.Sprintf("%s: no asset %q in this file", e.File, e.Asset)
}

// Unwrap gives fs.ErrNotExist.
func (e *NoAssetError) Unwrap() error { return fs.ErrNotExist }
