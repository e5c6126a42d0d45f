package write

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/memlimit"
)

// Run is one writing of a job's output.
type Run struct {
	Job      *Job
	codes    *plan.Codes
	Target   Target
	size     int64         // of all files
	seconds  time.Duration // of wall time
	found    []ItemResult  // by the items' index; nil for an input of codes
	readBack *ReadBack     // of a .gguf file
	notes    []string      // more warnings
	Out      []io.WriterAt // the target's files
	// starts to bring written bytes to the disk; nil: not needed
	Writeback func(file int, off, n int64)
	Units     *Units
	Share     Share                  // of the units; all of them, but for a part
	Tally     *tally                 // nil for an input of codes
	Each      func(Result)           // gets the results of units in order; nil: nobody
	ahead     *safetensors.ReadAhead // nil if the checkpoint's files are local
	progress  func(n int64)          // called by the workers; nil: not needed
}

// NewRun prepares the writing of the output.
func (j *Job) NewRun(ctx context.Context, o Options) (*Run, error) {
	c := o.Codes
	if c == nil {
		c = &plan.Codes{}
	}
	if err := c.Check(j.Plan); err != nil {
		return nil, err
	}
	var hashes []string
	if j.Hash != nil {
		var err error
		if hashes, err = j.Hash(ctx, Part{0, 1}); err != nil {
			return nil, err
		}
	}
	return j.RunWith(c, hashes, o.Progress)
}

// RunWith prepares the writing of the output with the hashes of the source files, if they are
// wanted and known.
func (j *Job) RunWith(c *plan.Codes, hashes []string, progress func(n int64)) (r *Run, err error) {
	r = &Run{Job: j, codes: c, progress: progress}
	if r.Target, err = j.Out.Target(c, hashes, nil); err != nil {
		return nil, err
	}
	r.size, r.Units = total(r.Target), j.Units()
	r.Share = Share{0, r.Units.N}
	return r, nil
}

// Fill writes the whole output to r.out: the payloads, then their descriptions.
func (r *Run) Fill(ctx context.Context) error {
	if err := r.DoUnits(ctx); err != nil {
		return err
	}
	if r.Tally != nil {
		r.found = r.Tally.Items
	}
	if err := r.Target.Finish(r.Out, r.codes, r.found); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.Job.In.Unchanged()
}

// DoUnits does the units of the run's share.
func (r *Run) DoUnits(ctx context.Context) error {
	if r.Job.In.Facts().Weights {
		r.Tally = NewTally(r.Job, r.Units, r.Share.First)
		r.Tally.each = r.Each
	}
	if err := r.work(ctx); err != nil || r.Tally == nil {
		return err
	}
	return r.Tally.checkFinite(r.Job)
}

// work starts the workers, which do the units, and waits. It returns the error of the first failed
// unit in the file's order among those that were tried.
func (r *Run) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if r.Job.Ahead != nil {
		most, _ := r.Job.Streams()
		r.ahead = r.Job.Ahead(ctx, r.Share.End-r.Share.First, func(i int) Unit { return r.Units.At(r.Share.First + i) })
		defer r.ahead.Close()
		defer memlimit.Outside(most - safetensors.ReadAheadBytes)()
	}
	return cpu.Parallel(ctx, cpu.Threads(r.Job.Threads), r.Share.End-r.Share.First, func() func(i int) error {
		w := &Worker{Run: r, reader: r.Job.In.Reader(r.codes), copy: r.Target.Copier()}
		return func(i int) error {
			err := w.do(r.Share.First + i)
			if err != nil {
				stop() // the requests of the read ahead
			}
			return err
		}
	})
}

// Worker holds one goroutine's buffers, all reused.
type Worker struct {
	*Run
	Block  Block
	reader Reader
	sinks  []RowSink // of the block's item
	copy   func(w *Worker, it *plan.Unquantized, u Unit, r *Result) error
	piece  []byte // of an unquantized item
	values []float32
}

// unitsAhead is how far before a unit its bytes begin to come from disk. In a map, the system reads
// ahead by 128 KiB, and a goroutine that waits for a page computes nothing.
const unitsAhead = 16

func (w *Worker) do(i int) error {
	u, r := w.Units.At(i), &Result{}
	if w.Job.Need != nil && i+unitsAhead < w.Share.End {
		w.Job.Need(w.Units.At(i + unitsAhead))
	}
	if err := w.ahead.Wait(i - w.Share.First); err != nil {
		return err
	}
	if err := w.unit(u, r); err != nil {
		return err
	}
	w.ahead.Done(i - w.Share.First)
	if w.Job.Release != nil {
		w.Job.Release(u)
	}
	if w.Tally != nil {
		w.Tally.Add(i, *r)
	}
	if w.progress != nil {
		w.progress(u.ProgressBytes())
	}
	return nil
}

