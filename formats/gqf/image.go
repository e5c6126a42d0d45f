package gqf

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// An Image is a file with fixed offsets. The user writes the data, in any order and from any number
// of goroutines:
//
//	for each payload:   write its data at PayloadOffset(i) + packing.HeaderSize,
//	                    and tell AddData the same bytes
//	WritePayloadHeaders(w)
//	SetSourceCRC
//	WriteFront(w)       last of all
//
// The file must read as zeros where nothing is written, as after Truncate(Size()). An Image needs
// memory for tensors and assets, not for the data: 116 bytes per tensor with a single payload and
// name, and 4 bytes per MiB of data.
type Image struct {
	front
	payloadOff   []int64  // by index from AddPayload
	nameAt       []uint32 // position in the file by index from AddName; nil: equal
	payloadBytes int64
	added        atomic.Int64
	blocks       []atomic.Uint32 // CRC register of each block, see crc32c.Register
}

func (im *Image) place(h header) {
	im.h = h
	im.blocks = make([]atomic.Uint32, h.sections[secChecksums].count)
}

func (im *Image) allocate(sec int) { im.sec[sec] = make([]byte, im.h.sections[sec].length) }

func (im *Image) Size() int64 { return int64(im.h.fileSize) }

// DataStart returns the offset of the data region, behind the bytes that WriteFront writes.
func (im *Image) DataStart() int64 { return int64(im.h.dataOff) }

// PayloadOffset returns the offset in the file of the packed header of payload i, by AddPayload's
// number. The payload's data follow after packing.HeaderSize bytes.
func (im *Image) PayloadOffset(i int) int64 { return im.payloadOff[i] }

// SetSourceCRC records the CRC32C of the checkpoint's bytes for name i, by AddName's number. The
// default is 0. Concurrent calls must be for different names.
func (im *Image) SetSourceCRC(i int, crc uint32) {
	le.PutUint32(im.record(secNames, im.NameIndex(i))[16:], crc)
}

// AddData records the checksum of p, the bytes at the absolute offset off of the file. Several
// goroutines may call AddData, in any order and with pieces of any size, but with each byte of each
// payload exactly once. A call costs a pass over p and about 100 ns for each block touched, and
// panics if p lies outside the data region.
func (im *Image) AddData(off int64, p []byte) {
	pos := im.add(off, len(p))
	SumBlocks(pos, int64(im.h.dataLen), p, func(s BlockSum) { im.addRegister(s.Block, s.Register) })
}

// add counts n bytes of data at off in the file and returns their place in the data region.
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

// WritePayloadHeaders writes the packed header of every payload and records its checksum.
func (im *Image) WritePayloadHeaders(w io.WriterAt) error {
	for i := range im.count(secPayloads) {
		if err := im.writePayloadHeader(w, i); err != nil {
			return err
		}
	}
	return nil
}

func (im *Image) writePayloadHeader(w io.WriterAt, i int) error {
	b, off := im.packedHeader(i), int64(im.payload(i).off)
	if _, err := w.WriteAt(b, off); err != nil {
		return fmt.Errorf("packed header at byte %d: %w", off, err)
	}
	im.AddData(off, b)
	return nil
}

// WriteFront writes the directory, then the header, and fails unless AddData has seen all data.
func (im *Image) WriteFront(w io.WriterAt) error {
	if n := im.added.Load(); n != im.payloadBytes {
		return fmt.Errorf("%d of %d bytes of payloads were added: a part was left out or added twice", n, im.payloadBytes)
	}
	for i := range im.blocks {
		start := uint64(i) << blockLog2
		n := min(im.h.dataLen-start, 1<<blockLog2)
		// The register starts at all ones and is inverted at the end.
		crc := ^(im.blocks[i].Load() ^ crc32c.Shift(0xFFFFFFFF, int64(n)))
		le.PutUint32(im.record(secChecksums, i), crc)
	}
	for i := range im.h.sections {
		if err := im.writeSection(io.NewOffsetWriter(w, int64(im.h.sections[i].off)), i); err != nil {
			return fmt.Errorf("section %s: %w", sectionNames[i], err)
		}
	}
	if _, err := w.WriteAt(im.h.encode(), 0); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return nil
}

// writeSection writes a section of the front and records its checksum.
func (im *Image) writeSection(w io.Writer, i int) error {
	b := bufio.NewWriterSize(w, 1<<16) // Flush returns its first error
	crc := uint32(0)
	write := func(p []byte) {
		crc = crc32c.Update(crc, p)
		b.Write(p)
	}
	switch {
	case i == secStrings && im.strings != nil:
		for _, name := range im.strings {
			write(unsafe.Slice(unsafe.StringData(name), len(name)))
		}
	case i == secPayloads && im.headOf != nil:
		for k := range im.headOf {
			write(im.payloadPlace(k))
			write(im.packedHeader(k))
		}
	default:
		write(im.sec[i])
	}
	im.h.sections[i].crc = crc
	return b.Flush()
}

// Gaps yields the unwritten ranges of the file in order. Gaps read as zeros.
func (im *Image) Gaps() iter.Seq2[int64, int64] {
	return func(yield func(from, to int64) bool) {
		end := uint64(headerSize)
		gap := func(off, length uint64) bool {
			from := end
			end = off + length
			return from >= off || yield(int64(from), int64(off))
		}
		for _, s := range im.h.sections {
			if !gap(s.off, s.length) {
				return
			}
		}
		for i := range im.count(secPayloads) {
			if p := im.payload(i); !gap(p.off, p.length) {
				return
			}
		}
		gap(im.h.fileSize, 0)
	}
}

// A Stream writes the packed header of a payload with the first bytes of the payload's data. A
// writer that sends each part of a file once complete then waits for the front only.
type Stream struct {
	image  *Image
	w      io.WriterAt
	headed []bool // by the payloads in the file's order
}

// NewStream returns a Stream that writes to w. Finish takes the place of WritePayloadHeaders.
func (im *Image) NewStream(w io.WriterAt) *Stream {
	return &Stream{im, w, make([]bool, im.count(secPayloads))}
}

// WriteAt writes p. Several goroutines may call WriteAt.
func (s *Stream) WriteAt(p []byte, off int64) (int, error) {
	if i, ok := s.image.payloadOf(off); ok && len(p) > 0 {
		if s.headed[i] {
			return 0, fmt.Errorf("byte %d is written twice", off)
		}
		s.headed[i] = true
		if err := s.image.writePayloadHeader(s.w, i); err != nil {
			return 0, err
		}
	}
	return s.w.WriteAt(p, off)
}

// Finish writes the headers of payloads without data.
func (s *Stream) Finish() error {
	for i, headed := range s.headed {
		if headed {
			continue
		}
		if err := s.image.writePayloadHeader(s.w, i); err != nil {
			return err
		}
	}
	return nil
}

// payloadOf returns the payload, in the file's order, with data that begin at off.
func (im *Image) payloadOf(off int64) (i int, ok bool) {
	n := im.count(secPayloads)
	begin := func(i int) int64 { return int64(im.payload(i).off) + packing.HeaderSize }
	i = sort.Search(n, func(i int) bool { return begin(i) >= off })
	return i, i < n && begin(i) == off
}
