package part

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// Version is the only version of part files that this package writes and reads: parts live as long
// as a job.
//
// Version 1: data in the part file, in a file that all workers share, or in a multipart upload.
//
// Version 2: data in the part file only. The header has no flags, and the record no pieces of an
// upload.
const Version = 2

const (
	magic      = "\x89GQP\r\n\x1a\n"
	headerSize = 128
	crcOff     = headerSize - 4
	// listPiece is the number of entries of a list that are encoded at a time.
	listPiece = 1 << 10
)

var le = binary.LittleEndian

// Header is the header of a part file, naming the plan and the part.
type Header struct {
	Plan      [32]byte // SHA-256 of what decides the bytes of the .gqf file, see HashPlan
	Index, Of int
	FileSize  int64 // of the .gqf file
	DataStart int64 // where its data region starts
	// Samples is the digest of samples of the source's weights. The template has only names, sizes and
	// headers, equal for a fine-tuned model and its base.
	Samples [32]byte

	dataLen   int64 // size of the part's data, after the header
	recordLen uint64
	recordCRC uint32
}

func (h *Header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], Version)
	copy(b[16:], h.Plan[:])
	le.PutUint32(b[48:], uint32(h.Index))
	le.PutUint32(b[52:], uint32(h.Of))
	le.PutUint64(b[56:], uint64(h.FileSize))
	le.PutUint64(b[64:], uint64(h.DataStart))
	le.PutUint64(b[72:], uint64(h.dataLen))
	le.PutUint64(b[80:], h.recordLen)
	le.PutUint32(b[88:], h.recordCRC)
	copy(b[92:crcOff], h.Samples[:])
	le.PutUint32(b[crcOff:], crc32c.Checksum(b[:crcOff]))
	return b
}

// encoder writes the fields of a record, as package binary encodes them, and sums the bytes.
type encoder struct {
	w   *bufio.Writer
	n   uint64
	crc uint32
}

func (e *encoder) Write(p []byte) (int, error) {
	e.n += uint64(len(p))
	e.crc = crc32c.Update(e.crc, p)
	return e.w.Write(p)
}

func (e *encoder) put(v any) { _ = binary.Write(e, le, v) } // Flush returns the first error

func putList[T any](e *encoder, list []T) {
	e.put(uint32(len(list)))
	for piece := range slices.Chunk(list, listPiece) {
		e.put(piece)
	}
}

// encode writes the record to w, and sets its length and checksum.
func (r *Record) encode(w io.Writer, report, template Stream) error {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<16)}
	putList(e, []byte(r.Maker))
	putList(e, r.Extents)
	putList(e, r.Sums)
	e.put(uint32(len(r.Tensors)))
	units := 0
	for i := range r.Tensors {
		e.put(&r.Tensors[i].TensorSums)
		units += len(r.Tensors[i].Errors)
	}
	e.put(uint32(units))
	for i := range r.Tensors {
		e.put(r.Tensors[i].Errors)
	}
	putList(e, r.Absorbed)
	putList(e, r.Hashes)
	for _, s := range []Stream{report, template} {
		e.put(uint64(s.Size))
		if s.Size == 0 {
			continue
		}
		if err := s.Write(e); err != nil {
			return err
		}
	}
	r.recordLen, r.recordCRC = e.n, e.crc
	return e.w.Flush()
}
