// Package location finds the sources of jobs and puts their outputs in place: paths on this
// machine, repositories of the Hugging Face Hub, web servers and object stores.
//
// A job names a [Source] and, if it writes something, a [Destination]. A remote source has its
// small files in a cache on this machine. Its weights are there too, or the job streams them. An
// output for an object store goes there while it is made, or from a file on this machine.
package location

import "fmt"

// Told is told of downloads, uploads and of what a job waits for.
type Told struct {
	// Begin begins a stage of so many units. add is called with units that were done, end at the end.
	Begin func(name, unit string, total int64) (add func(n int64), end func())
	// Log receives a line of text.
	Log func(format string, args ...any)
}

// OptionError says that the value of an option cannot be used. Option is "" for a name of a model.
type OptionError struct {
	Option string
	Err    error
}

func (e *OptionError) Error() string { return e.Err.Error() }

func optionf(option, format string, args ...any) error {
	return &OptionError{option, fmt.Errorf(format, args...)}
}
