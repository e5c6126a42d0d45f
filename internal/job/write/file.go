// Package write writes the output of a plan. A [Job] joins a plan, its [Input] and its [Output].
// Its workers take units of about 1 MiB in order: they read rows of the input, and put them through
// the output's sinks to their places. The output does not depend on the number of workers.
package write

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/quantizer"
)

// Write puts the output at path: a temporary file beside it is written, synced and renamed, so that
// path holds either what it held before or the complete new file. A cancelled context ends the job
// with ctx.Err().
func (j *Job) Write(ctx context.Context, path string) (*Report, error) {
	return j.WriteWith(ctx, path, Options{})
}

// WriteWith is Write with options.
func (j *Job) WriteWith(ctx context.Context, path string, o Options) (*Report, error) {
	out, r, err := j.WriteTemp(ctx, path, o)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	start := time.Now()
	if o.Written != nil {
		o.Written()
	}
	written := &Written{Path: path, Codes: r.codes, Temp: func(i int) string { return out.Files[i].Temp() }}
	if _, dir := r.Target.Shards(); dir { // another job may have finished there
		if err := atomicfile.CheckDir(path); err != nil {
			return nil, quantizer.Requestf("%w", err)
		}
	}
	if err := j.Out.Check(r.Target, written); err != nil {
		return nil, fmt.Errorf("%s was not written: read back, %w", path, err)
	}
	r.readBack, r.notes = written.ReadBack, written.Notes
	r.seconds += time.Since(start)
	if o.Check != nil {
		check := func(temp string) error { return o.Check(temp, r.report(path, r.seconds)) }
		if len(out.Files) == 1 {
			err = check(out.Files[0].Temp())
		} else { // shards have their names only when they appear
			err = j.WriteTemporary(ctx, path, Options{Codes: o.Codes, Progress: o.Progress}, check)
		}
		if err != nil {
			return nil, err
		}
	}
	start = time.Now().Add(-r.seconds)
	if err := out.Commit(); err != nil {
		return nil, err
	}
	return r.report(path, time.Since(start)), nil
}

// WriteTemporary writes the output, undivided, beside path, calls use with the name of the complete
// file, and removes it. For a checkpoint it is a .gqf file with the same codes. o.Check is not
// called.
func (j *Job) WriteTemporary(ctx context.Context, path string, o Options, use func(temp string) error) (err error) {
	whole := j
	if j.Whole != nil {
		if whole, path, err = j.Whole(path); err != nil {
			return err
		}
	}
	out, _, err := whole.WriteTemp(ctx, path, o)
	if err != nil {
		return err
	}
	defer out.Abort()
	return use(out.Files[0].Temp())
}

// WriteTemp writes the complete output to temporaries beside path. The caller commits or aborts
// them.
func (j *Job) WriteTemp(ctx context.Context, path string, o Options) (*temporaries, *Run, error) {
	start := time.Now()
	if err := j.CheckOutput(path); err != nil {
		return nil, nil, err
	}
	r, err := j.NewRun(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	_, dir := r.Target.Shards()
	out, err := createTemporaries(path, dir, r.Target.Files(path))
	if err != nil {
		return nil, nil, err
	}
	for _, f := range out.Files {
		r.Out = append(r.Out, f)
	}
	r.Writeback = func(file int, off, n int64) { out.Files[file].StartWriteback(off, n) }
	if err = r.Fill(ctx); err != nil {
		out.Abort()
		return nil, nil, err
	}
	r.seconds = time.Since(start)
	r.Units, r.Tally = nil, nil // the report of many tensors needs the room
	return out, r, nil
}

// CheckOutput refuses, before any work, a path that Write could not put the output at.
func (j *Job) CheckOutput(path string) error {
	paths, err := j.Out.Paths(path)
	if err != nil {
		return err
	}
	return j.CheckPlace(path, j.Out.Noun(), j.OutputBytes, paths...)
}

// CheckPlace checks that files of need bytes, which noun names, can be written at paths for an
// output at path.
func (j *Job) CheckPlace(path, noun string, need int64, paths ...string) error {
	if err := j.checkNames(noun, paths...); err != nil {
		return err
	}
	home := j.Out.Home(path)
	if fi, err := os.Stat(home); os.IsNotExist(err) {
		return fmt.Errorf("%s: the directory %s does not exist: make it, or choose another place with -o", path, home)
	} else if err == nil && !fi.IsDir() {
		return fmt.Errorf("%s: %s is not a directory: choose another place with -o", path, home)
	}
	for _, p := range paths {
		if _, err := os.Stat(filepath.Dir(p)); err != nil {
			continue // it will be made
		}
		if err := atomicfile.Check(p); err != nil {
			return err
		}
	}
	free, err := atomicfile.FreeSpace(home)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("%s: %s needs %d bytes, %s has %d free: free some space or choose another place with -o", path, noun, need, home, free)
	}
	return nil
}

