package gqf

import (
	"bufio"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// An Image is a file with fixed offsets whose data the user writes, in any order and from any
// number of goroutines:
//
//	for each payload:   write its data at PayloadOffset(i) + packing.HeaderSize,
//	                    and tell AddData the same bytes
//	WritePayloadHeaders(w)
//	SetSourceCRC
//	WriteFront(w)       last of all
//
// The file must read as zeros where nothing is written, as it does after Truncate(Size()). An Image
// needs memory for tensors and assets, not for the data: 176 bytes per tensor with one payload and
// one name, and 4 bytes per MiB of data.
type Image struct {
	front
	strings      []string // in place of section strings; nil: the section is there
	payloadOff   []int64  // by index from AddPayload
	nameAt       []uint32 // position in the file by index from AddName; nil: equal
	payloadBytes int64
	added        atomic.Int64
	blocks       []atomic.Uint32 // CRC register of each block, see rawCRC
}

// place sets the header; the sections are not allocated yet.
func (im *Image) place(h header) {
	im.h = h
	im.blocks = make([]atomic.Uint32, h.sections[secChecksums].count)
}

// allocate makes room for a section.
func (im *Image) allocate(sec int) { im.sec[sec] = make([]byte, im.h.sections[sec].length) }

// Size returns the size of the file in bytes.
func (im *Image) Size() int64 { return int64(im.h.fileSize) }

// DataStart returns the offset of the data region. WriteFront writes everything before it.
func (im *Image) DataStart() int64 { return int64(im.h.dataOff) }

// PayloadOffset returns the offset in the file of the packed header of payload i, as AddPayload
// numbered it. The payload's data follow after packing.HeaderSize bytes.
func (im *Image) PayloadOffset(i int) int64 { return im.payloadOff[i] }

// SetSourceCRC records the CRC32C of the checkpoint's bytes for name i, as AddName numbered it. The
// default is 0. Concurrent calls must be for different names.
func (im *Image) SetSourceCRC(i int, crc uint32) {
	le.PutUint32(im.record(secNames, im.NameIndex(i))[16:], crc)
}

// AddData records the checksum of p, which is written at the absolute offset off of the file.
// Several goroutines may call it, in any order and with pieces of any size, but with each byte of
// each payload exactly once. It costs one pass over p and about 100 ns for each block touched. It
// panics if p lies outside the data region.
func (im *Image) AddData(off int64, p []byte) {
	pos := im.add(off, len(p))
	SumBlocks(pos, int64(im.h.dataLen), p, func(s BlockSum) { im.addRegister(s.Block, s.Register) })
}

// add counts n bytes of data at the offset off of the file and returns their place in the data region.
func (im *Image) add(off int64, n int) (pos int64) {
	pos = off - int64(im.h.dataOff)
	if pos < 0 || pos > int64(im.h.dataLen)-int64(n) {
		panic(fmt.Sprintf("gqf: data at %d..%d, the data region is %d..%d", off, off+int64(n), im.h.dataOff, im.h.fileSize))
	}
	im.added.Add(int64(n))
	return pos
}

// addRegister adds r to the register of a block. Addition in GF(2) is xor.
func (im *Image) addRegister(block int64, r uint32) {
	a := &im.blocks[block]
	for old := a.Load(); !a.CompareAndSwap(old, old^r); old = a.Load() {
	}
}

// WritePayloadHeaders writes the packed header of every payload and records its
// checksum.
func (im *Image) WritePayloadHeaders(w io.WriterAt) error {
	for i := range im.count(secPayloads) {
		if err := im.writePayloadHeader(w, i); err != nil {
			return err
		}
	}
	return nil
}

// writePayloadHeader writes the packed header of payload i, in the file's order.
func (im *Image) writePayloadHeader(w io.WriterAt, i int) error {
	b, off := im.record(secPayloads, i)[payloadHeader:], int64(im.payload(i).off)
	if _, err := w.WriteAt(b, off); err != nil {
		return fmt.Errorf("packed header at byte %d: %w", off, err)
	}
	im.AddData(off, b)
	return nil
}

// WriteFront completes the file: it writes the directory and then the header. It fails unless
// AddData has seen all data.
func (im *Image) WriteFront(w io.WriterAt) error {
	if n := im.added.Load(); n != im.payloadBytes {
		return fmt.Errorf("%d of %d bytes of payloads were added: a part was left out or added twice", n, im.payloadBytes)
	}
	for i := range im.blocks {
		start := uint64(i) << blockLog2
		n := min(im.h.dataLen-start, 1<<blockLog2)
		// The register starts at all ones and is inverted at the end.
		crc := ^(im.blocks[i].Load() ^ crcShift(0xFFFFFFFF, int64(n)))
		le.PutUint32(im.record(secChecksums, i), crc)
	}
	for i := range im.h.sections {
		if err := im.writeSection(w, i); err != nil {
			return fmt.Errorf("section %s: %w", sectionNames[i], err)
		}
	}
	if _, err := w.WriteAt(im.h.encode(), 0); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return nil
}

// dropStrings releases section strings, which is the concatenation of names: the names are
// in memory already. Nothing reads the section after Build.
func (im *Image) dropStrings(names []string) {
	if names == nil {
		return
	}
	im.h.sections[secStrings].crc = crc32c.Checksum(im.sec[secStrings])
	im.sec[secStrings], im.strings = nil, names
}

// writeSection writes a section of the front and records its checksum.
func (im *Image) writeSection(w io.WriterAt, i int) error {
	s := &im.h.sections[i]
	if i == secStrings && im.strings != nil {
		b := bufio.NewWriterSize(io.NewOffsetWriter(w, int64(s.off)), 1<<16)
		for _, name := range im.strings {
			b.WriteString(name) // Flush returns the first error
		}
		return b.Flush()
	}
	s.crc = crc32c.Checksum(im.sec[i])
	_, err := w.WriteAt(im.sec[i], int64(s.off))
	return err
}
