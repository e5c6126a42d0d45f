package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// entry is a payload to compare.
type entry struct {
	stats        *accuracy.TensorStats
	*work              // nil before the first and after the last block
	tensorIndex  int32 // in the file
	payloadIndex int32 // in the file
	blocks       int32
	crc          uint32 // of the checkpoint's bytes
	tuned        bool   // a norm of a file with tuned norms
	read         int64
}

// work is the state of an entry in comparison. All entries at once would exceed their results.
type work struct {
	tensor  gqf.Tensor
	payload gqf.Payload
	source  source
	step    int64   // rows of a block
	every   float64 // outputs are computed for a block in every; 0: never

	once   sync.Once // prepares the fields that follow
	err    error
	rows   *gqf.Rows // nil if unquantized
	data   []byte
	inputs inputs

	mu      sync.Mutex
	pending map[int]*part // by block: results that came before their turn
	merged  int           // blocks merged into total
	total   *total        // nil before the first block
}

// Tensors compares every tensor of f with the checkpoint src, in the file's order, with a result
// for each variant and slice. If the checkpoint lacks a tensor, or a shape differs, the error is a
// *MismatchError.
//
// Tensors reads the weights once. Private memory is a few MiB for each thread, and the activations
// of Inputs.
func Tensors(ctx context.Context, src *safetensors.Checkpoint, f *gqf.File, o TensorOptions) ([]accuracy.TensorStats, error) {
	f.CheckSums()
	j := &tensorJob{f: f, o: o, kernels: kernels.Options{CPU: o.CPU}}
	if err := j.plan(src); err != nil {
		return nil, err
	}
	if err := j.run(ctx); err != nil {
		return nil, err
	}
	if err := src.Unchanged(); err != nil {
		return nil, err
	}
	j.checkSources()
	return j.stats, nil
}

// TensorOptions are the options of Tensors. The zero value is ready to use.
type TensorOptions struct {
	// Threads is the number of goroutines; results are the same for any. Default: GOMAXPROCS.
	Threads int
	// CPU limits kernels as kernels.Options.CPU does; results are the same for any.
	CPU string
	// Match selects tensors by any of their names. Default: all.
	Match func(name string) bool
	// Inputs returns m rows of real activations of a layer, or m = 0. Several goroutines call Inputs
	// with each of a tensor's names until a name has activations. An expert of a fused tensor is
	// called X[i], as in forward.Session.OnInput. Default, and for layers without: RandomInputs.
	Inputs func(name string) (x []float32, m int)
	// NoOutputs skips the outputs of layers: half of the time.
	NoOutputs bool
	// Progress is called, from any worker, with weights done since the last call. Default: none.
	Progress func(n int64)
}

type tensorJob struct {
	f       *gqf.File
	o       TensorOptions
	kernels kernels.Options
	sources *sources
	entries []entry
	stats   []accuracy.TensorStats // of the entries
	schemes map[schemeKey]*accuracy.TensorScheme

	mu          sync.Mutex
	next, block int // the next block
}

type schemeKey struct {
	header    packing.Header
	mapping   gqf.Mapping
	algorithm gqf.Algorithm
}

const (
	// blockWeights is how many weights are compared at a time, to fit the second-level cache.
	blockWeights = 1 << 17
	// Block heights are multiples of panelRows, as panels are.
	panelRows = 8
)

