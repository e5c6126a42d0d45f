package gqf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

type VerifyOptions struct {
	Threads int  // default GOMAXPROCS
	Deep    bool // also check panels and companions by the rules of their layout; default false
	// called with more bytes done, without concurrent calls; the sum is File.VerifyBytes; default none
	Progress func(n int64)
}

type VerifyReport struct {
	File       string   `json:"file"`
	Bytes      int64    `json:"bytes"`       // of the file
	Tensors    int      `json:"tensors"`     // in the directory
	Payloads   int      `json:"payloads"`    // in the directory
	Assets     int      `json:"assets"`      // in the directory
	Blocks     int      `json:"blocks"`      // of the data region
	BlockBytes int64    `json:"block_bytes"` // of each block but the last
	Deep       bool     `json:"deep"`
	Damage     []Damage `json:"damage"`      // in order of offset; empty without damage
	MoreDamage int      `json:"more_damage"` // number of places beyond the first 1,000
	// Skipped counts variants of unknown layouts. A deep verification checks only their checksums.
	Skipped int `json:"skipped,omitempty"`
}

func (r *VerifyReport) OK() bool { return len(r.Damage) == 0 }

// Damage is a damaged place.
type Damage struct {
	Section      string         `json:"section"` // "header", a front section, "front gap", or "data"
	Block        int            `json:"block"`   // of the data region, from 0; -1 in other sections
	Offset       int64          `json:"offset"`  // in the file, of the first byte that may be damaged
	End          int64          `json:"end"`     // behind the last byte that may be damaged
	Payloads     []DamagedShare `json:"payloads"`
	MorePayloads int            `json:"more_payloads"` // number of payloads beyond the first 8
	Message      string         `json:"message"`
}

// DamagedShare names a payload with bytes in a damaged place.
type DamagedShare struct {
	Tensor  string `json:"tensor"`
	Slice   int    `json:"slice"`
	Kind    string `json:"kind"`
	Variant int    `json:"variant"`
}

func (d Damage) String() string {
	var b strings.Builder
	b.WriteString(d.Section)
	if d.Block >= 0 {
		fmt.Fprintf(&b, " block %d", d.Block)
	}
	fmt.Fprintf(&b, ", bytes %d..%d: %s", d.Offset, d.End-1, d.Message)
	for i, p := range d.Payloads {
		b.WriteString([]string{"; in tensor ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%q", p.Tensor)
		if p.Slice > 0 || p.Variant > 0 || p.Kind != KindWeights.String() {
			fmt.Fprintf(&b, " (slice %d, variant %d, %s)", p.Slice, p.Variant, p.Kind)
		}
	}
	if d.MorePayloads > 0 {
		fmt.Fprintf(&b, " and %d payloads more", d.MorePayloads)
	}
	return b.String()
}

const (
	maxDamage = 1000 // places listed in a report
	maxShares = 8    // payloads listed for a place
)

// Report returns the error as a [VerifyReport], for files that Open refuses.
func (e *FormatError) Report() *VerifyReport {
	section := cmp.Or(e.Section, "data")
	msg := e.Msg
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return &VerifyReport{File: e.File, Damage: []Damage{{Section: section, Block: -1, Offset: e.Offset, End: e.Offset + 1, Payloads: []DamagedShare{}, Message: msg}}}
}

// VerifyBytes returns the number of bytes that Verify reads, in Progress's count.
func (f *File) VerifyBytes(o VerifyOptions) int64 {
	n := int64(f.h.dataLen)
	if o.Deep {
		n += f.deepBytes()
	}
	return n
}

// Verify checks what Open does not: the checksum of each block of the data region, zeros in the
// gaps, the packed headers against the directory, and the checksum of each decompressed asset.
// Verify finds any single changed bit of the data region. The report lists damage; an error means
// that the verification could not be completed, because ctx is done or the file was truncated
// meanwhile ([*FormatError]).
func (f *File) Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	v := &verifier{f: f, progress: o.Progress, blockBytes: int64(1) << f.h.blockLog2, damage: []Damage{}}
	r := &VerifyReport{
		File: f.name, Bytes: f.Size(), Tensors: f.Len(), Payloads: f.NumPayloads(), Assets: f.count(secAssets),
		Blocks: f.count(secChecksums), BlockBytes: v.blockBytes, Deep: o.Deep,
	}
	threads := cpu.Threads(o.Threads)
	if err := v.assets(); err != nil {
		return nil, err
	}
	if f.m != nil {
		f.m.AdviseSequential(int64(f.h.dataOff), int64(f.h.dataLen))
		f.AdviseHugePages()
	}
	if err := f.parallel(ctx, threads, r.Blocks, v.block); err != nil {
		return nil, err
	}
	if o.Deep {
		if err := v.deep(ctx, threads); err != nil {
			return nil, err
		}
	}
	v.trim()
	r.Damage, r.MoreDamage, r.Skipped = v.damage, v.more, v.skipped
	return r, nil
}

// parallel calls do(0), ..., do(n-1) from the given number of goroutines, each under Guard, and
// returns the first error of a Guard or of ctx.
func (f *File) parallel(ctx context.Context, threads, n int, do func(int)) error {
	return cpu.Parallel(ctx, threads, n, func() func(i int) error {
		return func(i int) error {
			return f.Guard(func() error { do(i); return nil })
		}
	})
}

// verifier is the state of a Verify. Several goroutines may call its methods, except assets.
type verifier struct {
	f          *File
	blockBytes int64

	mu       sync.Mutex
	progress func(int64)
	damage   []Damage
	more     int // number of places dropped from damage
	skipped  int // number of skipped variants
}

func (v *verifier) report(d ...Damage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.damage = append(v.damage, d...); len(v.damage) > 4*maxDamage {
		v.trim()
	}
}

