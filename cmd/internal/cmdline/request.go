package cmdline

import (
	"errors"

	"github.com/lowbit-go/gq/quantizer"
)

// Requested makes an error of the library that says that something impossible was
// asked for a *UsageError; others stay what they are.
func Requested(err error) error {
	if _, ok := errors.AsType[*quantizer.RequestError](err); ok {
		return &UsageError{Err: err}
	}
	return err
}
