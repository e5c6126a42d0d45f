package torchao

import "fmt"

// FormatError reports bytes that are not what TorchAO packs for the shape that
// was asked for.
type FormatError struct {
	Offset int64 // of the wrong byte in the buffer
	Msg    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("torchao: byte %d: %s", e.Offset, e.Msg)
}

// UnsupportedError reports a well-formed header of a type, version or tile that
// TorchAO did not have when this package was written, or a shape that its
// types cannot express.
type UnsupportedError struct {
	Field string // "type", "tile", "group", ...
	Msg   string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("torchao: unsupported %s: %s", e.Field, e.Msg)
}

// InputError reports a shape or weights that a layout cannot hold.
type InputError struct {
	Field string // "codes", "scales", "cols", ...
	Index int    // of the wrong value in a slice of that name, else -1
	Msg   string
}

func (e *InputError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("torchao: %s: %s", e.Field, e.Msg)
	}
	return fmt.Sprintf("torchao: %s[%d]: %s", e.Field, e.Index, e.Msg)
}

func formatError(offset int64, format string, args ...any) error {
	return &FormatError{offset, fmt.Sprintf(format, args...)}
}

func inputError(field string, index int, format string, args ...any) error {
	return &InputError{field, index, fmt.Sprintf(format, args...)}
}
