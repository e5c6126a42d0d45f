package conversion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/quantizer"
)

// Write runs the plan and puts the file at path: a temporary file beside it is
// written, synced and renamed, so that path holds either what it held before or
// the complete new file. A cancelled context ends the job with ctx.Err().
func (p *Plan) Write(ctx context.Context, path string) (*Report, error) {
	return p.WriteWith(ctx, path, WriteOptions{})
}

// WriteOptions are the options of a job beside its plan.
type WriteOptions struct {
	// Codes were chosen elsewhere. Default: none; all are chosen while the file is written.
	Codes *CalibratedCodes
	// Reuse names tensors that are copied from an older file. Default: none.
	Reuse *Reuse
	// Check is called, before the file appears at its path, with the path of a complete temporary file and with the report: if
	// it fails, the file is removed and its path holds what it held before. Default: none.
	Check func(temp string, r *Report) error
}

// WriteWith is Write with options.
func (p *Plan) WriteWith(ctx context.Context, path string, o WriteOptions) (*Report, error) {
	out, j, err := p.writeTemp(ctx, path, o.Codes, o.Reuse)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	if err := p.out.check(j, out, path); err != nil {
		return nil, err
	}
	if o.Check != nil {
		check := func(temp string) error { return o.Check(temp, j.report(path, j.seconds)) }
		if len(out.files) == 1 {
			err = check(out.files[0].Temp())
		} else { // shards have their names only when they appear
			err = p.WriteTemporary(ctx, path, o.Codes, check)
		}
		if err != nil {
			return nil, err
		}
	}
	start := time.Now().Add(-j.seconds)
	if err := out.Commit(); err != nil {
		return nil, err
	}
	return j.report(path, time.Since(start)), nil
}

// WriteTemporary writes the file, undivided, beside path, calls use with the name of the complete file, and removes it. For a
// checkpoint it is a .gqf file with the same codes. c is as WriteOptions.Codes.
func (p *Plan) WriteTemporary(ctx context.Context, path string, c *CalibratedCodes, use func(temp string) error) error {
	whole := *p
	switch o := p.out.(type) {
	case *ggufOutput:
		one := *o
		one.opts.Split = 0
		whole.out = &one
	case *checkpointOutput:
		opts := p.opts
		opts.Checkpoint = nil
		one, err := NewPlan(p.ck, p.config, opts)
		if err != nil {
			return err
		}
		whole, path = *one, filepath.Clean(path)+".gqf" // which may end in a separator
	}
	out, _, err := whole.writeTemp(ctx, path, c, nil)
	if err != nil {
		return err
	}
	defer out.Abort()
	return use(out.files[0].Temp())
}

