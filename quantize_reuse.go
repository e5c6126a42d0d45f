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
	from, err := resolveFile(j.ctx, j.o.Reuse, true, j.stages)
	if err != nil {
		return err
	}
	j.o.Reuse, j.reuseName = from.Path, from.Name
	return nil
}

// reuse finds the tensors that are copied from the older file. The caller closes it when the new file is
// written.
func (j *quantizeJob) reuse() (*conversion.Reuse, func(), error) {
	if j.o.Reuse == "" {
		return nil, func() {}, nil
	}
	f, err := gqf.Open(j.o.Reuse, gqf.Options{})
	if err != nil {
		return nil, nil, err
	}
	r, err := j.plan.Reuse(j.ctx, f, j.reuseName, func(bytes int64) (add func(n int64), end func()) {
		return j.begin(stageReuse, "bytes", bytes)
	})
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return r, func() { f.Close() }, nil
}
