package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

const (
	// cacheTimes is the size of all copies of a matrix relative to the last-level cache.
	cacheTimes = 16
	// maxCopies bounds the copies' memory if that cache is very large. There are two copies at least.
	maxCopies = 4 << 30
	// defaultCache is the size of the cache if the system does not state a size.
	defaultCache = 32 << 20
	pageBytes    = 4096
)

// CacheBytes is Linux's size of the first CPU's last-level cache; 32 MiB if unknown.
func CacheBytes() int64 { return cacheBytes("/sys/devices/system/cpu/cpu0/cache") }

func cacheBytes(dir string) int64 {
	level, size := 0, int64(defaultCache)
	indexes, _ := filepath.Glob(filepath.Join(dir, "index*"))
	for _, index := range indexes {
		l, err := strconv.Atoi(readCacheFile(index, "level"))
		text := readCacheFile(index, "size") // "32768K"
		n, unit := int64(0), strings.TrimLeft(text, "0123456789")
		shift, known := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[unit]
		if err == nil && known {
			n, err = strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 32)
		}
		if err == nil && known && n > 0 && l > level && readCacheFile(index, "type") != "Instruction" {
			level, size = l, n<<shift
		}
	}
	return size
}

func readCacheFile(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

type space struct {
	size   int64 // of the payload
	stride int64
	copies int
}

func newSpace(h packing.Header, cache int64) (space, error) {
	size, err := h.DataSize()
	if err != nil {
		return space{}, err
	}
	if h.Layout == packing.LayoutBlocks {
		t := gguf.TensorType(h.Dtype)
		size = int64(h.Rows) * int64(h.Cols) / int64(t.BlockWeights()) * int64(t.BlockBytes())
	}
	if size > maxCopies {
		return space{}, fmt.Errorf("bench: %d x %d weights take %d bytes, want at most %d", h.Rows, h.Cols, size, int64(maxCopies))
	}
	s := space{size: size, stride: (size + pageBytes - 1) / pageBytes * pageBytes}
	want := min(cacheTimes*min(cache, maxCopies)+1, maxCopies)
	s.copies = int(max(2, (want+size-1)/size))
	return s, nil
}

func (s space) bytes() int64 { return int64(s.copies) * s.stride }

func (s space) copy(memory []byte, i int) []byte { return memory[int64(i)*s.stride:][:s.size] }

// Memory is the largest number of bytes that Run takes: the copies of the largest payload, the same
// again for the floating-point operators' own copies, and the activations and outputs.
func (o Options) Memory() (int64, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return 0, err
	}
	rows, cols := o.Headers[0].Rows, o.Headers[0].Cols
	float, err := newSpace(packing.PlainHeader(packing.F32, rows, cols), o.CacheBytes)
	if err != nil {
		return 0, err
	}
	memory := float.bytes()
	for _, h := range append(slices.Clone(o.Headers), packing.PlainHeader(packing.BF16, rows, cols)) {
		s, err := newSpace(h, o.CacheBytes)
		if err != nil {
			return 0, err
		}
		memory = max(memory, s.bytes())
	}
	return memory + float.bytes() + int64(slices.Max(o.M))*int64(4*(rows+2*cols)), nil
}

// fillBlocks repeats 64 random blocks of a type of ggml, with scales of usual size.
func (s space) fillBlocks(memory []byte, t gguf.TensorType) {
	rng, first := rand.New(rand.NewPCG(1, 1)), s.copy(memory, 0)
	n := min(64*t.BlockBytes(), len(first))
	var b gguf.Block
	for at := 0; at < n; at += t.BlockBytes() {
		block := first[at:][:t.BlockBytes()]
		for usual := false; !usual; {
			for i := range block {
				block[i] = byte(rng.Uint32())
			}
			t.ReadBlock(&b, block)
			usual = !slices.ContainsFunc(append(b.Scales[:], b.Min), func(x float32) bool { return !(x > -1e6 && x < 1e6) })
		}
	}
	for i := n; i < len(first); i += copy(first[i:], first[:n]) {
	}
	for i := 1; i < s.copies; i++ {
		copy(s.copy(memory, i), first)
	}
}