func (v *verifier) trim() {
	slices.SortStableFunc(v.damage, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.End, a.End), cmp.Compare(a.Message, b.Message))
	})
	if n := len(v.damage) - maxDamage; n > 0 {
		v.damage, v.more = v.damage[:maxDamage], v.more+n
	}
}

func (v *verifier) done(n int64) {
	if v.progress != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.progress(n)
	}
}

func (v *verifier) assets() error {
	return v.f.Guard(func() error {
		for i := range v.f.count(secAssets) {
			if !AssetKind(v.f.asset(i).kind).Known() {
				continue // only the section's checksum covers an unknown kind
			}
			err := v.f.copyAsset(io.Discard, i)
			if fe, ok := errors.AsType[*FormatError](err); ok {
				d := fe.Report().Damage[0]
				d.End = d.Offset + int64(v.f.asset(i).stored)
				v.report(d)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}

// block checks block i of the data region: its checksum, gaps and packed headers.
func (v *verifier) block(i int) {
	f := v.f
	start := int64(f.h.dataOff) + int64(i)*v.blockBytes
	end := min(start+v.blockBytes, f.Size())
	place := func(from, to int64, shares []int, format string, args ...any) Damage {
		return Damage{"data", i, from, to, v.shares(shares), max(0, len(shares)-maxShares), fmt.Sprintf(format, args...)}
	}
	var found []Damage
	var here []int // indices of payloads with bytes in the block
	gap := func(from, to int64) {
		if from < to {
			if k := firstNonZero(f.b[from:to]); k >= 0 {
				found = append(found, place(from+int64(k), to, nil, "byte %#02x in the gap between payloads, want 0", f.b[from+int64(k)]))
			}
		}
	}
	pos := start
	for k := f.payloadAfter(start); k < f.NumPayloads(); k++ {
		r := f.payload(k)
		off := int64(r.off)
		if off >= end {
			break
		}
		here = append(here, k)
		gap(pos, off)
		pos = off + int64(r.length)
		// Blocks start at multiples of the payloads' alignment, so no header crosses a border.
		if off >= start && f.checkPacked(k, &r) != nil {
			found = append(found, place(off, off+packing.HeaderSize, []int{k}, "packed header differs from its copy in the directory"))
		}
	}
	gap(pos, end)
	if crc := crc32c.Checksum(f.b[start:end]); crc != f.blockSum(i) {
		found = append(found, place(start, end, here, "checksum is %08x, the directory says %08x", crc, f.blockSum(i)))
	}
	if len(found) > 0 {
		v.report(found...)
	}
	v.done(end - start)
}

// payloadAfter returns the first payload that ends behind off, or NumPayloads.
func (f *File) payloadAfter(off int64) int {
	return sort.Search(f.NumPayloads(), func(k int) bool {
		r := f.payload(k)
		return int64(r.off+r.length) > off
	})
}

func (v *verifier) shares(list []int) []DamagedShare {
	shares := make([]DamagedShare, min(len(list), maxShares))
	for i := range shares {
		r := v.f.payload(list[i])
		shares[i] = DamagedShare{v.f.tensorName(int(r.tensor)), int(r.slice), Kind(r.kind).String(), int(r.variant)}
	}
	return shares
}

// sumChecks remembers which blocks of the data region have been checked.
type sumChecks struct {
	state []atomic.Uint32 // by block
}

// The states of a block. A goroutine that claims a block computes its checksum.
const (
	sumUnknown = iota
	sumClaimed
	sumRight
)

// CheckSums makes Data check the bytes that Data returns. From now on Data compares the checksum of
// every block of the payload, once per block, and a wrong checksum is a [*FormatError]. Every
// program that makes a file, a report or a verdict from payloads calls CheckSums first, to pass on
// no damage. CheckSums itself reads nothing; a second call does nothing.
//
// Data then reads the whole payload, at the speed of the disk.
func (f *File) CheckSums() {
	f.sums.CompareAndSwap(nil, &sumChecks{make([]atomic.Uint32, f.count(secChecksums))})
}

// checkSums checks the blocks with data of payload r if CheckSums was called. checkSums runs under
// Guard. Goroutines that ask for the same payload share its blocks.
func (f *File) checkSums(r *payloadRecord) error {
	c := f.sums.Load()
	if c == nil || r.length == packing.HeaderSize {
		return nil
	}
	first := int((r.off + packing.HeaderSize - f.h.dataOff) >> f.h.blockLog2)
	last := int((r.off + r.length - 1 - f.h.dataOff) >> f.h.blockLog2)
	for i := first; i <= last; i++ {
		if c.state[i].CompareAndSwap(sumUnknown, sumClaimed) {
			if err := f.checkSum(c, i, r); err != nil {
				return err
			}
		}
	}
	// Blocks that other goroutines have claimed may be unfinished or damaged.
	for i := first; i <= last; i++ {
		if c.state[i].Load() != sumRight {
			if err := f.checkSum(c, i, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSum checks block i, in which payload r lies.
func (f *File) checkSum(c *sumChecks, i int, r *payloadRecord) error {
	start := int64(f.h.dataOff) + int64(i)<<f.h.blockLog2
	end := min(start+int64(1)<<f.h.blockLog2, f.Size())
	if crc := crc32c.Checksum(f.b[start:end]); crc != f.blockSum(i) {
		return &FormatError{f.name, "data", start, fmt.Sprintf("checksum of the %d bytes of block %d is %08x, the directory says %08x: tensor %q, which has bytes in it, may be damaged; gq verify lists all damage",
			end-start, i, crc, f.blockSum(i), f.tensorName(int(r.tensor))), nil}
	}
	c.state[i].Store(sumRight)
	return nil
}
