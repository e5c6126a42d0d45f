package gqf

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
)

// front is the part of a file before its data region: the header and, after checking, the sections.
// The accessors decode records on demand.
type front struct {
	name string // the file's name, for errors
	h    header
	sec  [numSections][]byte
	// places, heads and headOf replace section payloads, unless headOf is nil: the records without
	// packed headers, the different packed headers, and the number of each record's among these. Of
	// many payloads few are different.
	places, heads []byte
	headOf        []uint32
	// strings replaces section strings in what a Builder made: the names of tensors, then of assets.
	strings []string

	view bool // payloads of LayoutBlocks are known

	// unknown maps tensors to bit masks of unreadable variants; most files have none.
	unknown map[int32]uint8
}

func (f *front) parseHeader(raw []byte) (h packing.Header, err error) {
	if f.view {
		err = h.Decode(raw)
		return h, err
	}
	return packing.ParseHeader(raw)
}

// setSections points the sections into b, the file from its start.
func (f *front) setSections(b []byte) {
	for i, s := range f.h.sections {
		end := s.off + s.length
		f.sec[i] = b[s.off:end:end]
	}
}

// copySections replaces all sections but the asset data by copies. The copies cannot change after
// the checks, whatever happens to the file: no accessor can fault or read an unchecked index.
func (f *front) copySections() {
	for i := range f.sec {
		if i != secAssetData {
			f.sec[i] = bytes.Clone(f.sec[i])
		}
	}
}

func (f *front) count(sec int) int { return int(f.h.sections[sec].count) }

func (f *front) record(sec, i int) []byte {
	size := int(recordSizes[sec])
	return f.sec[sec][i*size : (i+1)*size : (i+1)*size]
}

func (f *front) tensor(i int) tensorRecord   { return decodeTensor(f.record(secTensors, i)) }
func (f *front) payload(i int) payloadRecord { return decodePayload(f.payloadPlace(i)) }
func (f *front) nameRec(i int) nameRecord    { return decodeName(f.record(secNames, i)) }
func (f *front) asset(i int) assetRecord     { return decodeAsset(f.record(secAssets, i)) }
func (f *front) dim(i int) uint64            { return le.Uint64(f.record(secDims, i)) }
func (f *front) blockSum(i int) uint32       { return le.Uint32(f.record(secChecksums, i)) }

// payloadPlace returns the bytes of payload record i before its packed header.
func (f *front) payloadPlace(i int) []byte {
	if f.headOf != nil {
		return f.places[i*payloadHeader:][:payloadHeader]
	}
	return f.record(secPayloads, i)[:payloadHeader]
}

func (f *front) packedHeader(i int) []byte {
	if f.headOf != nil {
		return f.heads[int(f.headOf[i])*packing.HeaderSize:][:packing.HeaderSize]
	}
	return f.record(secPayloads, i)[payloadHeader:]
}

// packPayloads replaces section payloads, unless that would save little.
func (f *front) packPayloads() {
	n := f.count(secPayloads)
	numbers := map[[packing.HeaderSize]byte]uint32{}
	var heads []byte
	headOf := make([]uint32, n)
	for i := range n {
		head := [packing.HeaderSize]byte(f.packedHeader(i))
		number, ok := numbers[head]
		if !ok {
			if number = uint32(len(numbers)); int(number) > n/8 {
				return
			}
			numbers[head], heads = number, append(heads, head[:]...)
		}
		headOf[i] = number
	}
	places := make([]byte, 0, n*payloadHeader)
	for i := range n {
		places = append(places, f.payloadPlace(i)...)
	}
	f.places, f.heads, f.headOf, f.sec[secPayloads] = places, heads, headOf, nil
}

func (f *front) str(off, length uint32) []byte { return f.sec[secStrings][off:][:length] }