// checkNames refuses an output that would overwrite the input.
func (j *Job) checkNames(noun string, paths ...string) error {
	set := j.In.Facts().Paths
	set.Output("output", noun, paths...)
	if err := set.Check(); err != nil {
		return quantizer.Requestf("%w", err)
	}
	return nil
}

// WriteTo writes the .gqf file to the sink that create returns for a file of size bytes, in which
// gaps are not written and read as zeros. name is the name of the file in the report. Data come in
// the order of the file but for the workers' differences; the front comes last.
func (j *Job) WriteTo(ctx context.Context, name string, o Options, create func(size int64, gaps iter.Seq2[int64, int64]) (Sink, error)) (*Report, error) {
	start := time.Now()
	if err := j.checkNames(j.Out.Noun(), name); err != nil {
		return nil, err
	}
	r, err := j.NewRun(ctx, o)
	if err != nil {
		return nil, err
	}
	t, ok := r.Target.(Streamed)
	if !ok {
		return nil, quantizer.Requestf("%s cannot be written to %s at once: write it to a file first", j.Out.Noun(), name)
	}
	sink, err := create(r.size, t.Gaps())
	if err != nil {
		return nil, err
	}
	defer sink.Abort()
	r.Out = []io.WriterAt{t.Stream(sink)}
	if err := r.Fill(ctx); err != nil {
		return nil, err
	}
	if err := sink.Commit(); err != nil {
		return nil, err
	}
	return r.report(name, time.Since(start)), nil
}

// temporaries are the files of a job until they appear at their paths. They lie in one directory.
type temporaries struct {
	Files []*atomicfile.File
	// the directory above the output, and the uppermost one that had to be made for it; "": none
	home, made string
	dir        *atomicfile.Dir // nil: the output is no directory
	done       bool
}

// createTemporaries creates the files of an output at path. isDir tells that the output is a
// directory.
func createTemporaries(path string, isDir bool, files []File) (list *temporaries, err error) {
	list = &temporaries{home: filepath.Dir(filepath.Clean(path))}
	defer func() {
		if err != nil {
			list.Abort()
		}
	}()
	if list.made, err = makeDir(list.home); err != nil {
		return list, err
	}
	create := atomicfile.Create
	if isDir {
		if list.dir, err = atomicfile.CreateDir(path); err != nil {
			return list, err
		}
		create = func(file string) (*atomicfile.File, error) {
			name, err := filepath.Rel(path, file)
			if err != nil {
				return nil, err
			}
			return list.dir.Create(name)
		}
	}
	for _, file := range files {
		f, err := create(file.Path)
		if err != nil {
			return list, err
		}
		list.Files = append(list.Files, f)
		if err := f.Truncate(file.Size); err != nil {
			return list, err
		}
	}
	return list, nil
}

// Abort removes the files that have not been committed, and directories that were made for them.
func (t *temporaries) Abort() {
	for _, f := range t.Files {
		f.Abort()
	}
	if t.done {
		return
	}
	if t.dir != nil {
		t.dir.Abort()
	}
	removeMade(t.home, t.made)
}

// Commit makes the files appear.
func (t *temporaries) Commit() error {
	err := atomicfile.CommitSet(t.Files)
	if err == nil && t.dir != nil {
		err = t.dir.Commit()
	}
	t.done = err == nil
	return err
}

// makeDir makes a directory, and returns the uppermost one that was missing; "" if there was none.
func makeDir(dir string) (made string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		made = d
	}
	return made, os.MkdirAll(dir, 0o777)
}

// removeMade removes the empty directories from dir up to made.
func removeMade(dir, made string) {
	if made == "" {
		return
	}
	for d := dir; os.Remove(d) == nil && d != made; d = filepath.Dir(d) {
	}
}
