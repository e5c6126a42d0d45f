package part

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/crc32c"
)

// maxRecord bounds a record, in bytes. A part with all of 2 TB of weights has 100 MB.
const maxRecord = 1 << 30

// FormatError reports where and why a file is not a valid part file.
type FormatError struct {
	File   string
	Offset int64 // in the file
	Msg    string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg) }

type File struct {
	Header
	name string
	r    io.ReaderAt
}

// Open opens the part file r of size bytes and checks its header. name stands in errors.
func Open(name string, r io.ReaderAt, size int64) (*File, error) {
	p := &File{name: name, r: r}
	b := make([]byte, headerSize)
	n, err := r.ReadAt(b, 0)
	if n < headerSize && err != io.EOF {
		return nil, err
	}
	if n < len(magic) || string(b[:len(magic)]) != magic {
		return nil, p.bad(0, "the file does not begin as a part file of gq does")
	}
	if n < headerSize {
		return nil, p.bad(int64(n), "the file ends here, within its header of %d bytes", headerSize)
	}
	if v := le.Uint32(b[8:]); v != Version {
		return nil, p.bad(8, "version %d, this program reads version %d: make all parts and merge them with one version of gq", v, Version)
	}
	if crc := crc32c.Checksum(b[:crcOff]); crc != le.Uint32(b[crcOff:]) {
		return nil, p.bad(crcOff, "checksum of the header is %08x, stored is %08x", crc, le.Uint32(b[crcOff:]))
	}
	return p, p.decodeHeader(b, size)
}

func (f *File) bad(off int64, format string, args ...any) *FormatError {
	return &FormatError{f.name, off, fmt.Sprintf(format, args...)}
}

func (f *File) decodeHeader(b []byte, size int64) error {
	flags := le.Uint32(b[12:])
	copy(f.Plan[:], b[16:])
	f.Index, f.Of = int(le.Uint32(b[48:])), int(le.Uint32(b[52:]))
	fileSize, start, data, record := le.Uint64(b[56:]), le.Uint64(b[64:]), le.Uint64(b[72:]), le.Uint64(b[80:])
	f.recordCRC = le.Uint32(b[88:])
	switch {
	case flags != 0:
		return f.bad(12, "flags %#x: version %d has none", flags, Version)
	case f.Of < 1 || f.Of > MaxParts || f.Index < 0 || f.Index >= f.Of:
		return f.bad(48, "part %d of %d: at most %d parts, counted from 0", f.Index, f.Of, MaxParts)
	case fileSize > 1<<62 || start > fileSize:
		return f.bad(56, "a .gqf file of %d bytes whose data start at %d", fileSize, start)
	case record > maxRecord:
		return f.bad(80, "a record of %d bytes, at most %d are possible", record, maxRecord)
	case data > 1<<62 || int64(data)+int64(record)+headerSize != size:
		return f.bad(size, "the file has %d bytes, its header says %d: it is truncated or damaged", size, data+record+headerSize)
	}
	copy(f.Samples[:], b[92:crcOff])
	f.FileSize, f.DataStart, f.dataLen, f.recordLen = int64(fileSize), int64(start), int64(data), record
	return nil
}

func (f *File) Size() int64 { return headerSize + f.dataLen + int64(f.recordLen) }

// Data reads the part's data: the extents in order, without gaps.
func (f *File) Data() *io.SectionReader { return io.NewSectionReader(f.r, headerSize, f.dataLen) }

