package gq

import (
	"context"
	"errors"

	"github.com/lowbit-go/gq/formats/gqf"
)

// VerifyOptions are the options of Verify. The zero value checks everything.
type VerifyOptions struct {
	// Fast only checks checksums. It skips the check that scales, sums and padding of every panel
	// agree. Default: false.
	Fast bool
	// Threads is how many workers run. Default (0): GOMAXPROCS.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Verify checks the structure, checksums and panels of a .gqf file. Damage is in the report, not in
// the error, even if the file cannot be read because of it.
func Verify(ctx context.Context, file string, o VerifyOptions) (*gqf.VerifyReport, error) {
	from, err := resolveSource(ctx, file, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	r, err := verify(ctx, from.Path, o)
	if damage, ok := errors.AsType[*gqf.FormatError](err); ok {
		r, err = damage.Report(), nil
	}
	if r != nil {
		r.File = from.Name
	}
	return r, err
}

func verify(ctx context.Context, file string, o VerifyOptions) (*gqf.VerifyReport, error) {
	f, err := gqf.Open(file, gqf.Options{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opts := gqf.VerifyOptions{Threads: o.Threads, Deep: !o.Fast}
	add, end := stages{to: o.Progress}.begin("verifying", "bytes", f.VerifyBytes(opts))
	defer end()
	opts.Progress = add
	return f.Verify(ctx, opts)
}