// nameString returns name i as a view of the immutable strings section. Copies of all names would
// take a tenth of a job's memory.
func (f *front) nameString(i int) string {
	b := f.nameBytes(i)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (f *front) nameBytes(i int) []byte {
	r := f.nameRec(i)
	return f.stringOf(i, r.strOff, r.strLen)
}

// stringOf returns string i of all names of tensors and then of assets, in place.
func (f *front) stringOf(i int, off, length uint32) []byte {
	if f.strings != nil {
		return unsafe.Slice(unsafe.StringData(f.strings[i]), len(f.strings[i]))
	}
	return f.str(off, length)
}

// namesEnd returns the offset in the strings section behind the last name.
func (f *front) namesEnd() uint64 {
	n := f.count(secNames)
	if n == 0 {
		return 0
	}
	r := f.nameRec(n - 1)
	return uint64(r.strOff) + uint64(r.strLen)
}

func (f *front) tensorName(i int) string { return f.nameString(int(f.tensor(i).name)) }

func (f *front) bad(off int64, format string, args ...any) *FormatError {
	return &FormatError{f.name, "header", off, fmt.Sprintf(format, args...), nil}
}

func (f *front) badRecord(sec, i, at int, format string, args ...any) *FormatError {
	off := int64(f.h.sections[sec].off) + int64(i)*recordSizes[sec] + int64(at)
	return &FormatError{f.name, sectionNames[sec], off, fmt.Sprintf(format, args...), nil}
}

// checkFrame checks the header and the places of the sections in b, the start of a file of size
// bytes, and sets f.h and f.sec.
func (f *front) checkFrame(b []byte, size uint64, opts Options) error {
	if err := f.checkHeader(b, size); err != nil {
		return err
	}
	if err := f.checkPlaces(); err != nil {
		return err
	}
	h := &f.h
	switch directory := h.dataOff - h.sections[secAssetData].length; {
	case directory > uint64(opts.MaxDirectoryBytes):
		return f.beyond("a directory of %d bytes", directory, "MaxDirectoryBytes", opts.MaxDirectoryBytes)
	case uint64(h.sections[secTensors].count) > uint64(opts.MaxTensors):
		return f.beyond("%d tensors", uint64(h.sections[secTensors].count), "MaxTensors", int64(opts.MaxTensors))
	case uint64(h.sections[secPayloads].count) > uint64(opts.MaxPayloads):
		return f.beyond("%d payloads", uint64(h.sections[secPayloads].count), "MaxPayloads", int64(opts.MaxPayloads))
	}
	if f.h.dataOff > uint64(len(b)) {
		return f.bad(int64(len(b)), "the directory should have %d bytes and ends here", f.h.dataOff)
	}
	f.setSections(b)
	return nil
}

// checkSections checks, after checkFrame, the sections' checksums and the zeros between sections.
func (f *front) checkSections(b []byte) error {
	end := uint64(headerSize)
	for i, s := range f.h.sections {
		if err := f.checkZero(b, end, s.off); err != nil {
			return err
		}
		if crc := crc32c.Checksum(f.sec[i]); crc != s.crc {
			return &FormatError{f.name, sectionNames[i], int64(s.off), fmt.Sprintf("checksum is %08x, the header says %08x: the section of %d bytes is damaged", crc, s.crc, s.length), nil}
		}
		end = s.off + s.length
	}
	return f.checkZero(b, end, f.h.dataOff)
}

func (f *front) beyond(what string, n uint64, option string, limit int64) error {
	return &UnsupportedError{f.name, fmt.Sprintf(what, n) + fmt.Sprintf(", beyond the limit of %d (Options.%s)", limit, option)}
}

// resembles reports whether b has most of the magic's bytes: damage or text mode changes only some.
func resembles(b []byte) bool {
	same := 0
	for i := range magic {
		if b[i] == magic[i] {
			same++
		}
	}
	return same >= len(magic)/2 || string(b[1:4]) == magic[1:4]
}

// foreign returns the error for a file that does not begin like a .gqf file.
func (f *front) foreign(b []byte) error {
	k := files.Recognize(b)
	e := &ForeignError{File: f.name, What: k.String()}
	switch k {
	case files.Unknown:
		e.What = fmt.Sprintf("a file that begins with %q", b[:min(len(b), len(magic))])
	case files.LFSPointer, files.HTML, files.Compressed, files.Empty:
		e.Advice = k.Advice(f.name)
	default:
		e.Advice = k.Rename(f.name)
	}
	return e
}

// checkHeader decodes the header and checks what does not depend on sections.
func (f *front) checkHeader(b []byte, size uint64) error {
	if len(b) < headerSize {
		if n := min(len(b), len(magic)); n == 0 || string(b[:n]) != magic[:n] {
			return f.foreign(b)
		}
		return f.bad(int64(len(b)), "the file ends here, within its header of %d bytes", headerSize)
	}
	b = bytes.Clone(b[:headerSize]) // see copySections
	if string(b[:len(magic)]) != magic {
		if resembles(b) {
			return f.bad(0, "damaged magic % x: was the file transferred as text?", b[:len(magic)])
		}
		return f.foreign(b)
	}
	f.h = decodeHeader(b)
	h := &f.h
	// This checksum has the same place and extent in every version.
	if crc := crc32c.Checksum(b[:headerCRCOff]); crc != le.Uint32(b[headerCRCOff:]) {
		return f.bad(headerCRCOff, "checksum of the header is %08x, stored is %08x: the header is damaged", crc, le.Uint32(b[headerCRCOff:]))
	}
	if h.major == 0 {
		return f.bad(8, "major version 0")
	}
	if h.major > versionMajor || h.minor > versionMinor {
		return &UnsupportedError{f.name, fmt.Sprintf("format version %d.%d, this program reads up to %d.%d: use a newer one", h.major, h.minor, versionMajor, versionMinor)}
	}
	switch {
	case h.fileSize > size:
		return f.bad(int64(size), "the file ends here and should have %d bytes: it is truncated", h.fileSize)
	case h.fileSize < size:
		return f.bad(int64(h.fileSize), "the file should end here and has %d bytes more", size-h.fileSize)
	case h.headerSize != headerSize:
		return f.bad(24, "header size %d, want %d", h.headerSize, headerSize)
	case h.blockLog2 < minBlockLog2 || h.blockLog2 > maxBlockLog2:
		return f.bad(28, "checksum blocks of 2^%d bytes, want 2^%d to 2^%d", h.blockLog2, minBlockLog2, maxBlockLog2)
	case !isZero(b[240:headerCRCOff]):
		return f.bad(240, "reserved bytes are not zero")
	}
	return nil
}

// checkPlaces checks the places of sections and data that the header states. Given the lengths,
// each section has a single right place.
func (f *front) checkPlaces() error {
	h := &f.h
	end := uint64(headerSize)
	for i, s := range h.sections {
		entry := int64(32 + 24*i)
		// No overflow: end is at most the size of the file.
		if want := alignUp(end, align); s.off != want {
			return f.bad(entry, "%s at byte %d, want %d", sectionNames[i], s.off, want)
		}
		if s.off > h.fileSize || s.length > h.fileSize-s.off {
			return f.bad(entry, "%s at %d with %d bytes, the file has %d", sectionNames[i], s.off, s.length, h.fileSize)
		}
		if want := uint64(s.count) * uint64(recordSizes[i]); recordSizes[i] != 0 && s.length != want {
			return f.bad(entry, "%s: %d records are %d bytes, not %d", sectionNames[i], s.count, want, s.length)
		}
		if recordSizes[i] == 0 && s.count != 0 {
			return f.bad(entry, "%s: count %d, want 0", sectionNames[i], s.count)
		}
		end = s.off + s.length
	}
	if want := alignUp(end, dataAlign); h.dataOff != want {
		return f.bad(224, "data region at byte %d, want %d", h.dataOff, want)
	}
	if h.dataOff > h.fileSize || h.dataLen != h.fileSize-h.dataOff || h.dataLen%align != 0 {
		return f.bad(232, "data region of %d bytes at %d in a file of %d, want it to reach the end and be a multiple of %d", h.dataLen, h.dataOff, h.fileSize, align)
	}
	if want := (h.dataLen + 1<<h.blockLog2 - 1) >> h.blockLog2; uint64(h.sections[secChecksums].count) != want {
		return f.bad(32+24*secChecksums, "%d checksums for %d blocks of data", h.sections[secChecksums].count, want)
	}
	return nil
}

func (f *front) checkZero(b []byte, from, to uint64) error {
	if i := firstNonZero(b[from:to]); i >= 0 {
		return &FormatError{f.name, "front gap", int64(from) + int64(i), fmt.Sprintf("byte %#02x where none is in use, want 0", b[from+uint64(i)]), nil}
	}
	return nil
}

var zeros [4096]byte

func isZero(b []byte) bool { return firstNonZero(b) < 0 }

// firstNonZero returns the index of the first non-zero byte, or -1. Comparing with a page of zeros
// by bytes.Equal runs at the speed of memory.
func firstNonZero(b []byte) int {
	for at := 0; at < len(b); at += len(zeros) {
		page := b[at:min(at+len(zeros), len(b))]
		if bytes.Equal(page, zeros[:len(page)]) {
			continue
		}
		for i, c := range page {
			if c != 0 {
				return at + i
			}
		}
	}
	return -1
}
