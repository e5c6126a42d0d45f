package gqf

import (
	"fmt"
	"io/fs"
	"strings"
)

// FormatError reports where and why a file is not a valid .gqf file.
type FormatError struct {
	File    string // path as given to Open; empty for OpenBytes
	Section string // "header", the name of a front section, "front gap", "data", or empty
	Offset  int64  // byte offset of the error in the file
	Msg     string // describes the defect
	Err     error  // cause, or nil
}

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

func (e *FormatError) Unwrap() error { return e.Err }

// ForeignError reports a file that does not begin like a .gqf file.
type ForeignError struct {
	File   string // path as given to Open; empty for OpenBytes
	What   string // the kind of file, with an article: "a GGUF file"
	Advice string // how to proceed; may be empty
}

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

// UnsupportedError reports a file that may be valid, but that this reader does not read: the file
// has a newer version or exceeds a limit of [Options].
type UnsupportedError struct {
	File string // path as given to Open; empty for OpenBytes
	Msg  string // the unsupported feature and how to proceed
}

func (e *UnsupportedError) Error() string {
	if e.File == "" {
		return e.Msg
	}
	return e.File + ": " + e.Msg
}

// noAssetError reports that a file has no asset of this name; errors.Is finds fs.ErrNotExist.
type noAssetError struct{ File, Asset string }

func (e *noAssetError) Error() string {
	return fmt.Sprintf("%s: no asset %q in this file", e.File, e.Asset)
}

func (e *noAssetError) Unwrap() error { return fs.ErrNotExist }
