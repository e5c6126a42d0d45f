package gq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/quantizer"
)

// inJob finds the source of a task, plans the job and calls end.
func inJob[T any](ctx context.Context, src, dst string, t task, end func(r *run, j *job) (T, error)) (result T, err error) {
	r := newRun(ctx, t.o.Progress)
	defer func() { r.close() }()
	if err := t.complete(dst); err != nil {
		return result, err
	}
	download := remote.IsRemote(src) // mistakes are found before it
	if download {
		err = t.check(ctx)
	}
	in := &input{}
	if err == nil {
		in, err = r.findSource(&t, src)
	}
	if err == nil {
		err = t.checkPaths(in)
	}
	if err == nil && !download {
		err = t.check(ctx)
	}
	if err != nil {
		return result, err
	}
	if err := t.to.Open(ctx, !t.writes()); err != nil {
		return result, err
	}
	defer t.to.Close()
	err = func() error {
		if in.foreign != nil {
			if in, err = r.importSource(&t, in); err != nil {
				return err
			}
		}
		j, err := r.planSource(&t, src, in)
		if err != nil {
			return err
		}
		if err := r.openDirs(j); err != nil {
			return err
		}
		result, err = end(r, j)
		return err
	}()
	r.close()
	return result, r.cleanUp(&t, err)
}

// openDirs opens the working directories of the job's steps, from which an interrupted job resumes,
// and locks them for the whole job. A dry run needs a place for folded checkpoints only.
func (r *run) openDirs(j *job) error {
	if err := j.checkOutput(j.source.plan.Job, j.checked()); err != nil {
		return err
	}
	for _, s := range steps() {
		if len(s.keeps) == 0 || s.dir == calibSuffix && !j.writes() || (view{j, j.source}).times(s) == 0 {
			continue
		}
		if _, err := r.openDir(&j.task, s.dir); err != nil {
			return err
		}
	}
	r.work = r.dir(j, calibSuffix)
	return nil
}

// cleanUp ends the job with the error err. It removes the working directories if no work is left:
// the file is written, or does not meet its gate, or no file can meet the target. Otherwise it
// keeps finished work for the next job, and says where.
func (r *run) cleanUp(t *task, err error) error {
	_, unmet := errors.AsType[*GateNotMetError](err)
	_, missed := errors.AsType[*alloc.TargetError](err)
	done := err == nil || unmet || missed || !t.writes()
	var left []string
	for _, suffix := range []string{calibSuffix, importSuffix, foldSuffix} {
		switch d := r.dirs[suffix]; {
		case d == nil:
		case done || suffix == importSuffix && wrongOptions(err):
			err = join(err, d.Remove())
		default:
			size := d.Size()
			kept, e := d.Close()
			if err = join(err, e); kept {
				left = append(left, fmt.Sprintf("%s (%.1f MB)", d.Path(), float64(size)/1e6))
			}
		}
	}
	if len(left) == 0 {
		return err
	}
	hint := fmt.Sprintf("what is finished is in %s: the same command goes on from there, or one with another target", strings.Join(left, " and "))
	return &ResumeError{err, []string{hint}}
}

// wrongOptions reports whether a job failed because of what was asked for, so that the same command
// cannot go on.
func wrongOptions(err error) bool {
	_, option := errors.AsType[*OptionError](err)
	_, request := errors.AsType[*quantizer.RequestError](err)
	return option || request
}

func join(err, second error) error {
	if err != nil {
		return err
	}
	return second
}
