package part

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// Version is the version of part files that this package writes, and the only one that it reads: parts
// live as long as a job.
//
// Version 1: the first.
const Version = 1

const (
	magic      = "\x89GQP\r\n\x1a\n"
	headerSize = 128
	flagShared = 1 // the data are in the shared file
	flagObject = 2 // the part's data are in an upload; the data of pieces that parts share are here
	crcOff     = headerSize - 4
	extentSize = 16
	sumSize    = 4
	tensorSize = 56
	errorSize  = 16
	nameSize   = 8
	hashSize   = 36
	pieceSize  = 48 // and the ETag
	storedSize = 24
)

var le = binary.LittleEndian

// Header is the header of a part file. It identifies the plan and the part.
type Header struct {
	Shared    bool     // the data are in the shared file
	Object    bool     // the data are in a multipart upload
	Plan      [32]byte // SHA-256 of what decides the bytes of the .gqf file, see HashPlan
	Index, Of int
	FileSize  int64 // of the .gqf file
	DataStart int64 // where its data region starts
	// Samples is the digest of samples of the source's weights: the template has only names, sizes and
	// headers, which a fine-tuned model shares with its base.
	Samples [32]byte

	dataLen   int64 // of the part's data, which follow the header
	recordLen uint64
	recordCRC uint32
}

func (h *Header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], Version)
	flags := uint32(0)
	if h.Shared {
		flags |= flagShared
	}
	if h.Object {
		flags |= flagObject
	}
	le.PutUint32(b[12:], flags)
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

// encoder writes the fields of a record, and sums them.
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

// encode writes the record to w, and sets its length and checksum. template writes so many bytes.
func (r *Record) encode(w io.Writer, templateSize int64, template func(io.Writer) error) error {
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
	e.u32(uint32(len(r.Upload)))
	io.WriteString(e, r.Upload)
	e.u32(uint32(len(r.Pieces)))
	for _, p := range r.Pieces {
		e.u32(p.Number, uint32(len(p.ETag)))
		e.u64(uint64(p.Size))
		e.Write(p.MD5[:])
		e.Write(p.CRC64NVME[:])
		e.Write(p.CRC32C[:])
		e.u32(0)
		io.WriteString(e, p.ETag)
	}
	e.u32(uint32(len(r.Stored)))
	for _, s := range r.Stored {
		e.u64(uint64(s.Off), uint64(s.Len))
		e.u32(s.CRC, 0)
	}
	e.u64(uint64(len(r.Report)))
	e.Write(r.Report)
	e.u64(uint64(templateSize))
	if templateSize > 0 {
		if err := template(e); err != nil {
			return err
		}
	}
	r.recordLen, r.recordCRC = e.n, e.crc
	return e.w.Flush()
}
