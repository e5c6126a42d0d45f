//go:build !linux

package main

import (
	"errors"
	"os"
)

func share(_, _ *os.File, _, _ int64) error { return errors.ErrUnsupported }
