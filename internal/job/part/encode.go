package part

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

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
	extentSize = 16
	sumSize    = 4
	tensorSize = 56
	errorSize  = 16
	nameSize   = 8
	hashSize   = 36
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

// encoder writes the fields of a record and sums the bytes.
type encoder struct {
	w   *bufio.Writer
	n   uint64
	crc uint32
	buf []byte
}

func (e *encoder) Write(p []byte) (int, error) {
	e.n += uint64(len(p))
	e.crc = crc32c.Update(e.crc, p)
	return e.w.Write(p) // Flush returns the first error
}

func (e *encoder) u32(v ...uint32) {
	e.buf = e.buf[:0]
	for _, v := range v {
		e.buf = le.AppendUint32(e.buf, v)
	}
	e.Write(e.buf)
}

func (e *encoder) u64(v ...uint64) {
	e.buf = e.buf[:0]
	for _, v := range v {
		e.buf = le.AppendUint64(e.buf, v)
	}
	e.Write(e.buf)
}

// encode writes the record to w, and sets its length and checksum.
func (r *Record) encode(w io.Writer, report, template Stream) error {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<16)}
	e.u32(uint32(len(r.Maker)))
	io.WriteString(e, r.Maker)
	e.u32(uint32(len(r.Extents)))
	for _, x := range r.Extents {
		e.u64(uint64(x.Off), uint64(x.Len))
	}
	e.u32(uint32(len(r.Sums)))
	for _, s := range r.Sums {
		e.u32(s)
	}
	e.u32(uint32(len(r.Tensors)))
	units := 0
	for i := range r.Tensors {
		t := &r.Tensors[i]
		e.u32(t.Index, t.First, t.Units, t.Of, t.CRC, 0)
		e.u64(t.Bytes, t.SmallScales, t.Exact, t.Groups)
		units += len(t.Errors)
	}
	e.u32(uint32(units))
	for i := range r.Tensors {
		for _, u := range r.Tensors[i].Errors {
			e.u64(math.Float64bits(u.Noise), math.Float64bits(u.Signal))
		}
	}
	e.u32(uint32(len(r.Absorbed)))
	for _, a := range r.Absorbed {
		e.u32(a.Name, a.CRC)
	}
	e.u32(uint32(len(r.Hashes)))
	for _, h := range r.Hashes {
		e.u32(h.File)
		e.Write(h.SHA256[:])
	}
	for _, s := range []Stream{report, template} {
		e.u64(uint64(s.Size))
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