// fill packs a random panel and repeats the panel: the codes do not affect the time.
func (s space) fill(memory []byte, h packing.Header) error {
	packer, err := layouts.New(h)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	panel, k, low := packer.NewPanel(), packer.PackedCols(), -(1 << (h.Bits - 1))
	panel.Rows = packer.PanelRows(0)
	for i := range panel.Codes {
		if i%k < int(h.Cols) {
			panel.Codes[i] = int8(low + rng.IntN(1<<h.Bits))
		}
	}
	for i := range panel.Scales {
		panel.Scales[i] = h.ScaleDtype.Round(0.001 + 0.01*rng.Float32())
	}
	for i := range panel.Zeros {
		panel.Zeros[i] = int8(rng.IntN(16) - 8)
	}
	for i := range panel.FloatZeros {
		panel.FloatZeros[i] = 0.1 * (rng.Float32() - 0.5)
	}
	first := s.copy(memory, 0)
	n, size := copy(first, packer.Prefix()), packer.PanelBytes()
	packer.PackPanel(first[n:][:size], panel)
	for at := n + size; at < len(first); at += size {
		copy(first[at:], first[n:][:size])
	}
	for i := 1; i < s.copies; i++ {
		copy(s.copy(memory, i), first)
	}
	return nil
}

func fillFloats(b []byte, d packing.Dtype) {
	rng := rand.New(rand.NewPCG(2, 2))
	for i := 0; i+4 <= min(len(b), 1<<16); i += 4 {
		u := math.Float32bits(rng.Float32() - 0.5)
		if d == packing.BF16 { // two weights; the low half is a BF16 number as well
			u = u&0xffff0000 | u>>16
		}
		binary.LittleEndian.PutUint32(b[i:], u)
	}
	for at := 1 << 16; at < len(b); at *= 2 {
		copy(b[at:], b[:at])
	}
}

func activations(m, k int) []float32 {
	rng := rand.New(rand.NewPCG(3, 3))
	x := make([]float32, m*k)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

type products struct {
	ctx    context.Context
	pool   *kernels.Pool
	w      *kernels.Workspace
	ops    []kernels.Operator
	space  space
	memory []byte
	x, dst []float32
	m      int
	next   int // index of the next copy
}

// round holds the mean times of a call and of a reading in a round, in seconds.
type round struct{ product, read float64 }

// measure runs rounds; each round has as many calls as fill its time.
func (p *products) measure(rounds int, total time.Duration) ([]round, error) {
	// The first call grows the workspace, faults in pages and raises the clock.
	if _, err := p.call(); err != nil {
		return nil, err
	}
	var list []round
	start := time.Now()
	for i := range rounds {
		if i > 0 && time.Since(start) >= 2*total {
			break
		}
		var product, read time.Duration
		calls := 0
		for calls == 0 || product+read < total/time.Duration(rounds) {
			t, err := p.call()
			if err != nil {
				return nil, err
			}
			product += t
			read += p.read(p.space.copy(p.memory, (p.next+p.space.copies/2)%p.space.copies))
			calls++
		}
		list = append(list, round{product.Seconds() / float64(calls), read.Seconds() / float64(calls)})
	}
	return list, nil
}

func (p *products) call() (time.Duration, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	op := p.ops[p.next]
	p.next = (p.next + 1) % len(p.ops)
	start := time.Now()
	err := op.Forward(p.w, p.dst, p.x, p.m)
	return time.Since(start), err
}

// read measures reading b, in as many parts as a product of a single row has.
func (p *products) read(b []byte) time.Duration {
	parts := 8 * p.pool.Threads()
	part := max(len(b)/parts/readUnit*readUnit, readUnit)
	parts = len(b) / part
	start := time.Now()
	p.pool.Run(parts, func(_, i int) {
		end := (i + 1) * part
		if i == parts-1 {
			end = len(b) / readUnit * readUnit
		}
		gemv.ReadSum(b[i*part : end])
	})
	return time.Since(start)
}

// readUnit divides the lengths that gemv.ReadSum reads.
const readUnit = 256

func median(rounds []round, of func(round) float64) float64 {
	list := make([]float64, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
