package gqf

import (
	"fmt"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/crc32c"
)

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

// CheckSums makes Data check the bytes that it returns. From now on Data compares the checksum of
// every block in which the payload lies, once per block, and fails with a [*FormatError] if a
// checksum is wrong. Every program that makes a file, a report or a verdict from payloads calls
// CheckSums first, so that it cannot pass on damage. CheckSums itself reads nothing; a second call
// does nothing.
//
// Data then reads the whole payload, at the speed of the disk, and DataRange the blocks of its range.
func (f *File) CheckSums() {
	f.sums.CompareAndSwap(nil, &sumChecks{make([]atomic.Uint32, f.count(secChecksums))})
}

// checkSums checks the blocks with n bytes of payload r, at byte off of the file, if CheckSums was
// called. It runs under Guard. Goroutines that ask for the same payload share its blocks.
func (f *File) checkSums(r *payloadRecord, off, n uint64) error {
	c := f.sums.Load()
	if c == nil {
		return nil
	}
	first := int((off - f.h.dataOff) >> f.h.blockLog2)
	last := int((off + n - 1 - f.h.dataOff) >> f.h.blockLog2)
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
