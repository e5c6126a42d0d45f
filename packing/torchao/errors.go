package torchao

import "fmt"

// FormatError reports companions of an embedding whose size does not fit its shape, or that hold an
// invalid scale.
type FormatError struct {
	Offset int64 // of the wrong byte in the companion
	Msg    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("torchao: byte %d: %s", e.Offset, e.Msg)
}

// UnsupportedError reports a layout that is not TorchAO's, or a shape that this
// machine cannot address.
type UnsupportedError struct {
	Field string // "layout" or "rows"
	Msg   string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("torchao: unsupported %s: %s", e.Field, e.Msg)
}

func formatError(offset int64, format string, args ...any) error {
	return &FormatError{offset, fmt.Sprintf(format, args...)}
}
