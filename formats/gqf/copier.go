package gqf

import (
	"fmt"
	"sync/atomic"

	"github.com/lowbit-go/gq/packing"
)

// A Copier reads data of payloads that are copied to a new file. It reads each byte once, and sums it once for the
// checksums of both files; whether the data are damaged is known at the end, by Check:
//
//	for each piece, from any number of goroutines:   Read, and write the piece to a temporary file
//	Check
//
// It reads the file instead of the map, see mmap.File.ReadAt.
type Copier struct {
	f      *File
	blocks []copiedBlock
}

// copiedBlock is a block of the data region.
type copiedBlock struct {
	register atomic.Uint32 // xor of the registers of the pieces, see rawCRC
	read     atomic.Int64  // bytes
	payload  atomic.Int32  // one that has bytes in the block
}

// NewCopier returns a Copier. The File must stay open until Check returns.
func (f *File) NewCopier() *Copier {
	return &Copier{f, make([]copiedBlock, f.count(secChecksums))}
}

// Read fills dst with data of the payload from byte off on, and adds dst to im as AddData does: the caller
// writes it at byte to of the new file. Each byte must be read at most once. Read fails as
// File.DataRange does, but for checksums.
func (c *Copier) Read(dst []byte, p Payload, off int64, im *Image, to int64) error {
	f := c.f
	if _, err := f.UncheckedRange(p, off, int64(len(dst))); err != nil {
		return err
	}
	at := int64(f.payload(p.Index).off) + packing.HeaderSize + off
	if f.m == nil {
		copy(dst, f.b[at:])
	} else if err := f.m.ReadAt(dst, at); err != nil {
		return err
	}
	at, to = at-int64(f.h.dataOff), im.add(to, len(dst))
	for len(dst) > 0 {
		old, new := at>>f.h.blockLog2, to>>blockLog2
		_, oldEnd := c.extent(old)
		newEnd := min((new+1)<<blockLog2, int64(im.h.dataLen))
		n := min(oldEnd-at, newEnd-to, int64(len(dst)))
		r := rawCRC(dst[:n])
		c.blocks[old].add(crcShift(r, oldEnd-at-n), n, p.Index)
		im.addRegister(new, crcShift(r, newEnd-to-n))
		dst, at, to = dst[n:], at+n, to+n
	}
	return nil
}

// add adds the register of n bytes of a payload.
func (b *copiedBlock) add(r uint32, n int64, payload int) {
	for old := b.register.Load(); !b.register.CompareAndSwap(old, old^r); old = b.register.Load() {
	}
	b.read.Add(n)
	b.payload.Store(int32(payload))
}

// extent is where a block begins and ends in the data region.
func (c *Copier) extent(block int64) (from, to int64) {
	from = block << c.f.h.blockLog2
	return from, min(from+1<<c.f.h.blockLog2, int64(c.f.h.dataLen))
}

// Check checks the checksums of all blocks that were read. It fails with a *FormatError if data are
// damaged. A block that was read in part is read again as a whole.
func (c *Copier) Check() error {
	f := c.f
	return f.Guard(func() error {
		again := &sumChecks{make([]atomic.Uint32, len(c.blocks))}
		for i := range c.blocks {
			b := &c.blocks[i]
			n := b.read.Load()
			if n == 0 {
				continue
			}
			from, to := c.extent(int64(i))
			right := n == to-from && ^(b.register.Load()^crcShift(0xFFFFFFFF, n)) == f.blockSum(i)
			if right {
				continue
			}
			r := f.payload(int(b.payload.Load()))
			if err := f.checkSum(again, i, &r); err != nil {
				return err
			}
			if n == to-from {
				return &FormatError{File: f.name, Section: "data", Offset: int64(f.h.dataOff) + from, Msg: fmt.Sprintf("block %d changed while it was copied", i)}
			}
		}
		return nil
	})
}