func (j *tensorJob) plan(ck *safetensors.Checkpoint) error {
	var err error
	if j.sources, err = newSources(ck, j.f); err != nil {
		return err
	}
	j.schemes = map[schemeKey]*accuracy.TensorScheme{}
	n := 0
	for i := range j.f.NumPayloads() {
		if p := j.f.Payload(i); p.Kind == gqf.KindWeights && p.Variant >= 0 && (j.o.Match == nil || matches(j.f.Tensor(p.Tensor), j.o.Match)) {
			n++
		}
	}
	j.entries, j.stats = make([]entry, 0, n), make([]accuracy.TensorStats, n)
	fitted := fitsOf(j.f)
	for i := range j.f.Len() {
		t := j.f.Tensor(i)
		if !matches(t, j.o.Match) {
			continue
		}
		if _, err := j.sources.find(t); err != nil {
			return err
		}
		if t.Algorithm == gqf.AlgorithmOther {
			t.Algorithm = fitted.imported(t.Role.String())
		}
		for _, p := range t.Payloads() {
			if p.Kind == gqf.KindWeights {
				e := entry{stats: &j.stats[len(j.entries)], tensorIndex: int32(i), payloadIndex: int32(p.Index)}
				j.describe(&e, t, p)
				e.tuned = fitted.norms && t.Role == gqf.RoleNorm
				e.stats.Tuned = fitted.tuned && !e.stats.Unquantized
				j.entries = append(j.entries, e)
			}
		}
	}
	return nil
}

func matches(t gqf.Tensor, match func(name string) bool) bool {
	return match == nil || slices.ContainsFunc(t.Names(), match)
}

// scheme returns the scheme of a payload. Payloads with the same scheme share the value.
func (j *tensorJob) scheme(t gqf.Tensor, h packing.Header) *accuracy.TensorScheme {
	key := schemeKey{h, t.Mapping, t.Algorithm}
	s := j.schemes[key]
	if s == nil {
		s = &accuracy.TensorScheme{
			Layout: layoutName(h), Tile: h.Tile.String(), Bits: int(h.Bits), Group: int(h.Group),
			Mapping: t.Mapping.String(), Algorithm: t.Algorithm.String(), Rows: int64(h.Rows), Cols: int64(h.Cols),
		}
		if h.Layout == packing.LayoutPlain {
			s.Bits = h.Dtype.Bits()
		}
		j.schemes[key] = s
	}
	return s
}

// layoutName is the name of a payload's layout, or the type of ggml's blocks.
func layoutName(h packing.Header) string {
	if h.Layout == packing.LayoutBlocks {
		return gguf.TensorType(h.Dtype).String()
	}
	return h.Layout.String()
}

// describe sets the figures that follow from the file's directory alone.
func (j *tensorJob) describe(e *entry, t gqf.Tensor, p gqf.Payload) {
	h, s := p.Header, e.stats
	*s = accuracy.TensorStats{
		Name: t.Name, Role: t.Role.String(), Slice: p.Slice, Slices: t.Experts, Variant: p.Variant,
		TensorScheme: j.scheme(t, h), Unquantized: h.Layout == packing.LayoutPlain,
	}
	if names := t.Names(); len(names) > 1 {
		s.SharedWith = names[1:]
	}
	s.Bytes = p.Length
	for _, kind := range []gqf.Kind{gqf.KindScales, gqf.KindZeros, gqf.KindTable} {
		if c, ok := t.Payload(p.Variant, p.Slice, kind); ok {
			s.Bytes += c.Length
		}
	}
	s.BPW = packing.BitsPerWeight(s.Bytes, s.Rows*s.Cols)
	if s.Unquantized {
		e.blocks = int32((s.Rows*s.Cols + blockWeights - 1) / blockWeights)
	} else {
		step := blockStep(s)
		e.blocks = int32((s.Rows + step - 1) / step)
		s.Groups = s.Rows * int64(h.Groups())
		if _, s.NoOutput = multiplied(t, h, j.kernels); j.o.NoOutputs {
			s.NoOutput = "not asked for"
		}
	}
	if e.blocks == 0 { // no elements
		s.Equal, s.SQNR, s.Cosine = true, accuracy.Ratio(1, 0), 1
	}
}

// blockStep is the height of the blocks of a quantized tensor.
func blockStep(s *accuracy.TensorStats) int64 {
	return max(blockWeights/s.Cols/panelRows, 1) * panelRows
}