func (w *Worker) unit(u Unit, r *Result) error {
	var err error
	fault := w.Job.In.Guard(func() error {
		switch it := u.Item.(type) {
		case *plan.Unquantized:
			if err = w.copy(w, it, u, r); err == nil && w.Tally != nil {
				err = w.countNonFinite(it, u, r)
			}
		case *plan.Quantized:
			if u.Sum {
				err = w.reader.Sum(&it.Entry, u.First, u.Count, u, r)
			} else {
				err = w.blocks(it, u, r)
			}
		}
		return nil
	})
	if fault != nil {
		return fault
	}
	return err
}

// PieceBytes is how many bytes are read at a time where they are read once: a piece stays in a
// core's L2 cache.
const PieceBytes = 256 << 10

// countNonFinite counts the values of a unit that are NaN or infinite.
func (w *Worker) countNonFinite(it *plan.Unquantized, u Unit, r *Result) error {
	d := it.Src.Dtype
	if !d.IsFloat() {
		return nil
	}
	b, err := w.Job.In.Bytes(&it.Entry, offset(it, u), u.Count, &w.piece)
	if err != nil {
		return err
	}
	for x := range slices.Chunk(b, PieceBytes) {
		values := buffer.Grow(&w.values, len(x)*8/d.Bits())
		safetensors.Widen(values, x, d)
		for _, v := range values {
			if !floats.Finite(v) {
				r.nonFinite++
			}
		}
	}
	return nil
}

// offset is where the unit's bytes begin in the item.
func offset(it *plan.Unquantized, u Unit) int64 {
	return int64(u.Slice)*(it.Src.Size/int64(it.Slices)) + u.First
}

func (w *Worker) Codes() *plan.Codes { return w.codes }

// Sum sums the bytes of the source for a unit of an unquantized item that is stored with other
// bytes.
func (w *Worker) Sum(it *plan.Unquantized, u Unit, r *Result) error {
	return w.reader.Sum(&it.Entry, offset(it, u), u.Count, u, r)
}

// Bytes is a range of the bytes that the output has for an unquantized item: tuned bytes, or the
// input's. crc is the checksum of the input's bytes.
func (w *Worker) Bytes(e *plan.Entry, first, count int64, buf *[]byte) (b []byte, crc uint32, err error) {
	b, err = w.Job.In.Bytes(e, first, count, buf)
	if err != nil {
		return nil, 0, err
	}
	crc = crc32c.Checksum(b)
	if own := w.codes.Vector(e); own != nil {
		b = own[first:][:count]
	}
	return b, crc, nil
}

// SourceRows reads rows of an unquantized item of a model: tuned bytes, or the input's.
func SourceRows(from Model, c *plan.Codes, it *plan.Unquantized) (func(dst []float32, slice int, row, n int64), error) {
	own := c.Vector(&it.Entry)
	if own == nil {
		return from.Rows(it)
	}
	size := int64(it.Src.Dtype.Bits() / 8)
	return func(dst []float32, _ int, row, n int64) {
		safetensors.Widen(dst, own[row*size:(row+n)*size], it.Src.Dtype)
	}, nil
}

// blocks reads the codes of rows of one slice, packs them as the output stores them and writes them
// at their places.
func (w *Worker) blocks(it *plan.Quantized, u Unit, r *Result) (err error) {
	if w.Block.Item != it {
		w.Block.fit(w.Job, it)
		if w.sinks, err = w.Target.Sinks(w.sinks[:0], it); err != nil {
			return fmt.Errorf("tensor %q: %w", it.Name(), err)
		}
	}
	w.Block.Unit = u
	fill, end, err := w.reader.Begin(&w.Block, r)
	if err != nil {
		return err
	}
	rows := u.Rows(it)
	for _, s := range w.sinks {
		s.Begin(rows)
	}
	for first := int64(0); first < rows; first += BlockRows {
		n := min(BlockRows, rows-first)
		for i := range n {
			if err := fill(first+i, i); err != nil {
				return err
			}
		}
		for _, s := range w.sinks {
			if row, err := s.Pack(&w.Block, int(first), int(n)); err != nil {
				return w.Block.Fail(first+int64(row), err)
			}
		}
	}
	if end != nil {
		if err := end(); err != nil {
			return err
		}
	}
	for _, s := range w.sinks {
		if err := s.Write(w, u); err != nil {
			return err
		}
	}
	return nil
}

// writebackFrom is the size of a piece from which the system is asked to write it out at once. A
// page that holds smaller pieces would be written several times.
const writebackFrom = 1 << 14

// Write writes data to one of the job's files.
func (w *Worker) Write(file int, b []byte, off int64) error {
	if _, err := w.Out[file].WriteAt(b, off); err != nil {
		return err
	}
	if w.Writeback != nil && len(b) >= writebackFrom {
		w.Writeback(file, off, int64(len(b)))
	}
	return nil
}
