package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// block holds a goroutine's buffers.
type block struct {
	x, y      []float32 // the checkpoint's weights, and the stored weights
	codes     []int8
	counts    octaves
	rows      *gqf.Rows
	out       [3][]float32
	workspace *kernels.Workspace
}

type total struct {
	sums      errorSums
	out       outputSums
	outputs   int64
	differ    int64
	notF16    bool
	notFinite string
}

type part struct {
	sums   errorSums
	out    *outputSums
	rows   int64
	count  int64 // of weights
	crc    uint32
	bytes  int64
	differ int64 // unquantized: the first byte that differs; -1: none
	notF16 bool  // unquantized: a number in the file is not the checkpoint's, rounded to F16
	// notFinite names the first element of an unquantized block that is NaN or infinite.
	notFinite string
}

// compare compares block i of a quantized entry.
func (b *block) compare(e *entry, i int, o kernels.Options) (*part, error) {
	h := e.payload.Header
	first := int64(i) * e.step
	n, k := min(e.step, e.stats.Rows-first), e.stats.Cols
	x, y := buffer.Grow(&b.x, int(n*k)), buffer.Grow(&b.y, int(n*k))
	b.x, b.y, b.rows = x, y, e.rows
	at := int(int64(e.stats.Slice)*e.stats.Rows + first)
	e.source.weights.Widen(x, at, int(n))
	raw := e.source.weights.Bytes(at, int(n))
	p := &part{rows: n, count: n * k, bytes: int64(len(raw)), crc: crc32c.Checksum(raw), differ: -1}
	codes := buffer.Grow(&b.codes, int(k))
	group := int(k)
	if h.Group != 0 {
		group = int(min(h.Group, h.Cols))
	}
	for r := range n {
		xr, yr := x[r*k:][:k], y[r*k:][:k]
		e.rows.Dequantize(yr, int(first+r))
		e.rows.Codes(codes, nil, nil, int(first+r))
		p.sums.row(&b.counts, first+r, 0, xr, yr)
		p.sums.codes(codes, int(h.Bits))
		p.sums.groups(xr, yr, group)
	}
	p.sums.flush(&b.counts)
	if math.IsNaN(p.sums.noise) || math.IsInf(p.sums.noise, 0) {
		return nil, notFinite(x, y, first, k)
	}
	if e.sampled(i) {
		var err error
		if p.out, err = b.outputs(h, e.data, first, n, &e.inputs, o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// sampled reports whether outputs of block i are computed: of all blocks, or of a block in e.every.
func (e *entry) sampled(i int) bool {
	if e.every <= 1 {
		return e.every == 1
	}
	// Sample s is block s*every, rounded down. Rounding quotients gives the same blocks everywhere.
	s := math.Ceil(float64(i) / e.every)
	return int(float64(s*e.every)) == i
}

// notFinite names a weight that is NaN or infinite.
func notFinite(x, y []float32, first, cols int64) error {
	for i := range x {
		v, where := x[i], "in the checkpoint"
		if floats.Finite(v) {
			v, where = y[i], "in the .gqf"
		}
		if !floats.Finite(v) {
			return fmt.Errorf("the weight in row %d, column %d is %v %s", first+int64(i)/cols, int64(i)%cols, v, where)
		}
	}
	return fmt.Errorf("rows %d and following are not finite", first)
}

// unquantized compares block i of an unquantized entry: bytes, and numbers where bytes may differ.
func (b *block) unquantized(e *entry, i int) (*part, error) {
	h, src := e.payload.Header, &e.source.src
	view, err := e.source.ck.Bytes(*src)
	if err != nil {
		return nil, err
	}
	first := int64(i) * e.step
	n := min(e.step, e.stats.Rows*e.stats.Cols-first)
	have, want := elements(e.data, h.Dtype, first, n), elements(view, src.Dtype, first, n)
	p := &part{count: n, bytes: int64(len(want)), crc: crc32c.Checksum(want), differ: -1}
	same := h.Dtype == src.Dtype && bytes.Equal(have, want)
	if !same {
		p.differ = first
		for i := range have {
			if h.Dtype == src.Dtype && have[i] != want[i] {
				p.differ += int64(i) * 8 / int64(h.Dtype.Bits())
				break
			}
		}
	}
	if !h.Dtype.IsFloat() || !src.Dtype.IsFloat() {
		return p, nil
	}
	b.x, b.y = buffer.Grow(&b.x, int(n)), buffer.Grow(&b.y, int(n))
	safetensors.Widen(b.x, want, src.Dtype)
	safetensors.Widen(b.y, have, h.Dtype)
	for i, v := range b.x {
		p.notF16 = p.notF16 || floats.RoundF16(v) != b.y[i]
	}
	for at := int64(0); at < n; {
		row, col := (first+at)/e.stats.Cols, (first+at)%e.stats.Cols
		end := min(n, at+e.stats.Cols-col)
		p.sums.row(&b.counts, row, col, b.x[at:end], b.y[at:end])
		at = end
	}
	p.sums.flush(&b.counts)
	if p.sums.noise-p.sums.noise != 0 {
		p.notFinite = notFiniteElement(b.x, b.y, first)
	}
	if same && p.sums.noise != 0 { // NaN or infinities that are equal in the checkpoint
		p.sums = errorSums{}
	}
	return p, nil
}

// notFiniteElement names the first element that is NaN or infinite, or is "". The elements x of the
// checkpoint and y of the file start with number first.
func notFiniteElement(x, y []float32, first int64) string {
	for i := range x {
		var where []string
		if !floats.Finite(x[i]) {
			where = append(where, fmt.Sprintf("%v in the checkpoint", x[i]))
		}
		if !floats.Finite(y[i]) {
			where = append(where, fmt.Sprintf("%v in the file", y[i]))
		}
		if where != nil {
			return fmt.Sprintf("element %d is %s", first+int64(i), strings.Join(where, " and "))
		}
	}
	return ""
}

// elements returns the bytes of n elements from first on, multiples of 8 except at the end.
func elements(data []byte, d packing.Dtype, first, n int64) []byte {
	bits := int64(d.Bits())
	return data[first*bits/8:][:(n*bits+7)/8]
}

// merge merges the result of block i as soon as all blocks before i are merged.
func (e *entry) merge(i int, p *part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.total == nil {
		e.total, e.pending = &total{differ: -1}, map[int]*part{}
	}
	e.pending[i] = p
	for p := e.pending[e.merged]; p != nil; p = e.pending[e.merged] {
		delete(e.pending, e.merged)
		e.merged++
		e.total.add(p)
		e.crc = crc32c.Combine(e.crc, p.crc, p.bytes)
		e.read += p.bytes
	}
	if e.merged == int(e.blocks) {
		e.finish()
		e.work = nil
	}
}

func (t *total) add(p *part) {
	t.sums.add(&p.sums)
	if p.out != nil {
		t.out.merge(p.out)
		t.outputs += p.rows
	}
	if t.differ < 0 {
		t.differ = p.differ
	}
	t.notF16 = t.notF16 || p.notF16
	t.notFinite = cmp.Or(t.notFinite, p.notFinite)
}

func (e *entry) finish() {
	s, t := e.stats, e.total
	if s.Unquantized {
		s.Equal, s.NotFinite = t.differ < 0 || e.sameNumbers(), t.notFinite
		s.Tuned = !s.Equal && e.tuned
		switch h := e.payload.Header; {
		case s.Equal && (t.sums.noise == 0 || h.Dtype != packing.F16):
			s.SQNR, s.Cosine = accuracy.Ratio(1, 0), 1
			return
		case s.Equal:
		case s.Tuned && e.source.src.Dtype != h.Dtype: // of a GGUF file
			s.Difference = "tuned"
		case e.source.src.Dtype != h.Dtype:
			s.Difference = fmt.Sprintf("other numbers, %s in the checkpoint and %s in the file", e.source.src.DtypeName, h.Dtype)
		case s.Tuned:
			s.Difference = fmt.Sprintf("tuned, from element %d on", t.differ)
		default:
			s.Difference = fmt.Sprintf("from element %d on", t.differ)
		}
		if !e.comparable() {
			s.SQNR = accuracy.Ratio(0, 1)
			return
		}
	}
	count := float64(s.Rows) * float64(s.Cols)
	s.SQNR = accuracy.Ratio(t.sums.signal, t.sums.noise)
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

// comparable reports whether both forms of an unquantized tensor hold finite numbers.
func (e *entry) comparable() bool {
	noise := e.total.sums.noise
	return noise-noise == 0 && e.payload.Header.Dtype.IsFloat() && e.source.src.Dtype.IsFloat()
}

// sameNumbers reports whether an unquantized tensor has the checkpoint's numbers, though not its
// bytes. A .gguf file holds norms of Gemma as weight + 1, rounded to float32: a change of at most
// 2^-24. Rows that fit the blocks of no type are rounded to F16.
func (e *entry) sameNumbers() bool {
	most := 0.0
	switch h := e.payload.Header; {
	case e.tensor.Role == gqf.RoleNorm && h.Dtype == packing.F32:
		most = 0x1p-24
	case h.Dtype == e.source.src.Dtype:
		return false
	case h.Dtype == packing.F16:
		return e.comparable() && !e.total.notF16
	}
	return e.comparable() && e.total.sums.largest <= most
}

func activationError(executed, weights *eval.Comparison) *accuracy.ActivationError {
	e := &accuracy.ActivationError{WeightsKL: weights.KL.Mean, WeightsKLStdErr: weights.KL.StdErr}
	if executed.KL.Mean > 0 {
		e.Share = min(max(1-e.WeightsKL/executed.KL.Mean, 0), 1)
	}
	return e
}

// openWeights opens the file again, with float32 activations, for ActivationError.
func (j *Job) openWeights(s *scored, f *gqf.File, o forward.Options, r *accuracy.Report) (err error) {
	if j.Activations != forward.Int8 {
		return fmt.Errorf("%s: the share of int8 activations is asked for, but the model runs with %s activations", r.File, j.Activations)
	}
	if ran, _ := s.quantized.Executed(); ran != forward.Int8 {
		return fmt.Errorf("%s: all linear layers run with float32 activations: there is no share of int8 activations", r.File)
	}
	o.Activations = forward.Float32
	if s.weights, err = forward.OpenGQF(f, o); err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	return nil
}

// executed sets which activations each matrix multiplies.
func (s *scored) executed(r *accuracy.Report) {
	_, r.Executed = s.quantized.Executed()
	for i := range r.Tensors {
		t := &r.Tensors[i]
		for _, name := range append([]string{t.Name}, t.SharedWith...) {
			if name = label(name, t.Slice, t.Slices); s.quantized.Linear(name) != nil && t.Variant == 0 {
				t.Activations = s.quantized.Executes(name)
			}
		}
	}
}

// inputSpread is the standard deviation of the logarithm of a channel's gain.
const inputSpread = 0.5

// RandomInputs makes m rows of k activations for a layer without real activations: normally
// distributed with deviation 1, times a gain per column. The gain's natural logarithm is normally
// distributed with deviation 0.5. So the columns of a layer with 2,048 inputs differ by a factor of
// up to 30, and a few stand out, as in real linear layers. Only the name determines the numbers.
func RandomInputs(name string, m, k int) []float32 {
	n := newNormals(name)
	gain := make([]float64, k)
	for i := range gain {
		gain[i] = detmath.Exp(inputSpread * n.normal())
	}
	x := make([]float32, m*k)
	for i := range x {
		x[i] = float32(float64(gain[i%k] * n.normal()))
	}
	return x
}

// normals generates random numbers that are the same on any machine. math/rand's normal numbers
// depend on logarithms and exponentials of package math.
type normals struct {
	detmath.Source
	spare float64
	has   bool
}

func newNormals(seed string) *normals {
	h := fnv.New64a()
	h.Write([]byte(seed))
	return &normals{Source: detmath.Source(h.Sum64())}
}

// uniform returns a number above -1 and below 1.
func (n *normals) uniform() float64 {
	return float64(int64(n.Next()>>11|1)-1<<52) / (1 << 52)
}

// below returns an integer in [0, k).
func (n *normals) below(k int) int {
	hi, _ := bits.Mul64(n.Next(), uint64(k))
	return int(hi)
}

// normal returns a normally distributed number, by Marsaglia's polar method.
func (n *normals) normal() float64 {
	if n.has {
		n.has = false
		return n.spare
	}
	for {
		u, v := n.uniform(), n.uniform()
		s := float64(u*u) + float64(v*v)
		if s >= 1 {
			continue
		}
		f := math.Sqrt(-2 * detmath.Log(s) / s)
		n.spare, n.has = float64(v*f), true
		return float64(u * f)
	}
}
