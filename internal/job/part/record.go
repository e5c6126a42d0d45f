package part

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
)

// Record is a part file's description of its data.
type Record struct {
	Header
	// Maker names the version of the program that made the part.
	Maker string
	// Extents are the ranges of the .gqf file that the part has data of, in ascending order.
	Extents []Extent
	// Sums are the checksums of the data, as Blocks lists the blocks.
	Sums []uint32
	// Tensors are the units of work that the part did, by tensor, in ascending order.
	Tensors []Tensor
	// Absorbed are the checksums of small tensors of the checkpoint that belong to no unit.
	Absorbed []NameSum
	// Hashes are the SHA-256 of source files that the part hashed.
	Hashes []FileHash
	// Report is the report of the job without figures, in part 0. Finish gets a Stream instead.
	Report []byte
	// Template is everything before the data region, see gqf.Image.WriteTemplate, in part 0. Finish
	// gets a Stream instead.
	Template []byte
}

type Extent struct{ Off, Len int64 }

// Tensor holds a tensor's checksums and error sums over the units of a part.
type Tensor struct {
	TensorSums
	// Errors has an entry for each unit: sums of floating-point numbers depend on their order.
	Errors []UnitError
}

// TensorSums are the numbers of fixed size of a tensor.
type TensorSums struct {
	Index            uint32 // of the tensor in the .gqf file
	First, Units, Of uint32 // the units of the part, of all units
	CRC              uint32 // CRC32C of the source's bytes that the units read
	Reserved         uint32 // 0
	Bytes            uint64 // as many
	SmallScales      uint64 // groups, as in a report
	Exact, Groups    uint64 // recovered groups of all
}

// UnitError has the sums of squares of a unit's errors and weights.
type UnitError struct{ Noise, Signal float64 }

// NameSum is the CRC32C of the source of a name, by its position in the .gqf file.
type NameSum struct{ Name, CRC uint32 }

// FileHash is the SHA-256 of a source file, by its position in the provenance.
type FileHash struct {
	File   uint32
	SHA256 [32]byte
}

// Blocks lists the checksum blocks that extents touch, ascending. The region starts at dataStart.
func Blocks(list []Extent, dataStart int64) []int64 {
	blocks := make([]int64, 0, countBlocks(list, dataStart))
	eachBlocks(list, dataStart, func(first, end int64) {
		for b := first; b < end; b++ {
			blocks = append(blocks, b)
		}
	})
	return blocks
}

func countBlocks(list []Extent, dataStart int64) (n int64) {
	eachBlocks(list, dataStart, func(first, end int64) { n += end - first })
	return n
}

// eachBlocks calls add with blocks first to end - 1 that an extent touches and no earlier extent.
func eachBlocks(list []Extent, dataStart int64, add func(first, end int64)) {
	done := int64(0)
	for _, e := range list {
		first, end := (e.Off-dataStart)/gqf.BlockSize, (e.Off+e.Len-1-dataStart)/gqf.BlockSize+1
		if first = max(first, done); first < end {
			add(first, end)
			done = end
		}
	}
}

func DataBytes(list []Extent) (n int64) {
	for _, e := range list {
		n += e.Len
	}
	return n
}

// check finds contradictions in a record that was decoded.
func (r *Record) check() error {
	end := r.DataStart
	for i, e := range r.Extents {
		if e.Off < end || e.Len < 1 || e.Len > r.FileSize-e.Off {
			return fmt.Errorf("extent %d has %d bytes at %d, want at least 1 from %d to %d", i, e.Len, e.Off, end, r.FileSize)
		}
		end = e.Off + e.Len
	}
	if want := countBlocks(r.Extents, r.DataStart); int64(len(r.Sums)) != want {
		return fmt.Errorf("%d checksums of %d blocks", len(r.Sums), want)
	}
	if n := DataBytes(r.Extents); n != r.dataLen {
		return fmt.Errorf("extents of %d bytes, the part has %d", n, r.dataLen)
	}
	last := -1
	for i, t := range r.Tensors {
		if int64(t.Index) <= int64(last) {
			return fmt.Errorf("tensor record %d is of tensor %d, after tensor %d", i, t.Index, last)
		}
		if last = int(t.Index); t.Reserved != 0 {
			return fmt.Errorf("reserved bytes of tensor record %d are not zero", i)
		}
		if t.Units == 0 || uint64(t.First)+uint64(t.Units) > uint64(t.Of) {
			return fmt.Errorf("tensor record %d has %d units from %d of %d", i, t.Units, t.First, t.Of)
		}
		if t.Bytes > 1<<62 || t.SmallScales > 1<<62 || t.Exact > 1<<62 || t.Groups > 1<<62 {
			return fmt.Errorf("tensor record %d counts more than 2^62 bytes or groups", i)
		}
	}
	if (r.Index == 0) != (len(r.Template) > 0) {
		return fmt.Errorf("part %d has a template of %d bytes: part 0 alone has one", r.Index, len(r.Template))
	}
	return nil
}

type Place struct {
	extents []Extent
	starts  []int64 // in the data
}

// NewPlace returns the Place of data that are the bytes of extents in order.
func NewPlace(list []Extent) Place {
	p := Place{list, make([]int64, len(list))}
	var at int64
	for i, e := range list {
		p.starts[i] = at
		at += e.Len
	}
	return p
}

// Find returns where n bytes at off lie in the data.
func (p Place) Find(off, n int64) (int64, error) {
	i, ok := slices.BinarySearchFunc(p.extents, off, func(e Extent, off int64) int {
		switch {
		case e.Off+e.Len <= off:
			return -1
		case e.Off > off:
			return 1
		}
		return 0
	})
	if !ok || n > p.extents[i].Off+p.extents[i].Len-off {
		return 0, fmt.Errorf("%d bytes at %d are not in the part", n, off)
	}
	return p.starts[i] + off - p.extents[i].Off, nil
}