// writeTemp writes the complete file, or its shards, to temporaries beside path. The caller commits or aborts it.
func (p *Plan) writeTemp(ctx context.Context, path string, c *CalibratedCodes, reuse *Reuse) (*temporaries, *job, error) {
	start := time.Now()
	if err := p.CheckOutput(path); err != nil {
		return nil, nil, err
	}
	j, err := p.newJob(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	j.reuse = reuse
	out, err := createTemporaries(j.target, path)
	if err != nil {
		return nil, nil, err
	}
	j.out, j.writeback = out.writers(), out.startWriteback
	if err = j.fill(ctx); err != nil {
		out.Abort()
		return nil, nil, err
	}
	j.seconds = time.Since(start)
	j.units, j.tally = nil, nil // the report of many tensors needs the room
	return out, j, nil
}

// newJob prepares the writing of the file.
func (p *Plan) newJob(ctx context.Context, c *CalibratedCodes) (j *job, err error) {
	if c == nil {
		c = &CalibratedCodes{}
	}
	if err := c.check(p); err != nil {
		return nil, err
	}
	var hashes []string
	if p.opts.Recipe.HashFiles {
		if hashes, err = p.hashFiles(ctx); err != nil {
			return nil, err
		}
	}
	return p.jobWith(c, hashes)
}

// jobWith prepares the writing of the file with the hashes of the source files, if they are wanted and
// known.
func (p *Plan) jobWith(c *CalibratedCodes, hashes []string) (j *job, err error) {
	j = &job{plan: p, calibrated: c}
	if j.target, err = p.out.target(c, hashes); err != nil {
		return nil, err
	}
	j.size, j.units = total(j.target), p.units()
	j.share = share{0, j.units.n}
	return j, nil
}

// CheckOutput refuses, before any work, a path that Write could not put the file at.
func (p *Plan) CheckOutput(path string) error {
	paths, err := p.out.paths(path)
	if err != nil {
		return err
	}
	return p.checkPlace(path, p.out.noun(), p.out.home(path), p.OutputBytes, paths...)
}

// checkPlace checks that files of need bytes, which noun names, can be written at paths for an output
// at path. home is the directory that must exist.
func (p *Plan) checkPlace(path, noun, home string, need int64, paths ...string) error {
	var set files.Set
	p.in.listFiles(&set)
	set.Output("output", noun, paths...)
	if err := set.Check(); err != nil {
		return quantizer.Requestf("%w", err)
	}
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

// job is one writing of the file.
type job struct {
	plan       *Plan
	calibrated *CalibratedCodes
	reuse      *Reuse // nil: no tensor is copied from an older file
	copier     *gqf.Copier
	target     target
	size       int64                        // of all files
	seconds    time.Duration                // of wall time
	found      []itemResult                 // by the items' index; nil for a repack
	readBack   *ReadBack                    // of a .gguf file
	notes      []string                     // more warnings
	out        []io.WriterAt                // the target's files
	writeback  func(file int, off, n int64) // starts to bring written bytes to the disk; nil: not needed
	units      *unitList
	share      share                      // of the units; all of them, but for a part
	tally      *tally                     // nil for a repack
	each       func(unitResult)           // gets the results of units in order; nil: nobody
	ahead      *safetensors.ReadAhead     // nil if the checkpoint's files are local
	done       func(u unit, r unitResult) // called by the workers; nil: not needed
	next       atomic.Int64
	mu         sync.Mutex
	failed     int // the first unit, in order, that failed
	err        error
}

// fill writes the whole file to j.out: the payloads, then their descriptions.
func (j *job) fill(ctx context.Context) error {
	j.copier = j.reuse.copier()
	if err := j.run(ctx); err != nil {
		return err
	}
	if j.copier != nil {
		if err := j.copier.Check(); err != nil {
			return err
		}
	}
	if j.tally != nil {
		j.found = j.tally.items
		j.reuse.found(j.found)
	}
	if err := j.target.finish(j); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.plan.in.unchanged()
}

// run does the units of the job's share.
func (j *job) run(ctx context.Context) error {
	if j.plan.in.measured() {
		j.tally = newTally(j.plan, j.units, j.share.first)
		j.tally.each = j.each
	}
	return j.work(ctx)
}

// work starts the workers, which do the units, and waits. It returns the error of the first failed
// unit in the file's order among those that were tried.
func (j *job) work(ctx context.Context) error {
	j.failed = j.share.end
	j.next.Store(int64(j.share.first))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if j.ahead = j.readAhead(ctx); j.ahead != nil {
		defer j.ahead.Close()
		most, _ := j.plan.Streams()
		defer memlimit.Outside(most - safetensors.ReadAheadBytes)()
	}
	var wg sync.WaitGroup
	for range cpu.Threads(j.plan.opts.Threads) {
		wg.Go(func() {
			w := &worker{job: j}
			for ctx.Err() == nil {
				i := int(j.next.Add(1) - 1)
				if i >= j.share.end {
					return
				}
				if err := w.do(i); err != nil {
					j.fail(ctx, i, err)
					stop()
					return
				}
			}
		})
	}
	wg.Wait()
	if j.err != nil {
		return j.err
	}
	return ctx.Err()
}

// fail notes why unit i failed, unless the job has ended for another reason: requests fail then.
func (j *job) fail(ctx context.Context, i int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < j.failed && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
		j.failed, j.err = i, err
	}
}
