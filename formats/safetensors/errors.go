package safetensors

import "fmt"

// A FormatError reports a file that breaks the rules of the format, or contradicts itself or
// another file of its checkpoint.
type FormatError struct {
	File   string // path of the file
	Offset int64  // of the error in the file
	Msg    string // the error
	Err    error  // the cause, or nil
}

func (e *FormatError) Error() string {
	s := fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *FormatError) Unwrap() error { return e.Err }

// An UnsupportedError reports a file that seems well formed but that this package cannot interpret.
type UnsupportedError struct {
	File   string // path of the file
	Offset int64  // of the feature in the file
	Tensor string // name of the tensor
	Msg    string // the unsupported feature
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: byte %d: tensor %s: %s", e.File, e.Offset, quote(e.Tensor), e.Msg)
}

// quote makes a string from a file fit for an error message: escaped, and shortened if very long (a
// header may hold a name of 100 MB).
func quote[S string | []byte](s S) string {
	const longest = 200
	if len(s) > longest {
		return fmt.Sprintf("%q... (%d bytes)", string(s[:longest]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}
