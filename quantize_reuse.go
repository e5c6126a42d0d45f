package gq

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// checkReuse refuses jobs that copy nothing from an older file, and a file that cannot be opened,
// before any work.
func (j *quantizeJob) checkReuse() error {
	switch {
	case j.o.Reuse == "":
		return nil
	case j.dry:
		return optionf("reuse", "a plan copies nothing from %s: leave it out", remote.Redact(j.o.Reuse))
	case j.o.Format != FormatGQF:
		return optionf("reuse", "tensors are copied into a .gqf file, not into %s", j.o.Format.noun())
	case j.o.Recipe.Tunes():
		return optionf("reuse", "goes without tuning, which changes every tensor")
	}
	if remote.IsRemote(j.o.Reuse) {
		return nil // findReuse copies it
	}
	f, err := gqf.Open(j.o.Reuse, gqf.Options{})
	if err != nil {
		return err
	}
	f.Close()
	return nil
}

// findReuse copies an older file that a remote name leads to into the cache: it is read more than once.
func (j *quantizeJob) findReuse() error {
	if j.o.Reuse == "" {
		return nil
	}
	from, err := j.hold(resolveFile(j.ctx, j.o.Reuse, true, j.stages))
	if err != nil {
		return err
	}
	j.o.Reuse, j.reuseName = from.Path, from.Name
	return nil
}

// openOlder opens the older file for calibration and for the tensors that are copied. closeOlder must be
// called when the new file is written.
func (j *quantizeJob) openOlder() (closeOlder func(), err error) {
	if j.o.Reuse == "" {
		return func() {}, nil
	}
	f, err := gqf.Open(j.o.Reuse, gqf.Options{})
	if err != nil {
		return nil, err
	}
	j.older = &conversion.Older{File: f, Name: j.reuseName, Begin: func(bytes int64) (add func(n int64), end func()) {
		return j.begin(stageReuse, "bytes", bytes)
	}}
	return func() { f.Close() }, nil
}

// reuse finds the tensors that are copied from the older file.
func (j *quantizeJob) reuse() (*conversion.Reuse, error) {
	if j.older == nil {
		return nil, nil
	}
	return j.plan.Reuse(j.ctx, j.older.File, j.older.Name, j.olderLayers, j.older.Begin)
}
