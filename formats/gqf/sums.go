package gqf

import (
	"fmt"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// sumChecks remembers which blocks of the data region have been checked.
type sumChecks struct {
	state []atomic.Uint32 // of each block
}

// The states of a block. A block that a goroutine has claimed is being summed.
const (
	sumUnknown = iota
	sumClaimed
	sumRight
)

// CheckSums makes Data check the bytes that it returns: from now on it compares the
// checksum of every block of the data region in which the payload lies, of each block
// once, and fails with a [*FormatError] where a checksum is wrong. Whatever makes a
// file, a report or a verdict out of payloads calls CheckSums first, so that it cannot
// hand on damage. CheckSums itself reads nothing, and a second call does nothing.
//
// Data then reads all of a payload, which takes as long as the disk needs.
func (f *File) CheckSums() {
	f.sums.CompareAndSwap(nil, &sumChecks{make([]atomic.Uint32, f.count(secChecksums))})
}

// checkSums checks the blocks in which payload r lies, if CheckSums was called; under
// Guard. Several goroutines that ask for one payload share its blocks.
func (f *File) checkSums(r *payloadRecord) error {
	c := f.sums.Load()
	if c == nil {
		return nil
	}
	first := int((r.off - f.h.dataOff) >> f.h.blockLog2)
	last := int((r.off + r.length - 1 - f.h.dataOff) >> f.h.blockLog2)
	for i := first; i <= last; i++ {
		if c.state[i].CompareAndSwap(sumUnknown, sumClaimed) {
			if err := f.checkSum(c, i, r); err != nil {
				return err
			}
		}
	}
	// What others have claimed may not be summed yet, or be damaged.
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
