package accuracy

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// entry is a payload to compare.
type entry struct {
	stats   TensorStats
	tensor  gqf.Tensor
	payload gqf.Payload
	source  source
	tuned   bool  // a norm of a file whose norms were tuned
	step    int64 // rows of a block
	blocks  int
	every   float64 // outputs are computed for one block in every; 0: for none

	once   sync.Once // prepares the fields that follow
	err    error
	rows   *gqf.Rows // nil if unquantized
	data   []byte
	inputs inputs

	mu      sync.Mutex
	pending map[int]*part // by block: results that came before their turn
	merged  int           // blocks merged into total
	total   total
}

// total is the sum of the merged blocks.
type total struct {
	sums          errorSums
	out           outputSums
	outputs, read int64
	crc           uint32
	differ        int64
	notFinite     string
}

// part is the result of a block.
type part struct {
	sums   errorSums
	out    *outputSums
	rows   int64
	count  int64 // of weights
	crc    uint32
	bytes  int64
	differ int64 // unquantized: the first byte that differs; -1: none
	// notFinite names the first element of an unquantized block that is NaN or infinite.
	notFinite string
}

type tensorJob struct {
	f       *gqf.File
	o       TensorOptions
	kernels kernels.Options
	entries []*entry

	mu          sync.Mutex
	next, block int // the next block
	done, total int64
}

const (
	// blockWeights is how many weights are compared at a time: they and their copies fit the
	// second-level cache.
	blockWeights = 1 << 17
	// Block heights are multiples of panelRows, as panels are.
	panelRows = 8
)

// plan lists the entries.
func (j *tensorJob) plan(ck *safetensors.Checkpoint) error {
	sources, err := newSources(ck, j.f)
	if err != nil {
		return err
	}
	tuned := tunedNorms(j.f)
	for i := range j.f.Len() {
		t := j.f.Tensor(i)
		if !matches(t, j.o.Match) {
			continue
		}
		found, err := sources.find(t)
		if err != nil {
			return err
		}
		for _, p := range t.Payloads() {
			if p.Kind == gqf.KindWeights {
				e := j.entry(t, p, found)
				e.tuned = tuned && t.Role == gqf.RoleNorm
				j.entries = append(j.entries, e)
			}
		}
	}
	return nil
}

func matches(t gqf.Tensor, match func(name string) bool) bool {
	if match == nil {
		return true
	}
	for _, name := range t.Names() {
		if match(name) {
			return true
		}
	}
	return false
}

func (j *tensorJob) entry(t gqf.Tensor, p gqf.Payload, found source) *entry {
	h := p.Header
	s := TensorStats{
		Name: t.Name, SharedWith: t.Names()[1:], Role: t.Role.String(), Slice: p.Slice, Slices: t.Experts, Variant: p.Variant,
		Layout: h.Layout.String(), Tile: h.Tile.String(), Bits: int(h.Bits), Group: int(h.Group),
		Mapping: t.Mapping.String(), Algorithm: t.Algorithm.String(), Rows: int64(h.Rows), Cols: int64(h.Cols),
		Unquantized: h.Layout == packing.LayoutPlain,
	}
	s.Bytes = p.Length
	for _, kind := range []gqf.Kind{gqf.KindScales, gqf.KindZeros, gqf.KindTable} {
		if c, ok := t.Payload(p.Variant, p.Slice, kind); ok {
			s.Bytes += c.Length
		}
	}
	s.BPW = packing.BitsPerWeight(s.Bytes, s.Rows*s.Cols)
	e := &entry{tensor: t, payload: p, source: found, pending: map[int]*part{}, total: total{differ: -1}}
	if s.Unquantized {
		s.Bits = h.Dtype.Bits()
		e.step = blockWeights
		e.blocks = int((s.Rows*s.Cols + e.step - 1) / e.step)
	} else {
		e.step = max(blockWeights/s.Cols/panelRows, 1) * panelRows
		e.blocks = int((s.Rows + e.step - 1) / e.step)
		s.Groups = s.Rows * int64(h.Groups())
		var ok bool
		switch ok, s.NoOutput = multiplied(t, h, j.kernels); {
		case j.o.NoOutputs:
			s.NoOutput = "not asked for"
		case ok:
			e.every = max(1, float64(s.Rows)/maxOutputs)
		}
	}
	j.total += s.Rows * s.Cols
	if e.blocks == 0 { // no elements
		s.Equal, s.SQNR, s.Cosine = true, Exact, 1
	}
	e.stats = s
	return e
}

// take returns the next block; nil after the last.
func (j *tensorJob) take() (*entry, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.next < len(j.entries) && j.block == j.entries[j.next].blocks {
		j.next, j.block = j.next+1, 0
	}
	if j.next == len(j.entries) {
		return nil, 0
	}
	j.block++
	return j.entries[j.next], j.block - 1
}

