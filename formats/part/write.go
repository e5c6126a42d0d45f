package part

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"

	"github.com/lowbit-go/gq/internal/atomicfile"
)

// MaxParts is the greatest number of parts of a job.
const MaxParts = 1 << 16

// HashPlan returns the digest of a plan: the SHA-256 of the version of part files, the number of parts,
// the name of the program's version, Header.Samples, and the template, which holds recipe, sources and all places.
func HashPlan(of int, maker string, samples [32]byte, template func(io.Writer) error) (digest [32]byte, size int64, err error) {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint32(nil, Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(of))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(maker)))
	h.Write(append(append(b, maker...), samples[:]...))
	n := counter{w: h}
	if err := template(&n); err != nil {
		return digest, 0, err
	}
	h.Sum(digest[:0])
	return digest, n.n, nil
}

// counter counts the bytes that pass to a writer.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

// A Writer writes a part file, which appears at its path when it is complete.
type Writer struct {
	header Header
	file   *atomicfile.File
	place  Place
}

// Create begins the part file at path. With h.Shared it has no data.
func Create(path string, h Header, extents []Extent) (*Writer, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{header: h, file: f}
	if !h.Shared {
		w.place, w.header.dataLen = NewPlace(extents), DataBytes(extents)
	}
	if err := f.Truncate(headerSize + w.header.dataLen); err != nil {
		f.Abort()
		return nil, err
	}
	return w, nil
}

// WriteAt writes data with their offset in the .gqf file. The bytes must be of one extent.
func (w *Writer) WriteAt(p []byte, off int64) (int, error) {
	at, err := w.place.Find(off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	return w.file.WriteAt(p, headerSize+at)
}

// StartWriteback is as atomicfile.File's, with the offset in the .gqf file.
func (w *Writer) StartWriteback(off, n int64) {
	if at, err := w.place.Find(off, n); err == nil {
		w.file.StartWriteback(headerSize+at, n)
	}
}

// Commit writes record and header, and makes the file appear. It returns the size of the file. The
// template has templateSize bytes; 0: none.
func (w *Writer) Commit(r *Record, templateSize int64, template func(io.Writer) error) (size int64, err error) {
	r.Header = w.header
	at := headerSize + w.header.dataLen
	if err := r.encode(io.NewOffsetWriter(w.file, at), templateSize, template); err != nil {
		return 0, err
	}
	if _, err := w.file.WriteAt(r.Header.encode(), 0); err != nil {
		return 0, err
	}
	return at + int64(r.recordLen), w.file.Commit()
}

// Abort removes the unfinished file. It does nothing after Commit.
func (w *Writer) Abort() { w.file.Abort() }

// Encode returns the bytes of a part file with a header, data and the record.
func (r *Record) Encode(h Header, data []byte, templateSize int64, template func(io.Writer) error) ([]byte, error) {
	r.Header = h
	r.dataLen = int64(len(data))
	b := bytes.NewBuffer(make([]byte, headerSize, headerSize+len(data)))
	b.Write(data)
	if err := r.encode(b, templateSize, template); err != nil {
		return nil, err
	}
	copy(b.Bytes(), r.Header.encode())
	return b.Bytes(), nil
}
