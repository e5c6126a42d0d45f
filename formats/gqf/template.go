package gqf

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// WriteTemplate writes what precedes the data region while no data are known: the checksums of data
// and of sources are 0. It must be called before SetSourceCRC. ParseTemplate reads it.
func (im *Image) WriteTemplate(w io.Writer) error {
	for i := range im.h.sections {
		if i != secStrings || im.strings == nil {
			im.h.sections[i].crc = crc32c.Checksum(im.sec[i])
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
		if i == secStrings && im.strings != nil {
			for _, name := range im.strings {
				if _, err := io.WriteString(w, name); err != nil {
					return err
				}
			}
		} else if _, err := w.Write(im.sec[i]); err != nil {
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

// ParseTemplate makes an Image of what WriteTemplate wrote. It checks b as Open checks a file. The
// Image numbers payloads and names as the file does. name stands in errors. b belongs to the Image
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

// ReadFront makes an Image of the front of a complete file of size bytes, which r reads. It checks the
// front as ParseTemplate does, but no data.
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

// SumBlocks calls add with the contributions of p, which begins pos bytes behind the start of a data
// region of size bytes. The xor of all contributions to a block is the register of its CRC32C.
func SumBlocks(pos, size int64, p []byte, add func(BlockSum)) {
	for len(p) > 0 {
		block := pos >> blockLog2
		end := min((block+1)<<blockLog2, size)
		n := min(end-pos, int64(len(p)))
		add(BlockSum{block, crcShift(rawCRC(p[:n]), end-pos-n)})
		p, pos = p[n:], pos+n
	}
}

// BlockSize is the size in bytes of the blocks that SumBlocks counts.
const BlockSize = 1 << blockLog2

// DataSize returns the size in bytes of the data region, which ends the file.
func (im *Image) DataSize() int64 { return int64(im.h.dataLen) }

// BlockSum returns what AddData has contributed to a block.
func (im *Image) BlockSum(block int64) BlockSum {
	return BlockSum{block, im.blocks[block].Load()}
}

// AddSums is AddData for n bytes of data whose contributions are known.
func (im *Image) AddSums(n int64, sums []BlockSum) {
	im.added.Add(n)
	for _, s := range sums {
		im.addRegister(s.Block, s.Register)
	}
}

// Payloads returns the number of payloads.
func (im *Image) Payloads() int { return im.count(secPayloads) }

// PayloadExtent returns the offset and size of the data of payload i of the file, without the packed
// header.
func (im *Image) PayloadExtent(i int) (off, size int64) {
	p := im.payload(i)
	return int64(p.off) + packing.HeaderSize, int64(p.length) - packing.HeaderSize
}

// Tensors returns the number of tensors.
func (im *Image) Tensors() int { return im.count(secTensors) }

// TensorName returns the canonical name of tensor i.
func (im *Image) TensorName(i int) string {
	if im.strings != nil {
		return im.strings[im.tensor(i).name]
	}
	return im.tensorName(i)
}

// An ImageName is a name of a tensor of an Image.
type ImageName struct {
	Tensor       int
	InCheckpoint bool
	Absorbed     bool
}

// Names returns the number of names.
func (im *Image) Names() int { return im.count(secNames) }

// NameAt describes name i in the order of the file.
func (im *Image) NameAt(i int) ImageName {
	r := im.nameRec(i)
	return ImageName{int(r.tensor), r.flags&flagCheckpt != 0, r.flags&flagAbsorbed != 0}
}

// NameIndex returns the position in the file of name i, as AddName numbered it.
func (im *Image) NameIndex(i int) int {
	if im.nameAt == nil {
		return i
	}
	return int(im.nameAt[i])
}

// EditAsset calls edit with the content of an asset that is stored as it is; edit may change bytes.
func (im *Image) EditAsset(name string, edit func(b []byte) error) error {
	for i := range im.count(secAssets) {
		r := im.asset(i)
		if im.assetName(i) != name {
			continue
		}
		if Codec(r.codec) != CodecStored {
			return fmt.Errorf("asset %q is compressed", name)
		}
		at := r.off - im.h.sections[secAssetData].off
		b := im.sec[secAssetData][at:][:r.stored:r.stored]
		if err := edit(b); err != nil {
			return err
		}
		r.rawCRC = crc32c.Checksum(b)
		r.encode(im.record(secAssets, i))
		return nil
	}
	return &NoAssetError{im.name, name}
}

func (im *Image) assetName(i int) string {
	if im.strings != nil { // names of tensors, and then of assets
		return im.strings[im.count(secNames)+i]
	}
	r := im.asset(i)
	return string(im.str(r.strOff, r.strLen))
}

// WriteGaps writes the zeros between payloads, behind the last one and between the sections of the
// front, for a file that may hold other bytes there.
func (im *Image) WriteGaps(w io.WriterAt) error {
	gap := func(from, to uint64) error {
		for from < to {
			n := min(to-from, uint64(len(zeros)))
			if _, err := w.WriteAt(zeros[:n], int64(from)); err != nil {
				return err
			}
			from += n
		}
		return nil
	}
	end := uint64(headerSize)
	for _, s := range im.h.sections {
		if err := gap(end, s.off); err != nil {
			return err
		}
		end = s.off + s.length
	}
	for i := range im.count(secPayloads) {
		p := im.payload(i)
		if err := gap(end, p.off); err != nil {
			return err
		}
		end = p.off + p.length
	}
	return gap(end, im.h.fileSize)
}

// ClearSums sets the checksums of data and sources to 0, as a template has them.
func (im *Image) ClearSums() {
	clear(im.sec[secChecksums])
	for i := range im.count(secNames) {
		le.PutUint32(im.record(secNames, i)[16:], 0)
	}
}

// DataIn is the number of bytes from from to to - 1 of the file that are data of payloads, without packed
// headers.
func (im *Image) DataIn(from, to int64) (n int64) {
	for i := im.payloadAt(from); i < im.Payloads(); i++ {
		off, size := im.PayloadExtent(i)
		if off >= to {
			break
		}
		n += max(0, min(off+size, to)-max(off, from))
	}
	return n
}

// FillHeaders copies the packed headers that overlap the bytes of p, at off in the file, into p.
func (im *Image) FillHeaders(p []byte, off int64) {
	for i := im.payloadAt(off); i < im.Payloads(); i++ {
		at := int64(im.payload(i).off)
		head := im.record(secPayloads, i)[payloadHeader:]
		switch {
		case at >= off+int64(len(p)):
			return
		case at >= off:
			copy(p[at-off:], head)
		case off-at < int64(len(head)):
			copy(p, head[off-at:])
		}
	}
}

// payloadAt is the first payload that ends behind byte off.
func (im *Image) payloadAt(off int64) int {
	return sort.Search(im.Payloads(), func(i int) bool {
		p := im.payload(i)
		return int64(p.off)+int64(p.length) > off
	})
}
