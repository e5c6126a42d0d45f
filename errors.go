package gq

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/quantizer"
)

// OptionError says that the value of an option cannot be used, alone or with other options.
type OptionError struct {
	// Option is the option's name as the command line and recipes spell it: "calibrate-tokens". ""
	// if the error is not about a single option.
	Option string
	Err    error
}

func (e *OptionError) Error() string {
	if e.Option == "" {
		return e.Err.Error()
	}
	return e.Option + " " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *OptionError) Unwrap() error { return e.Err }

// checkSettings refuses settings of a recipe that do not go with the job, see Recipe.Check.
func checkSettings(r quantizer.Recipe, has map[string]bool) error {
	if name, err := r.Check(has); err != nil {
		return &OptionError{name, err}
	}
	return nil
}

func optionf(option, format string, args ...any) error {
	return &OptionError{option, fmt.Errorf(format, args...)}
}

// GateNotMetError says that a file was measured and does not meet its gate.
type GateNotMetError struct {
	Gate     string
	Failures []accuracy.Failure
	// Try lists what may make a file that meets the gate, the best first.
	Try []accuracy.Try
	// Output is the path of the file, "" if there is none. Kept reports whether it was written
	// although it does not meet the gate.
	Output string
	Kept   bool
	// Unmet lists the recipes of a sweep with files that do not meet the gate, and Of counts all
	// recipes. Gate and Failures are of the first file. nil: not of a sweep.
	Unmet []string
	Of    int
}

func (e *GateNotMetError) Error() string {
	if e.Unmet != nil {
		return fmt.Sprintf("gate %s is not met by %d of %d files: %s", e.Gate, len(e.Unmet), e.Of, strings.Join(e.Unmet, ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "gate %s is not met: %s", e.Gate, e.Failures[0])
	if n := len(e.Failures); n > 1 {
		fmt.Fprintf(&b, " (and %d more)", n-1)
	}
	switch {
	case e.Output != "" && e.Kept:
		fmt.Fprintf(&b, "; %s was written all the same", e.Output)
	case e.Output != "":
		fmt.Fprintf(&b, "; %s was not written", e.Output)
	}
	if len(e.Try) > 0 {
		fmt.Fprintf(&b, "; try to quantize with %s", e.Try[0].Flags)
	}
	return b.String()
}

// ResumeError says that a job ended before its file was complete. The same call resumes from its
// finished work.
type ResumeError struct {
	Err error
	// Hints say, each in a line, where the finished work is and which calls resume from it.
	Hints []string
}

func (e *ResumeError) Error() string {
	return strings.Join(append([]string{e.Err.Error()}, e.Hints...), "; ")
}

// Unwrap returns e.Err.
func (e *ResumeError) Unwrap() error { return e.Err }
