package gqf

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// WriteTemplate writes the bytes before the data region while no data are known: the checksums of
// data and of sources are 0. Call WriteTemplate before SetSourceCRC. ParseTemplate reads the bytes.
func (im *Image) WriteTemplate(w io.Writer) error {
	for i := range im.h.sections { // the checksums precede the sections
		if err := im.writeSection(io.Discard, i); err != nil {
			return err
		}
	}
	at := uint64(headerSize)
	if _, err := w.Write(im.h.encode()); err != nil {
		return err
	}
	for i, s := range im.h.sections {
		if err := writeZeros(w, s.off-at); err != nil {
			return err
		}
		if err := im.writeSection(w, i); err != nil {
			return err
		}
		at = s.off + s.length
	}
	return writeZeros(w, im.h.dataOff-at)
}

func writeZeros(w io.Writer, n uint64) error {
	for n > 0 {
		piece := zeros[:min(n, uint64(len(zeros)))]
		if _, err := w.Write(piece); err != nil {
			return err
		}
		n -= uint64(len(piece))
	}
	return nil
}

// ParseTemplate makes an Image of WriteTemplate's bytes, checked as Open checks a file. The Image
// numbers payloads and names as the file does. name stands in errors. b belongs to the Image
// afterwards.
func ParseTemplate(name string, b []byte, opts Options) (*Image, error) {
	im := &Image{front: front{name: name}}
	size := uint64(len(b))
	if len(b) >= headerSize {
		size = binary.LittleEndian.Uint64(b[16:]) // of the file; the data follow b
	}
	if err := im.checkFrame(b, size, opts.withDefaults()); err != nil {
		return nil, err
	}
	if im.h.blockLog2 != blockLog2 {
		return nil, &UnsupportedError{name, fmt.Sprintf("checksum blocks of 2^%d bytes, parts have blocks of 2^%d", im.h.blockLog2, blockLog2)}
	}
	if err := im.checkSections(b); err != nil {
		return nil, err
	}
	if err := im.checkRecords(); err != nil {
		return nil, err
	}
	im.place(im.h)
	im.payloadOff = make([]int64, im.count(secPayloads))
	for i := range im.payloadOff {
		p := im.payload(i)
		im.payloadOff[i] = int64(p.off)
		im.payloadBytes += int64(p.length)
	}
	return im, nil
}

// ReadFront makes an Image of the front of a complete file of size bytes, read from r. ReadFront
// checks the front as ParseTemplate does, but no data.
func ReadFront(name string, r io.ReaderAt, size int64) (*Image, error) {
	b := make([]byte, headerSize)
	if n, err := r.ReadAt(b, 0); n < headerSize && err != io.EOF {
		return nil, err
	} else if n < headerSize {
		b = b[:n]
	} else if start := decodeHeader(b).dataOff; start > headerSize && start <= uint64(size) {
		if b, err = io.ReadAll(io.NewSectionReader(r, 0, int64(start))); err != nil {
			return nil, err
		}
	}
	im, err := ParseTemplate(name, b, Options{})
	if err == nil && im.Size() != size {
		err = im.bad(16, "a file of %d bytes, and it has %d", im.Size(), size)
	}
	return im, err
}

// A BlockSum is the contribution of some data to the checksum of a block of the data region.
type BlockSum struct {
	Block    int64 // its number from the start of the data region
	Register uint32
}

// SumBlocks calls add with the contributions of p. p begins pos bytes behind the start of a data
// region of size bytes. The xor of all contributions to a block is the register of its CRC32C.
func SumBlocks(pos, size int64, p []byte, add func(BlockSum)) {
	for len(p) > 0 {
		block := pos >> blockLog2
		end := min((block+1)<<blockLog2, size)
		n := min(end-pos, int64(len(p)))
		add(BlockSum{block, crc32c.Shift(crc32c.Register(p[:n]), end-pos-n)})
		p, pos = p[n:], pos+n
	}
}

// BlockSize is the size in bytes of the blocks that SumBlocks counts.
const BlockSize = 1 << blockLog2

// DataSize returns the size in bytes of the data region at the end of the file.
func (im *Image) DataSize() int64 { return int64(im.h.dataLen) }

// BlockSum returns what AddData has contributed to a block.
func (im *Image) BlockSum(block int64) BlockSum {
	return BlockSum{block, im.blocks[block].Load()}
}

// AddSums is AddData for n bytes of data with known contributions.
func (im *Image) AddSums(n int64, sums []BlockSum) {
	im.added.Add(n)
	for _, s := range sums {
		im.addRegister(s.Block, s.Register)
	}
}

func (im *Image) Payloads() int { return im.count(secPayloads) }

// PayloadExtent returns the offset and size in the file of payload i's data, without the header.
func (im *Image) PayloadExtent(i int) (off, size int64) {
	p := im.payload(i)
	return int64(p.off) + packing.HeaderSize, int64(p.length) - packing.HeaderSize
}

func (im *Image) Tensors() int { return im.count(secTensors) }

// TensorName returns the canonical name of tensor i.
func (im *Image) TensorName(i int) string { return im.tensorName(i) }

func (im *Image) Names() int { return im.count(secNames) }

// NameAt returns name i in the order of the file.
func (im *Image) NameAt(i int) Name { return im.nameOf(i) }

// NameIndex returns the position in the file of name i, by AddName's number.
func (im *Image) NameIndex(i int) int {
	if im.nameAt == nil {
		return i
	}
	return int(im.nameAt[i])
}

// EditAsset calls edit with the content of an uncompressed asset; edit may change bytes.
func (im *Image) EditAsset(name string, edit func(b []byte) error) error {
	for i := range im.count(secAssets) {
		r := im.asset(i)
		if im.assetName(i) != name {
			continue
		}
		if assetCodec(r.codec) != codecStored {
			return fmt.Errorf("asset %q is compressed", name)
		}
		at := r.off - im.h.sections[secAssetData].off
		b := im.sec[secAssetData][at:][:r.stored:r.stored]
		if err := edit(b); err != nil {
			return err
		}
		r.rawCRC = crc32c.Checksum(b)
		encode(im.record(secAssets, i), &r)
		return nil
	}
	return &noAssetError{im.name, name}
}

func (im *Image) assetName(i int) string {
	r := im.asset(i)
	return string(im.stringOf(im.count(secNames)+i, r.strOff, r.strLen))
}

// ClearSums sets the checksums of data and sources to 0, as in a template.
func (im *Image) ClearSums() {
	clear(im.sec[secChecksums])
	for i := range im.count(secNames) {
		le.PutUint32(im.record(secNames, i)[16:], 0)
	}
}
