package safetensors

import "fmt"

// A FormatError says that a file breaks the rules of the format, or contradicts
// itself or another file of its checkpoint.
type FormatError struct {
	File   string // path of the file
	Offset int64  // where in the file, in bytes from its start
	Msg    string // what is wrong there
	Err    error  // the cause, or nil
}

func (e *FormatError) Error() string {
	s := fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// An UnsupportedError says that a file is well formed as far as one can tell, but
// that this package does not know what it means.
type UnsupportedError struct {
	File   string // path of the file
	Offset int64  // where in the file, in bytes from its start
	Tensor string // name of the tensor concerned
	Msg    string // what is not supported
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: byte %d: tensor %s: %s", e.File, e.Offset, quote(e.Tensor), e.Msg)
}

// quote makes a string from a file fit for an error message: escaped, and cut when
// it is absurdly long (a header may hold a name of 100 MB).
func quote[S string | []byte](s S) string {
	const longest = 200
	if len(s) > longest {
		return fmt.Sprintf("%q... (%d bytes)", string(s[:longest]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}