func (j *tensorJob) begin(e *entry) error {
	w := &work{tensor: j.f.Tensor(int(e.tensorIndex)), payload: j.f.Payload(int(e.payloadIndex)), step: blockWeights}
	if s := e.stats; !s.Unquantized {
		w.step = blockStep(s)
		if s.NoOutput == "" {
			w.every = max(1, float64(s.Rows)/maxOutputs)
		}
	}
	var err error
	w.source, err = j.sources.find(w.tensor)
	e.work = w
	return err
}

// take returns the next block. The caller knows that there is a next block.
func (j *tensorJob) take() (*entry, int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.block == int(j.entries[j.next].blocks) {
		j.next, j.block = j.next+1, 0
	}
	e := &j.entries[j.next]
	j.block++
	if j.block == 1 {
		return e, 0, j.begin(e)
	}
	return e, j.block - 1, nil
}

func (j *tensorJob) run(ctx context.Context) error {
	blocks := 0
	for i := range j.entries {
		blocks += int(j.entries[i].blocks)
	}
	return cpu.Parallel(ctx, cpu.Threads(j.o.Threads), blocks, func() func(int) error {
		b := &block{workspace: kernels.NewWorkspace(nil)}
		return func(int) error {
			e, i, err := j.take()
			if err != nil {
				return err
			}
			return j.do(b, e, i)
		}
	})
}

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
		return fmt.Errorf("tensor %q (%s): %w", e.stats.Label(), e.source.ck.Files()[e.source.src.File].Name, err)
	}
	e.merge(i, p)
	if j.o.Progress != nil {
		j.o.Progress(p.count)
	}
	return nil
}

func (j *tensorJob) open(e *entry) (err error) {
	if e.data, err = j.f.Data(e.payload); err != nil || e.stats.Unquantized {
		return err
	}
	if e.rows, err = e.tensor.Rows(e.payload.Variant, e.payload.Slice); err != nil {
		return err
	}
	if e.tensor.Transposed { // blocks are not contiguous
		view, err := e.source.ck.Bytes(e.source.src)
		if err != nil {
			return err
		}
		size := e.source.src.Size / int64(e.stats.Slices)
		slice := view[int64(e.stats.Slice)*size:][:size]
		e.crc, e.read = crc32c.Checksum(slice), size
	}
	if e.every == 0 {
		return nil
	}
	return j.inputs(e)
}

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
			e.inputs = inputs{x, m, textInputs}
			return nil
		}
	}
	e.inputs = inputs{RandomInputs(e.stats.Label(), randomRows, k), randomRows, "random"}
	return nil
}

// checkSources compares checksums of the checkpoint's bytes with the file's. Slices are adjacent.
func (j *tensorJob) checkSources() {
	for i := 0; i < len(j.entries); {
		e, crc, read, n := &j.entries[i], uint32(0), int64(0), i
		for ; n < len(j.entries) && j.entries[n].tensorIndex == e.tensorIndex; n++ {
			if o := &j.entries[n]; o.stats.Variant == 0 {
				crc = crc32c.Combine(crc, o.crc, o.read)
				read += o.read
			}
		}
		found, _ := j.sources.find(j.f.Tensor(int(e.tensorIndex))) // as plan found it
		changed := found.crc != 0 && (read != found.src.Size || crc != found.crc) || j.sources.scalesChanged(int(e.tensorIndex))
		for ; i < n; i++ {
			s := j.entries[i].stats
			// The source may have had the checkpoint's numbers in another dtype.
			s.SourceChanged = changed && !(s.Unquantized && s.Equal && s.MaxError == 0)
			s.SourceRecorded = found.crc != 0 || found.src.Size == 0
		}
	}
}

// label names a slice of a tensor, as TensorStats.Label does.
func label(name string, slice, slices int) string {
	return (&accuracy.TensorStats{Name: name, Slice: slice, Slices: slices}).Label()
}
