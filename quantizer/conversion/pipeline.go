package conversion

import (
	"context"
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
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
)

// unitBytes is about how much of the checkpoint a worker takes at a time. Small
// enough that a unit's source and output stay in a core's L2 cache and that the
// last units end together, large enough that a unit's write is one cheap system call.
const unitBytes = 1 << 20

// blockRows is how many rows are quantized before they are packed: whole panels of
// every layout.
const blockRows = 8

// transposedRows is how many outputs are gathered at a time from a tensor stored
// in x out: 64 values of BF16 are 128 bytes, two cache lines of each input row.
const transposedRows = 64

// unit is the piece of work that one worker does at a time.
type unit struct {
	item  item
	sum   bool // only sum the bytes of a source that is stored transposed
	slice int
	first int64 // block of rows to quantize and pack; byte to copy or to sum
	count int64
}

// unitResult is what a unit found out; results are combined in the units' order,
// so that no figure depends on which worker was faster.
type unitResult struct {
	crc           uint32  // CRC32C of the source
	noise, signal float64 // of the quantized weights
	smallScales   int64   // groups, see worker.countGroups
	recovered     Recovered
}

// itemResult is what the units of an item found out together.
type itemResult = unitResult

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
	// Check is called, before the file appears at its path, with the path of a complete temporary file and with the report: if
	// it fails, the file is removed and its path holds what it held before. Default: none.
	Check func(temp string, r *Report) error
}

// WriteWith is Write with options.
func (p *Plan) WriteWith(ctx context.Context, path string, o WriteOptions) (*Report, error) {
	out, j, err := p.writeTemp(ctx, path, o.Codes)
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
	out, _, err := whole.writeTemp(ctx, path, c)
	if err != nil {
		return err
	}
	defer out.Abort()
	return use(out.files[0].Temp())
}

// writeTemp writes the complete file, or its shards, to temporaries beside path. The caller commits or aborts it.
func (p *Plan) writeTemp(ctx context.Context, path string, c *CalibratedCodes) (*temporaries, *job, error) {
	start := time.Now()
	if err := p.CheckOutput(path); err != nil {
		return nil, nil, err
	}
	j, err := p.newJob(ctx, c)
	if err != nil {
		return nil, nil, err
	}
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
	j.units, j.results = nil, nil // the report of many tensors needs the room
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
	j = &job{plan: p, calibrated: c}
	if j.target, err = p.out.target(c, hashes); err != nil {
		return nil, err
	}
	j.size, j.units = total(j.target), p.units()
	return j, nil
}

// CheckOutput refuses, before any work, a path that Write could not put the file at.
func (p *Plan) CheckOutput(path string) error {
	var set files.Set
	p.in.listFiles(&set)
	paths, err := p.out.paths(path)
	if err != nil {
		return err
	}
	set.Output("output", p.out.noun(), paths...)
	if err := set.Check(); err != nil {
		return quantizer.Requestf("%w", err)
	}
	dir := p.out.home(path)
	if fi, err := os.Stat(dir); os.IsNotExist(err) {
		return fmt.Errorf("%s: the directory %s does not exist: make it, or choose another place with -o", path, dir)
	} else if err == nil && !fi.IsDir() {
		return fmt.Errorf("%s: %s is not a directory: choose another place with -o", path, dir)
	}
	for _, p := range paths {
		if _, err := os.Stat(filepath.Dir(p)); err != nil {
			continue // it will be made
		}
		if err := atomicfile.Check(p); err != nil {
			return err
		}
	}
	free, err := atomicfile.FreeSpace(dir)
	if err != nil {
		return err
	}
	if need := p.OutputBytes; free < need {
		return fmt.Errorf("%s: %s needs %d bytes, %s has %d free: free some space or choose another place with -o", path, p.out.noun(), need, dir, free)
	}
	return nil
}

// units cuts the plan into pieces that depend on shapes only.
func (p *Plan) units() []unit {
	list := make([]unit, 0, len(p.items))
	for _, it := range p.items {
		list = it.addUnits(list, p)
	}
	return list
}

// cut appends units like u that cover total blocks or bytes in steps.
func cut(list []unit, u unit, total, step int64) []unit {
	for u.first = 0; u.first < total; u.first += step {
		u.count = min(step, total-u.first)
		list = append(list, u)
	}
	return list
}

// job is one writing of the file.
type job struct {
	plan       *Plan
	calibrated *CalibratedCodes
	target     target
	size       int64                        // of all files
	seconds    time.Duration                // of wall time
	found      []itemResult                 // by the items' index; none of a repack
	readBack   *ReadBack                    // of a .gguf file
	notes      []string                     // more warnings
	out        []io.WriterAt                // the target's files
	writeback  func(file int, off, n int64) // starts to bring written bytes to the disk; nil: not needed
	units      []unit
	results    []unitResult // none of a repack
	next       atomic.Int64
	mu         sync.Mutex
	failed     int // the first unit, in order, that failed
	err        error
}

// fill writes the whole file to j.out: the payloads, then what describes them.
func (j *job) fill(ctx context.Context) error {
	if err := j.run(ctx); err != nil {
		return err
	}
	j.combine()
	if err := j.target.finish(j); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.plan.in.unchanged()
}

// run starts the workers and waits. The error returned is that of the first
// failed unit in the file's order among those that were tried.
func (j *job) run(ctx context.Context) error {
	j.results = j.plan.in.results(len(j.units))
	j.failed = len(j.units)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for range cpu.Threads(j.plan.opts.Threads) {
		wg.Go(func() {
			w := worker{job: j}
			for ctx.Err() == nil {
				i := int(j.next.Add(1) - 1)
				if i >= len(j.units) {
					return
				}
				if err := w.do(i); err != nil {
					j.fail(i, err)
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

func (j *job) fail(i int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < j.failed {
		j.failed, j.err = i, err
	}
}

// combine joins the units' results: source checksums and error sums.
func (j *job) combine() {
	if j.results == nil {
		return
	}
	j.found = make([]itemResult, len(j.plan.items))
	for i, u := range j.units {
		r, sum := j.results[i], &j.found[u.item.common().index]
		if n := u.sourceBytes(); n > 0 {
			sum.crc = gqf.CombineCRC32C(sum.crc, r.crc, n)
		}
		sum.noise += r.noise
		sum.signal += r.signal
		sum.smallScales += r.smallScales
		sum.recovered.add(r.recovered)
	}
}

// sumTensor is the CRC32C of a small tensor's bytes.
func (j *job) sumTensor(t safetensors.Tensor) (crc uint32, err error) {
	view, err := j.plan.ck.Bytes(t)
	if err != nil {
		return 0, err
	}
	err = j.plan.ck.Guard(func() error { crc = crc32c.Checksum(view); return nil })
	return crc, err
}

// sourceBytes is how many bytes of the source the unit's checksum covers.
func (u unit) sourceBytes() int64 {
	q, ok := u.item.(*quantized)
	switch {
	case !ok || u.sum:
		return u.count
	case q.transposed:
		return 0
	}
	return u.rows(q) * q.rowBytes()
}

// rows is how many rows the unit's blocks of q have.
func (u unit) rows(q *quantized) int64 {
	return min(q.rows, (u.first+u.count)*blockRows) - u.first*blockRows
}