func (j *tensorJob) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range cpu.Threads(j.o.Threads) {
		wg.Go(func() {
			b := &block{workspace: kernels.NewWorkspace(nil)}
			for ctx.Err() == nil {
				e, i := j.take()
				if e == nil {
					return
				}
				if err := j.do(b, e, i); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// do compares a block and merges its result.
func (j *tensorJob) do(b *block, e *entry, i int) error {
	var p *part
	err := j.f.Guard(func() error {
		return e.source.ck.Guard(func() (err error) {
			e.once.Do(func() { e.err = j.open(e) })
			if e.err != nil {
				return e.err
			}
			if e.stats.Unquantized {
				p, err = b.unquantized(e, i)
			} else {
				p, err = b.compare(e, i, j.kernels)
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("tensor %q (%s): %w", e.stats.Label(), e.source.file(), err)
	}
	e.merge(i, p)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done += p.count
	if j.o.Progress != nil {
		j.o.Progress(j.done, j.total)
	}
	return nil
}

// open prepares an entry for reading.
func (j *tensorJob) open(e *entry) (err error) {
	if e.data, err = j.f.Data(e.payload); err != nil || e.stats.Unquantized {
		return err
	}
	if e.rows, err = e.tensor.Rows(e.payload.Variant, e.payload.Slice); err != nil {
		return err
	}
	if e.tensor.Transposed { // whose blocks are not contiguous
		view, err := e.source.ck.Bytes(e.source.src)
		if err != nil {
			return err
		}
		size := e.source.src.Size / int64(e.stats.Slices)
		slice := view[int64(e.stats.Slice)*size:][:size]
		e.total.crc, e.total.read = crc32c.Checksum(slice), size
	}
	if e.every == 0 {
		return nil
	}
	return j.inputs(e)
}

// inputs finds activations for an entry.
func (j *tensorJob) inputs(e *entry) error {
	k := int(e.stats.Cols)
	if j.o.Inputs != nil {
		for _, name := range e.tensor.Names() {
			name = label(name, e.stats.Slice, e.stats.Slices)
			x, m := j.o.Inputs(name)
			if m == 0 {
				continue
			}
			if len(x) != m*k {
				return fmt.Errorf("%d activations for %d rows of %d", len(x), m, k)
			}
			e.inputs = inputs{x, m, "calibration"}
			return nil
		}
	}
	e.inputs = inputs{RandomInputs(e.stats.Label(), randomRows, k), randomRows, "random"}
	return nil
}

// merge merges the result of block i as soon as all blocks before it are merged.
func (e *entry) merge(i int, p *part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending[i] = p
	for p := e.pending[e.merged]; p != nil; p = e.pending[e.merged] {
		delete(e.pending, e.merged)
		e.merged++
		e.total.add(p)
	}
	if e.merged == e.blocks {
		e.finish()
	}
}

func (t *total) add(p *part) {
	t.sums.add(&p.sums)
	t.crc = gqf.CombineCRC32C(t.crc, p.crc, p.bytes)
	t.read += p.bytes
	if p.out != nil {
		t.out.merge(p.out)
		t.outputs += p.rows
	}
	if t.differ < 0 {
		t.differ = p.differ
	}
	t.notFinite = cmp.Or(t.notFinite, p.notFinite)
}

// finish computes figures from the sums.
func (e *entry) finish() {
	s, t := &e.stats, &e.total
	e.rows, e.inputs.x = nil, nil
	if s.Unquantized {
		s.Equal, s.NotFinite = t.differ < 0, t.notFinite
		s.Tuned = !s.Equal && e.tuned
		switch h := e.payload.Header; {
		case s.Equal:
			s.SQNR, s.Cosine = Exact, 1
			return
		case s.Tuned && e.source.src.Dtype != h.Dtype: // of a GGUF file
			s.Difference = "tuned"
		case e.source.src.Dtype != h.Dtype:
			s.Difference = fmt.Sprintf("%s in the checkpoint, %s in the file", e.source.src.DtypeName, h.Dtype)
		case s.Tuned:
			s.Difference = fmt.Sprintf("tuned, from element %d on", t.differ)
		default:
			s.Difference = fmt.Sprintf("from element %d on", t.differ)
		}
		if finite := t.sums.noise - t.sums.noise; finite != 0 || !e.payload.Header.Dtype.IsFloat() || !e.source.src.Dtype.IsFloat() {
			s.SQNR = leastDecibels
			return
		}
	}
	count := float64(s.Rows) * float64(s.Cols)
	s.SQNR = ratioOf(t.sums.signal, t.sums.noise)
	s.MSE = t.sums.noise / count
	s.MaxError, s.MaxErrorAt = t.sums.largest, t.sums.at
	s.Cosine = cosineOf(t.sums.dot, t.sums.signal, t.sums.stored)
	s.Saturated = float64(t.sums.saturated) / count
	s.ZeroGroups, s.LostGroups = t.sums.zeros, t.sums.lost
	s.Signal, s.Noise, s.Errors = t.sums.signal, t.sums.noise, t.sums.histogram()
	if e.every > 0 {
		s.Output = t.out.stats(&e.inputs, t.outputs)
	}
}

// checkSources compares checksums of the checkpoint's bytes with the file's. The slices of a tensor
// follow each other.
func (j *tensorJob) checkSources() {
	for i := 0; i < len(j.entries); {
		e, crc, read, n := j.entries[i], uint32(0), int64(0), i
		for ; n < len(j.entries) && j.entries[n].tensor.Index == e.tensor.Index; n++ {
			if t := &j.entries[n].total; j.entries[n].stats.Variant == 0 {
				crc = gqf.CombineCRC32C(crc, t.crc, t.read)
				read += t.read
			}
		}
		changed := e.source.crc != 0 && (read != e.source.src.Size || crc != e.source.crc)
		for ; i < n; i++ {
			j.entries[i].stats.SourceChanged, j.entries[i].stats.SourceRecorded = changed, e.source.crc != 0 || e.source.src.Size == 0
		}
	}
}
