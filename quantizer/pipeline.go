package quantizer

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// unitBytes is about how much of the checkpoint a worker takes at a time. Small
// enough that a unit's source and output stay in a core's L2 cache and that the
// last units end together, large enough that a unit's write is one cheap system call.
const unitBytes = 1 << 20

// transposedRows is how many outputs are gathered at a time from a tensor stored
// in x out: 64 values of BF16 are 128 bytes, two cache lines of each input row.
const transposedRows = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// unit is the piece of work that one worker does at a time.
type unit struct {
	item  *item
	kind  unitKind
	slice int
	first int64 // panel, or byte of the source
	count int64
}

type unitKind uint8

const (
	unitPanels unitKind = iota // quantize and pack panels first .. first+count of a slice
	unitCopy                   // copy bytes of a kept tensor
	unitSum                    // only sum source bytes: a second name, or a tensor stored transposed
)

// unitResult is what a unit found out; results are combined in the units' order,
// so that no figure depends on which worker was faster.
type unitResult struct {
	crc           uint32
	noise, signal float64
}

// Write runs the plan and puts the file at path: a temporary file beside it is
// written, synced and renamed, so that path holds either what it held before or
// the complete new file. A cancelled context ends the job with ctx.Err().
func (p *Plan) Write(ctx context.Context, path string) (*Report, error) {
	start := time.Now()
	if p.image == nil { // a job before this one has used it
		if err := p.build(); err != nil {
			return nil, err
		}
	}
	if err := p.checkOutput(path); err != nil {
		return nil, err
	}
	out, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	defer out.Abort()
	if err := out.Truncate(p.image.Size()); err != nil {
		return nil, err
	}
	if p.opts.HashFiles {
		if err := p.recordHashes(ctx); err != nil {
			return nil, err
		}
	}
	j := &job{plan: p, image: p.image, out: out, writeback: out.StartWriteback, units: p.units()}
	p.image = nil
	if err := j.fill(ctx); err != nil {
		return nil, err
	}
	work := time.Since(start)
	if err := out.Commit(); err != nil {
		return nil, err
	}
	return p.report(path, work, time.Since(start)), nil
}

// checkOutput refuses, before any work, what could not end well.
func (p *Plan) checkOutput(path string) error {
	if fi, err := os.Stat(path); err == nil {
		for _, f := range p.ck.Files() {
			if in, err := os.Stat(filepath.Join(p.ck.Dir(), f.Name)); err == nil && os.SameFile(fi, in) {
				return requestf("%s is an input of this job: choose another output with -o", path)
			}
		}
	}
	dir := filepath.Dir(path)
	if fi, err := os.Stat(dir); os.IsNotExist(err) {
		return fmt.Errorf("%s: the directory %s does not exist: make it, or choose another place with -o", path, dir)
	} else if err == nil && !fi.IsDir() {
		return fmt.Errorf("%s: %s is not a directory: choose another place with -o", path, dir)
	}
	free, err := atomicfile.FreeSpace(dir)
	if err != nil {
		return err
	}
	if need := p.image.Size(); free < need {
		return fmt.Errorf("%s: the file needs %d bytes, %s has %d free: free some space or choose another place with -o", path, need, dir, free)
	}
	return nil
}

// units cuts the plan into pieces that depend on shapes only.
func (p *Plan) units() []unit {
	var us []unit
	cut := func(it *item, kind unitKind, slice int, total, step int64) {
		for first := int64(0); first < total; first += step {
			us = append(us, unit{it, kind, slice, first, min(step, total-first)})
		}
	}
	for _, it := range p.items {
		if !it.quantize {
			cut(it, unitCopy, 0, it.src.Size, unitBytes)
			continue
		}
		nr := int64(it.header.Tile.NR)
		panels := (it.rows + nr - 1) / nr
		step := max(1, unitBytes*int64(it.slices)*it.rows/(it.src.Size*nr))
		if it.transposed {
			step = transposedRows / nr
		}
		for s := range it.slices {
			cut(it, unitPanels, s, panels, step)
		}
		if it.transposed {
			cut(it, unitSum, 0, it.src.Size, unitBytes)
		}
	}
	return us
}