func (f *File) Record() (*Record, error) {
	at := headerSize + f.dataLen
	section := io.NewSectionReader(f.r, at, int64(f.recordLen))
	// The checksum comes first, so that only a record that a program meant takes memory.
	crc, buf := uint32(0), make([]byte, 1<<16)
	for {
		n, err := section.Read(buf)
		crc = crc32c.Update(crc, buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if crc != f.recordCRC {
		return nil, f.bad(at, "checksum of the record of %d bytes is %08x, the header says %08x", f.recordLen, crc, f.recordCRC)
	}
	if _, err := section.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	d := &decoder{rest: io.LimitedReader{R: bufio.NewReaderSize(section, 1<<16), N: int64(f.recordLen)}}
	r := &Record{Maker: string(getList[byte](d, "bytes of a version")), Extents: getList[Extent](d, "extents"), Sums: getList[uint32](d, "checksums")}
	d.tensors(r)
	r.Absorbed, r.Hashes = getList[NameSum](d, "absorbed names"), getList[FileHash](d, "hashes")
	r.Report, r.Template = d.bytes("a report"), d.bytes("a template")
	if d.rest.N != 0 {
		d.fail("%d bytes behind the template", d.rest.N)
	}
	if d.err == nil {
		r.Header = f.Header
		if err := r.check(); err != nil {
			d.fail("%w", err)
		}
	}
	if d.err != nil {
		return nil, f.bad(at+int64(f.recordLen)-d.rest.N, "%v", d.err)
	}
	return r, nil
}

// decoder reads the fields of a record. After an error, all fields read as zeros.
type decoder struct {
	rest io.LimitedReader
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) get(v any) {
	if d.err != nil {
		return
	}
	d.err = binary.Read(&d.rest, le, v)
	if d.err == io.EOF || d.err == io.ErrUnexpectedEOF {
		d.err = errors.New("the record ends within a field")
	}
}

// count reads the length of a list. The entries, of size bytes each, must fit in the rest.
func (d *decoder) count(size int, what string) int {
	var n uint32
	if d.get(&n); int64(n) > d.rest.N/int64(size) {
		d.fail("%d %s, the record has %d bytes left", n, what, d.rest.N)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func getList[T any](d *decoder, what string) []T {
	var entry T
	list := make([]T, d.count(binary.Size(entry), what))
	for piece := range slices.Chunk(list, listPiece) {
		d.get(piece)
	}
	return list
}

func (d *decoder) bytes(what string) []byte {
	var n uint64
	if d.get(&n); n > uint64(d.rest.N) {
		d.fail("%s of %d bytes, the record has %d left", what, n, d.rest.N)
	}
	if d.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, d.err = io.ReadFull(&d.rest, b)
	return b
}

// tensors reads the tensors, and then the errors of all their units.
func (d *decoder) tensors(r *Record) {
	r.Tensors = make([]Tensor, d.count(binary.Size(TensorSums{}), "tensors"))
	units := uint64(0)
	for i := range r.Tensors {
		d.get(&r.Tensors[i].TensorSums)
		units += uint64(r.Tensors[i].Units)
	}
	all := getList[UnitError](d, "units")
	if uint64(len(all)) != units {
		d.fail("errors of %d units, the tensors have %d", len(all), units)
	}
	if d.err != nil {
		return
	}
	for i := range r.Tensors {
		t := &r.Tensors[i]
		t.Errors, all = all[:t.Units:t.Units], all[t.Units:]
	}
}

// CheckData compares the part's data, the bytes of its extents in read, with the checksums. each,
// if not nil, gets the data in pieces, with their offsets in the .gqf file.
func (r *Record) CheckData(read func(p []byte, off int64) error, each func(p []byte, off int64) error) error {
	blocks := Blocks(r.Extents, r.DataStart)
	sums := make([]uint32, len(blocks))
	at, size := 0, r.FileSize-r.DataStart
	buf := make([]byte, gqf.BlockSize)
	for _, e := range r.Extents {
		for off := e.Off; off < e.Off+e.Len; {
			p := buf[:min(int64(len(buf)), e.Off+e.Len-off)]
			if err := read(p, off); err != nil {
				return err
			}
			gqf.SumBlocks(off-r.DataStart, size, p, func(s gqf.BlockSum) {
				for blocks[at] != s.Block {
					at++
				}
				sums[at] ^= s.Register
			})
			if each != nil {
				if err := each(p, off); err != nil {
					return err
				}
			}
			off += int64(len(p))
		}
	}
	for i, s := range sums {
		if s != r.Sums[i] {
			from := r.DataStart + blocks[i]*gqf.BlockSize
			return &DamageError{from, min(from+gqf.BlockSize, r.FileSize)}
		}
	}
	return nil
}

// DamageError says that checksums do not match a part's data between two offsets of the .gqf file.
type DamageError struct{ From, To int64 }

func (e *DamageError) Error() string {
	return fmt.Sprintf("the data for bytes %d to %d of the .gqf file do not have the checksum that the part states", e.From, e.To-1)
}

// Find returns the function that reads bytes of the extents from the data of the part.
func (f *File) Find(list []Extent) func(p []byte, off int64) error {
	place, data := NewPlace(list), f.Data()
	return func(p []byte, off int64) error {
		at, err := place.Find(off, int64(len(p)))
		if err == nil {
			_, err = data.ReadAt(p, at)
		}
		return err
	}
}

// PlanName abbreviates the digest of a plan: FileDigits of each half.
func (h *Header) PlanName() string {
	return hex.EncodeToString(h.Plan[:FileDigits/2]) + hex.EncodeToString(h.Plan[16:16+FileDigits/2])
}

// FileDigits is how many digits of a plan's name the file that its parts make shows, see HashPlan.
const FileDigits = 12