// job is one writing of the file.
type job struct {
	plan      *Plan
	image     *gqf.Image
	out       io.WriterAt
	writeback func(off, n int64) // starts to bring written bytes to the disk; nil: not needed
	units     []unit
	results   []unitResult
	next      atomic.Int64
	mu        sync.Mutex
	failed    int // the first unit, in order, that failed
	err       error
}

// fill writes the whole file to j.out: the payloads, then what describes them.
func (j *job) fill(ctx context.Context) error {
	if err := j.run(ctx); err != nil {
		return err
	}
	if err := j.combine(); err != nil {
		return err
	}
	if err := j.image.WritePayloadHeaders(j.out); err != nil {
		return err
	}
	if err := j.image.WriteFront(j.out); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.plan.ck.Unchanged()
}

// run starts the workers and waits. The error returned is that of the first
// failed unit in the file's order among those that were tried.
func (j *job) run(ctx context.Context) error {
	j.results = make([]unitResult, len(j.units))
	j.failed = len(j.units)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for range j.plan.opts.threads() {
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
func (j *job) combine() error {
	p := j.plan
	for _, it := range p.items {
		it.crc, it.noise, it.signal = 0, 0, 0
	}
	for i, u := range j.units {
		r := j.results[i]
		if n := u.sourceBytes(); n > 0 {
			u.item.crc = gqf.CombineCRC32C(u.item.crc, r.crc, n)
		}
		u.item.noise += r.noise
		u.item.signal += r.signal
	}
	for _, it := range p.items {
		j.image.SetSourceCRC(it.name, it.crc)
		for _, n := range it.aliases {
			switch {
			case n.folded:
				crc, err := j.sumTensor(n.src)
				if err != nil {
					return err
				}
				j.image.SetSourceCRC(n.index, crc)
			case !n.absent: // a second name is there only with the same content, so with the same sum
				j.image.SetSourceCRC(n.index, it.crc)
			}
		}
	}
	return nil
}

// sumTensor is the CRC32C of a small tensor's bytes.
func (j *job) sumTensor(t safetensors.Tensor) (crc uint32, err error) {
	view, err := j.plan.ck.Bytes(t)
	if err != nil {
		return 0, err
	}
	err = j.plan.ck.Guard(func() error { crc = crc32.Checksum(view, castagnoli); return nil })
	return crc, err
}

// sourceBytes is how many bytes of the source the unit's checksum covers.
func (u unit) sourceBytes() int64 {
	it := u.item
	switch {
	case u.kind != unitPanels:
		return u.count
	case it.transposed:
		return 0
	}
	nr := int64(it.header.Tile.NR)
	rows := min(it.rows, (u.first+u.count)*nr) - u.first*nr
	return rows * it.rowBytes()
}

// rowBytes is the size of one row of a slice in the checkpoint.
func (it *item) rowBytes() int64 { return it.src.Size / (int64(it.slices) * it.rows) }

// worker holds one goroutine's buffers, all reused.
type worker struct {
	*job
	item  *item // that the buffers fit
	rq    *RowQuantizer
	lb    *packing.Lowbit
	x     []float32
	block []float32 // transposed: gathered rows
	panel packing.Panel
	bias  []float32
	out   []byte
	acc   vec.ErrorSum
}

func (w *worker) do(i int) error {
	u := w.units[i]
	var err error
	fault := w.plan.ck.Guard(func() error {
		switch u.kind {
		case unitPanels:
			err = w.panels(u, &w.results[i])
		case unitCopy:
			err = w.copy(u, &w.results[i])
		default:
			err = w.sum(u, &w.results[i])
		}
		return nil
	})
	if fault != nil {
		return fault
	}
	if err != nil {
		return err
	}
	if w.plan.opts.Progress != nil {
		n := u.sourceBytes()
		if u.kind == unitPanels && u.item.transposed {
			n = u.count * int64(u.item.header.Tile.NR) * u.item.rowBytes()
		} else if u.kind == unitSum {
			n = 0
		}
		w.plan.opts.Progress(n)
	}
	return nil
}

func (w *worker) copy(u unit, r *unitResult) error {
	view, err := w.plan.ck.Bytes(*u.item.src)
	if err != nil {
		return err
	}
	b := view[u.first : u.first+u.count]
	r.crc = crc32.Checksum(b, castagnoli)
	return w.write(b, w.dataOffset(u.item, 0)+u.first)
}

func (w *worker) sum(u unit, r *unitResult) error {
	view, err := w.plan.ck.Bytes(*u.item.src)
	if err != nil {
		return err
	}
	r.crc = crc32.Checksum(view[u.first:u.first+u.count], castagnoli)
	return nil
}

// panels quantizes and packs rows of one slice and writes them at their place.
func (w *worker) panels(u unit, r *unitResult) error {
	it := u.item
	if err := w.fit(it); err != nil {
		return err
	}
	nr := int64(it.header.Tile.NR)
	row0 := u.first * nr
	rows := min(it.rows-row0, u.count*nr)
	src, err := w.rows(it, u.slice, row0, rows, r)
	if err != nil {
		return err
	}
	if err := w.readBias(it, int64(u.slice)*it.rows+row0, rows); err != nil {
		return err
	}
	w.acc = vec.ErrorSum{}
	size := int64(w.lb.PanelBytes())
	out := grow(&w.out, int(u.count*size))
	for p := range u.count {
		w.panel.Rows = int(min(nr, rows-p*nr))
		if it.bias != nil {
			w.panel.Bias = w.bias[p*nr : (p+1)*nr]
		}
		for i := range int64(w.panel.Rows) {
			if err := w.row(it, u.slice, row0, p*nr+i, i, src); err != nil {
				return err
			}
		}
		w.lb.PackPanel(out[p*size:(p+1)*size], &w.panel)
	}
	r.noise, r.signal = w.acc.Total()
	return w.write(out, w.dataOffset(it, u.slice)+u.first*size)
}

// row quantizes row n of the unit into row i of the panel.
func (w *worker) row(it *item, slice int, row0, n, i int64, src rowReader) error {
	x := src(w.x, n)
	k32, g := int64(w.lb.PackedCols()), int64(w.lb.Groups())
	var zeros []int8
	if w.panel.Zeros != nil {
		zeros = w.panel.Zeros[i*g : (i+1)*g]
	}
	err := w.rq.Quantize(w.panel.Codes[i*k32:i*k32+it.cols], w.panel.Scales[i*g:(i+1)*g], zeros, x, &w.acc)
	if err != nil {
		return w.rowError(it, slice, row0+n, err)
	}
	return nil
}

// rowError puts tensor and row to an error of the row quantizer.
func (w *worker) rowError(it *item, slice int, row int64, err error) error {
	e := &TensorError{File: w.plan.ck.Files()[it.src.File].Name, Tensor: it.src.Name, Slice: -1, Row: row, Err: err}
	if it.slices > 1 {
		e.Slice = slice
	}
	return e
}

// fit makes the buffers fit the item.
func (w *worker) fit(it *item) error {
	if w.item == it {
		return nil
	}
	var err error
	if w.rq, err = NewRowQuantizer(it.scheme, int(it.cols)); err != nil {
		return fmt.Errorf("tensor %q: %w", it.src.Name, err)
	}
	if w.lb, err = packing.NewLowbit(it.header); err != nil {
		return fmt.Errorf("tensor %q: %w", it.src.Name, err)
	}
	nr := int(it.header.Tile.NR)
	grow(&w.x, int(it.cols))
	clear(grow(&w.panel.Codes, nr*w.lb.PackedCols())) // the padding past K stays 0
	grow(&w.panel.Scales, nr*w.lb.Groups())
	if it.header.ZeroKind == packing.ZeroInt8 {
		grow(&w.panel.Zeros, nr*w.lb.Groups())
	} else {
		w.panel.Zeros = nil
	}
	w.panel.Bias = nil
	w.item = it
	return nil
}

// grow makes *s n long, reusing its memory where it is large enough.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

func (w *worker) dataOffset(it *item, slice int) int64 {
	return w.image.PayloadOffset(it.payload+slice) + packing.HeaderSize
}

func (w *worker) write(b []byte, off int64) error {
	w.image.AddData(off, b)
	if _, err := w.job.out.WriteAt(b, off); err != nil {
		return err
	}
	if w.writeback != nil {
		w.writeback(off, int64(len(b)))
	}
	return nil
}
